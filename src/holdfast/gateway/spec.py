"""What a gateway is asked to be, and what is remembered of it between commands.

The spec is what a user wants; the metadata on disk is how the CLI finds the gateway again without asking
the engine. Not here: what the engine says of it (observation.py).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from holdfast import __version__, home
from holdfast.errors import DamagedFileError, UnknownGatewayError
from holdfast.gateway.identity import check_name
from holdfast.pki.client_files import ClientFiles

if TYPE_CHECKING:
    from pathlib import Path

LOOPBACK = "127.0.0.1"
_ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 (compared with, never listened on)
DEFAULT_NAME = "default"


def met_at(listen: str) -> str:
    """Where a port is met on its own host: on loopback, unless it was opened on one address alone."""
    return LOOPBACK if listen in _ANY_ADDRESS else listen


def url_of(host: str, port: int) -> str:
    """The address of an API there."""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


class GatewaySpec(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway as its user wants it; `gateway_port` leads to its own API, `port` to Kubernetes."""

    name: str
    image: str
    port: int
    gateway_port: int
    listen: str = LOOPBACK
    api_names: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a gateway on this machine; never a secret."""

    name: str
    image: str
    port: int
    gateway_port: int = 0
    listen: str = LOOPBACK
    api_names: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
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
            return url_of(LOOPBACK, self.tunnel_port)
        return url_of(met_at(self.listen), self.port)


class GatewayFiles:
    """The files of one gateway below the configuration directory."""

    def __init__(self, name: str) -> None:
        self.folder = home.config_dir() / "gateways" / check_name(name)
        self.metadata = self.folder / "metadata.json"
        self.kubeconfig = self.folder / "kubeconfig"
        self.mtls = self.folder / "mtls"
        self.state = home.state_dir() / "gateways" / name / "state.db"


def read_metadata(name: str) -> Metadata | None:
    """What is remembered of a gateway, or None when nothing is."""
    path = GatewayFiles(name).metadata
    try:
        return msgspec.json.decode(path.read_bytes(), type=Metadata)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise DamagedFileError(
            f"{path} cannot be read: {error}",
            hint=f"Remove it and run `holdfast up {name}` again: it is written anew from the engine.",
        ) from error


def write_metadata(metadata: Metadata) -> None:
    """Remember a gateway."""
    home.write_atomic(
        GatewayFiles(metadata.name).metadata, msgspec.json.format(msgspec.json.encode(metadata), indent=2)
    )


def known_names() -> list[str]:
    """The names of all gateways that are remembered here, whether or not that can be read."""
    root = home.config_dir() / "gateways"
    return sorted(path.parent.name for path in root.glob("*/metadata.json"))


def known_gateways() -> list[Metadata]:
    """What is remembered of each gateway, by name; one that cannot be read stands in no other one's way."""
    found = []
    for name in known_names():
        with suppress(DamagedFileError):
            found.append(read_metadata(name))
    return [metadata for metadata in found if metadata is not None]


def active_name() -> str | None:
    """The gateway that commands mean when they name none."""
    path = home.config_dir() / "active"
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFileError(
            f"{path}, which names the active gateway, cannot be read: {error}",
            hint="Name the gateway, or remove the file; `holdfast up NAME` writes it anew.",
        ) from error


def is_active(name: str) -> bool:
    """Whether commands that name no gateway mean this one; a file that cannot be read means none."""
    try:
        return active_name() == name
    except DamagedFileError:
        return False


def set_active(name: str | None) -> None:
    """Make a gateway the one that commands mean when they name none."""
    path = home.config_dir() / "active"
    if name is None:
        path.unlink(missing_ok=True)
    else:
        home.write_atomic(path, name + "\n")


def forget(name: str) -> None:
    """Remove what is remembered of a gateway; its data on the engine is not touched."""
    files = GatewayFiles(name)
    ClientFiles(files.mtls).remove()
    for path in (files.kubeconfig, files.metadata):
        path.unlink(missing_ok=True)
    _remove_if_empty(files.folder)
    if is_active(name):
        others = known_names()
        set_active(others[0] if len(others) == 1 else None)


def is_remembered(name: str) -> bool:
    """Whether anything is left that `forget` removes."""
    files = GatewayFiles(name)
    return is_active(name) or any(path.exists() for path in (files.mtls, files.kubeconfig, files.metadata))


def resolve_name(given: str | None, *, for_up: bool = False) -> str:
    """The gateway that is meant: the named one, else the active one, else (for `up`) the default."""
    if given is not None:
        return check_name(given)
    active = active_name()
    if active is not None:
        return active
    if for_up:
        return DEFAULT_NAME
    known = known_names()
    if len(known) == 1:
        return known[0]
    hint = f"Name one: {', '.join(known)}." if known else "Bring one up first: holdfast up"
    raise UnknownGatewayError("no gateway is named and none is active", hint=hint)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
