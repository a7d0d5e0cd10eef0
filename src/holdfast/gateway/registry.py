"""The gateways that are recorded on this machine: their metadata, their files, and the active one.

With the metadata a command finds a gateway without asking the container engine.
"""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from holdfast import __version__, home
from holdfast.errors import CorruptFileError, GatewayNotFoundError, InvalidGatewayNameError
from holdfast.gateway.spec import LOOPBACK, GatewaySpec, check_name, connect_address, https_url
from holdfast.pki import ClientCertificateStore

DEFAULT_GATEWAY_NAME = "default"
GATEWAY_VARIABLE = "HOLDFAST_GATEWAY"


class GatewayMetadata(GatewaySpec, frozen=True, kw_only=True):
    """The record of a gateway on this machine: its spec, and where it is; contains no secret."""

    gateway_port: int = 0
    remote: str = ""
    tunnel_port: int = 0
    engine: str = ""
    engine_id: str = ""
    kubernetes: str = ""
    created_at: str = ""
    holdfast: str = __version__

    @property
    def server(self) -> str:
        if self.remote:
            return https_url(LOOPBACK, self.tunnel_port)
        return https_url(connect_address(self.listen), self.port)


class GatewayFiles:
    """The files of one gateway below the configuration directory."""

    def __init__(self, name: str) -> None:
        self.directory = home.config_dir() / "gateways" / check_name(name)
        self.metadata = self.directory / "metadata.json"
        self.kubeconfig = self.directory / "kubeconfig"
        self.mtls = self.directory / "mtls"
        self.client_certificates = ClientCertificateStore(self.mtls)
        self.state = home.state_dir() / "gateways" / name / "state.db"


def read_metadata(name: str) -> GatewayMetadata | None:
    """Read the record of a gateway; None if there is none.

    Raises:
        CorruptFileError: The file cannot be read.
    """
    path = GatewayFiles(name).metadata
    try:
        return msgspec.json.decode(path.read_bytes(), type=GatewayMetadata)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise CorruptFileError(
            f"{path}: cannot be read: {error}",
            hint=f"Remove it, then run `holdfast up {name}` to write it again.",
        ) from error


def write_metadata(metadata: GatewayMetadata) -> None:
    """Record a gateway."""
    home.write_atomic(
        GatewayFiles(metadata.name).metadata, msgspec.json.format(msgspec.json.encode(metadata), indent=2)
    )


def known_gateway_names() -> list[str]:
    """The names of all recorded gateways, including those whose record is damaged."""
    root = home.config_dir() / "gateways"
    return sorted(path.parent.name for path in root.glob("*/metadata.json"))


def known_gateways() -> list[GatewayMetadata]:
    """The readable records of all gateways, by name."""
    records = []
    for name in known_gateway_names():
        with suppress(CorruptFileError):
            records.append(read_metadata(name))
    return [metadata for metadata in records if metadata is not None]


def active_gateway() -> str | None:
    """The gateway that commands use by default; None if there is none."""
    path = home.config_dir() / "active"
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptFileError(
            f"{path}: the name of the active gateway cannot be read: {error}",
            hint="Remove the file, and name the gateway in the next command.",
        ) from error


def is_active_gateway(name: str) -> bool:
    """Whether this is the active gateway; False if that cannot be read."""
    try:
        return active_gateway() == name
    except CorruptFileError:
        return False


def has_active_gateway() -> bool:
    """Whether the active gateway is a recorded one; False if its name cannot be read."""
    try:
        name = active_gateway()
        return name is not None and GatewayFiles(name).metadata.exists()
    except (CorruptFileError, InvalidGatewayNameError):
        return False


def use_gateway(name: str) -> None:
    """Make a recorded gateway the active one.

    Raises:
        GatewayNotFoundError: This machine has no record of it.
    """
    check_recorded(name)
    set_active_gateway(name)


def check_recorded(name: str) -> None:
    """Check that this machine has a record of a gateway.

    Raises:
        GatewayNotFoundError: It has none.
    """
    if check_name(name) not in known_gateway_names():
        raise unknown_gateway_error(name)


def unknown_gateway_error(name: str) -> GatewayNotFoundError:
    """The error for a gateway that has no record; its hint suggests a recorded one with a similar name."""
    import difflib

    matches = difflib.get_close_matches(name, known_gateway_names(), n=1)
    suggestion = f"Did you mean {matches[0]!r}? " if matches else ""
    hint = "Run `holdfast list` to see all gateways."
    return GatewayNotFoundError(f"gateway {name}: not found", hint=f"{suggestion}{hint}")


def set_active_gateway(name: str | None) -> None:
    """Make a gateway the default of commands; None for no default."""
    path = home.config_dir() / "active"
    if name is None:
        path.unlink(missing_ok=True)
    else:
        home.write_atomic(path, name + "\n")


def remove_local_files(name: str) -> None:
    """Remove the files of a gateway on this machine; its data on the engine stays."""
    files = GatewayFiles(name)
    # The metadata after the credentials: while it exists, a repeated `destroy` finds engine and host by it.
    files.client_certificates.remove()
    for path in (files.kubeconfig, files.metadata):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        files.directory.rmdir()  # fails if the user keeps files there
    # Last: after a kill before this line, `has_local_files` still reports that there is work to do.
    if is_active_gateway(name):
        others = known_gateway_names()
        set_active_gateway(others[0] if len(others) == 1 else None)


def has_local_files(name: str) -> bool:
    """Whether `remove_local_files` has anything to remove."""
    files = GatewayFiles(name)
    return is_active_gateway(name) or any(
        path.exists() for path in (files.mtls, files.kubeconfig, files.metadata)
    )


def requested_gateway_name(name: str | None) -> str | None:
    """The gateway that the caller names, else the one in HOLDFAST_GATEWAY; None if there is neither.

    Raises:
        InvalidGatewayNameError: The name is not valid.
    """
    if name is not None:
        return check_name(name)
    from_environment = os.environ.get(GATEWAY_VARIABLE, "").strip()
    try:
        return check_name(from_environment) if from_environment else None
    except InvalidGatewayNameError as error:
        raise InvalidGatewayNameError(f"{GATEWAY_VARIABLE}: {error.message}", hint=error.hint) from error


def resolve_gateway_name(name: str | None, *, for_up: bool = False) -> str:
    """The named gateway, else that of HOLDFAST_GATEWAY, else the active one, else the only one.

    Args:
        name: the name that the caller gives.
        for_up: return `default` if this machine has no gateway at all.

    Raises:
        GatewayNotFoundError: None of these exists.
    """
    chosen = requested_gateway_name(name) or active_gateway()
    if chosen is not None:
        return chosen
    known = known_gateway_names()
    if len(known) == 1:
        return known[0]
    if for_up and not known:
        return DEFAULT_GATEWAY_NAME
    hint = "Run `holdfast up` to create one."
    if known:
        hint = f"Run `holdfast use {known[0]}` to make it the active one, or name one of: {', '.join(known)}."
    raise GatewayNotFoundError("gateway: no name given and no gateway active", hint=hint)
