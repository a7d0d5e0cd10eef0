"""The gateways that are recorded on this machine: their metadata, their files, and the active one.

With the metadata a command finds a gateway without asking the container engine.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from holdfast import __version__, home
from holdfast.errors import CorruptFileError, GatewayNotFoundError
from holdfast.gateway.spec import LOOPBACK, GatewaySpec, check_name, connect_address, https_url
from holdfast.pki import ClientCertificateStore

DEFAULT_GATEWAY_NAME = "default"


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


def resolve_gateway_name(name: str | None, *, for_up: bool = False) -> str:
    """The named gateway, else the active one, else the only one; for `up`, else `default`.

    Raises:
        GatewayNotFoundError: None of these exists.
    """
    if name is not None:
        return check_name(name)
    active = active_gateway()
    if active is not None:
        return active
    if for_up:
        return DEFAULT_GATEWAY_NAME
    known = known_gateway_names()
    if len(known) == 1:
        return known[0]
    hint = f"Pass one of these names: {', '.join(known)}." if known else "Run `holdfast up` to create one."
    raise GatewayNotFoundError("gateway: no name given and no gateway active", hint=hint)
