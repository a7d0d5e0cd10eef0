"""Ports of the engine's host: find a free one, and say who holds one that is taken.

Only for an engine on this machine; the ports of a remote host are that host's to say.
"""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.containers.containers import find_container, list_containers
from holdfast.containers.labels import GATEWAY
from holdfast.containers.translation import translated
from holdfast.errors import PortTakenError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.containers.engine import Engine

FIRST_PORT, LAST_PORT = 26443, 26999
"""Where `auto` looks: below the range from which the kernel lends ports to outgoing connections."""


def free_port(*, reserved: Iterable[int] = ()) -> int:
    """The first port of our range that nobody listens on and no stopped gateway counts on."""
    taken = set(reserved)
    for port in range(FIRST_PORT, LAST_PORT + 1):
        if port not in taken and not is_taken(port):
            return port
    raise PortTakenError(
        f"no free port between {FIRST_PORT} and {LAST_PORT}", hint="Name one yourself with --port."
    )


def is_taken(port: int, address: str = "127.0.0.1") -> bool:
    """Whether something on this machine listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return True
    return False


def reserved_ports(engine: Engine) -> set[int]:
    """Ports that our own containers count on, stopped ones included; whoever else runs is seen listening."""
    found: set[int] = set()
    for listed in list_containers(engine, label=GATEWAY):
        container = find_container(engine, listed["Id"])
        if container is not None:
            found |= {port for _, port in container.ports.values()}
    return found


def holder_of(engine: Engine, port: int) -> str:
    """Who listens on a port, in words: a container, a process, or nobody we can see."""
    with translated("listing containers", engine.address):
        for container in engine.client.containers():
            if any(place.get("PublicPort") == port for place in container.get("Ports") or ()):
                return f"container {container['Names'][0].lstrip('/')}"
    return _listening_process(port) or "another program"


def _listening_process(port: int) -> str | None:
    inodes = _listening_inodes(port)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for handle in (process / "fd").iterdir():
                with suppress(OSError):
                    match = re.fullmatch(r"socket:\[(\d+)\]", str(handle.readlink()))
                    if match and match[1] in inodes:
                        name = (process / "comm").read_text().strip()
                        return f"process {process.name} ({name})"
    return None


def _listening_inodes(port: int) -> set[str]:
    listening = "0A"
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == listening and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found
