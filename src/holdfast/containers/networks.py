"""Networks of a container engine, and the TCP ports of the machine it runs on."""

from __future__ import annotations

import errno
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.containers.containers import find_container, list_containers
from holdfast.containers.errors import change_if_found, translate_errors
from holdfast.containers.labels import GATEWAY
from holdfast.errors import PortInUseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.containers.client import ContainerEngine

# The range for `auto`: below the ephemeral ports that the kernel assigns to outgoing connections.
AUTO_PORTS = range(26443, 27000)
_TCP_LISTEN = "0A"
_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 (compared, not listened on)


class NetworkView(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a network that holdfast reads."""

    id: str
    name: str
    labels: dict[str, str]


def find_network(engine: ContainerEngine, name: str) -> NetworkView | None:
    """Return the network with exactly this name, or None; the engine itself matches parts of names."""
    with translate_errors(f"inspecting network {name}", engine.address):
        for network in engine.client.networks(names=[name]):
            if network["Name"] == name:
                return NetworkView(id=network["Id"], name=name, labels=network.get("Labels") or {})
    return None


def create_network(engine: ContainerEngine, name: str, *, gateway: str) -> str:
    """Create a bridge network of a gateway; return its ID."""
    with translate_errors(f"creating network {name}", engine.address):
        # Without `check_duplicate`, older engines create a second network with the same name.
        network = engine.client.create_network(
            name, driver="bridge", check_duplicate=True, labels={GATEWAY: gateway}
        )
    return str(network["Id"])


def remove_network(engine: ContainerEngine, name: str) -> bool:
    """Remove a network; return False if it does not exist."""
    network = find_network(engine, name)
    if network is None:
        return False
    return change_if_found(
        engine, f"removing network {name}", lambda: engine.client.remove_network(network.id)
    )


def is_port_taken(port: int, address: str = "127.0.0.1") -> bool:
    """Whether a program on this machine listens on the port of an IPv4 address."""
    with socket.socket() as probe:
        # Ignores closed connections in TIME_WAIT; a listening socket still causes an error.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            # Other errors do not mean a conflict: the engine may publish ports that this user may not use.
            return error.errno == errno.EADDRINUSE
    return False


def is_local_address(address: str) -> bool:
    """Whether this machine can listen on an IPv4 address."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True


def free_port(
    reserved: Iterable[int] = (), is_taken: Callable[[int], bool] = is_port_taken, ports: range = AUTO_PORTS
) -> int:
    """Return the first port of a range that is neither in use (by default, on this machine) nor reserved.

    Raises:
        PortInUseError: all ports of the range are taken.
    """
    taken = set(reserved)
    for port in ports:
        if port not in taken and not is_taken(port):
            return port
    raise PortInUseError(f"ports {ports[0]} to {ports[-1]}: none is free", hint="Choose a port with --port.")


def reserved_ports(engine: ContainerEngine) -> set[int]:
    """Return the ports of all gateways of the engine: a stopped one needs its ports when it starts."""
    ports: set[int] = set()
    for listed in list_containers(engine, label=GATEWAY):
        container = find_container(engine, listed["Id"])
        if container is not None:
            ports |= {port for _, port in container.ports.values()}
    return ports


def port_owner(engine: ContainerEngine, port: int) -> str:
    """Describe what listens on a port: a container, a process, or "another program"."""
    with translate_errors("listing containers", engine.address):
        for container in engine.client.containers():
            if any(published.get("PublicPort") == port for published in container.get("Ports") or ()):
                return f"container {container['Names'][0].lstrip('/')}"
    return listening_process(port) or "another program"


def listening_process(port: int) -> str | None:
    """Describe the process that listens on a port; None if there is none that this user can see."""
    inodes = _listening_inodes(port)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    match = re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink()))
                    if match and match[1] in inodes:
                        return f"process {process.name} ({(process / 'comm').read_text().strip()})"
    return None


class ListeningSocket(NamedTuple):
    """A listening TCP socket."""

    address: str
    port: int

    def occupies(self, port: int, address: str) -> bool:
        """Whether another program cannot listen on the port of this IPv4 address."""
        return port == self.port and (address in _ALL_ADDRESSES or self.address in (*_ALL_ADDRESSES, address))


def parse_listeners(table: str) -> dict[str, ListeningSocket]:
    """Return the listening sockets in the content of /proc/net/tcp and tcp6, by inode."""
    # Columns from 0: 1 is the local address in hexadecimal, 3 the state, 9 the inode.
    rows = (line.split() for line in table.splitlines())
    return {row[9]: _parse_listener(row[1]) for row in rows if row[3:4] == [_TCP_LISTEN]}


def _parse_listener(text: str) -> ListeningSocket:
    address, _, port = text.rpartition(":")
    # Each group of 4 bytes is a little-endian number.
    words = [bytes.fromhex(address[start : start + 8])[::-1] for start in range(0, len(address), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return ListeningSocket(socket.inet_ntop(family, b"".join(words)).removeprefix("::ffff:"), int(port, 16))


def _listening_inodes(port: int) -> set[str]:
    listeners: dict[str, ListeningSocket] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            listeners |= parse_listeners(Path(table).read_text())
    return {inode for inode, listener in listeners.items() if listener.port == port}
