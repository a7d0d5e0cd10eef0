"""The way to the ports of a gateway on another host: a tunnel that outlives the command that opened it.

It is an ssh connection of its own in the background, with one local port for each port over there, on
loopback alone. Local ports are remembered, so that a kubeconfig stays good. Not here: when it is opened
(steps/tunnel.py, remote.py).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from holdfast import home
from holdfast.containers.ports import free_port, is_taken
from holdfast.containers.ssh_master import USUAL, Patience, SshMaster
from holdfast.errors import HostUnreachableError, PortTakenError
from holdfast.gateway.spec import LOOPBACK, known_gateways, met_at

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from holdfast.containers.ssh import SshTarget

_FILE = "tunnel.json"
_OTHER_PORTS = 5


class TunnelState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is remembered: the host, the local port of each port there, where they lead, which process."""

    remote: str
    ports: dict[int, int] = {}
    ends: dict[int, str] = {}
    pid: int = 0
    since: str = ""


class Tunnel:
    """The tunnel of one gateway."""

    def __init__(self, name: str, target: SshTarget, patience: Patience = USUAL) -> None:
        self.target = target
        self.file = _file(name)
        self.master = SshMaster(target, f"tunnel of {name}", persist="yes", patience=patience)
        state = _read(self.file)
        same = state is not None and state.remote == str(target)
        self.state = state if state is not None and same else TunnelState(remote=str(target))
        self.was_open = False
        """Whether it was seen open by this command; one that is down after that was cut."""
        self.was_cut = False
        """Whether it had to be opened again after that; for whoever judges by it to set back."""

    def local_port(self, port: int) -> int:
        """The port here that leads, or will lead, to a port there; the same one every time."""
        if port not in self.state.ports:
            self._choose(port, avoid=())
        return self.state.ports[port]

    def remember(self) -> None:
        """Write down where the gateway is being made: a first `up` that fails half-way is found again."""
        if not self.file.exists():
            self._write(self.state)

    def is_open(self, ports: Iterable[int], listen: str) -> bool:
        """Whether it is there, answers, and leads to just these ports."""
        is_open = self.state.ends == _ends(ports, listen) and self._is_ours() and self.master.is_up()
        self.was_open = self.was_open or is_open
        return is_open

    def has_gone(self) -> bool:
        """Whether its process is over; asks nobody else, so that a slow line is no line that is cut."""
        return not self._is_ours()

    def open(self, ports: Iterable[int], listen: str) -> bool:
        """Open it, or replace one that is dead, hangs or leads elsewhere; False when it was fine."""
        wanted = tuple(ports)
        with self.master.alone("opening"):
            self.state = _read(self.file) or self.state
            if self.is_open(wanted, listen):
                return False
            had_gone = self.has_gone()
            self.master.close()
            self.master.ensure()
            ends = _ends(wanted, listen)
            for port, end in ends.items():
                self._lead(port, end)
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            kept = {port: self.state.ports[port] for port in wanted}
            self._write(
                TunnelState(
                    remote=str(self.target), ports=kept, ends=ends, pid=self.master.pid(), since=since
                )
            )
            self.was_cut = self.was_cut or (self.was_open and had_gone)
            self.was_open = True
        return True

    def close(self) -> bool:
        """Close it; its local ports stay remembered. False when there was none."""
        self.was_open = self.was_cut = False
        was_there = self.master.close()
        if self.file.exists():
            self._write(msgspec.structs.replace(self.state, ends={}, pid=0, since=""))
        return was_there

    def forget(self) -> None:
        """Close it, and remember nothing."""
        self.was_open = self.was_cut = False
        self.master.close()
        self.file.unlink(missing_ok=True)

    def words(self) -> str:
        """How it is, for people; only asks the process on this machine."""
        if not self._is_ours():
            return "down"
        return f"up since {self.state.since.replace('T', ' ').removesuffix('Z')}"

    def _is_ours(self) -> bool:
        """Whether the process that runs is the one that was given these ports."""
        return self.state.pid != 0 and self.master.pid() == self.state.pid

    def _lead(self, port: int, end: str) -> None:
        """Open one local port; when another program has it by now, another one is taken and remembered."""
        tried: list[int] = []
        for _ in range(_OTHER_PORTS):
            local = self.local_port(port)
            if self.master.forward(f"{LOOPBACK}:{local}", end):
                return
            if not self.master.pid():
                raise HostUnreachableError(
                    f"the ssh connection to {self.target} ended while the tunnel was opened",
                    hint="Run the same command again.",
                )
            tried.append(local)
            self._choose(port, avoid=tried)
        raise PortTakenError(
            f"no port on this machine could be opened for the tunnel to {self.target}: {self.master.said()}",
            hint="See that sshd over there has AllowTcpForwarding, and that ports are free here.",
        )

    def _choose(self, port: int, avoid: Iterable[int]) -> None:
        """The same number as over there where it is free, else another of our range."""
        reserved = {*_counted_on(self.file), *self.state.ports.values(), *avoid}
        usable = port not in reserved and not is_taken(port)
        local = port if usable else free_port(reserved=reserved)
        self.state = msgspec.structs.replace(self.state, ports={**self.state.ports, port: local})

    def _write(self, state: TunnelState) -> None:
        self.state = state
        home.write_atomic(self.file, msgspec.json.encode(state))


def begun_on(name: str) -> str | None:
    """The host that a gateway was begun on and never finished; None where nothing was begun."""
    state = _read(_file(name))
    return state.remote if state is not None else None


def _file(name: str) -> Path:
    return home.state_dir() / "gateways" / name / _FILE


def _read(path: Path) -> TunnelState | None:
    """What is remembered; a damaged file only costs the same local ports."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=TunnelState)
    except (OSError, msgspec.MsgspecError):
        return None


def _ends(ports: Iterable[int], listen: str) -> dict[int, str]:
    """Where each port is met over there: on loopback, unless it was opened on one address alone."""
    host = met_at(listen)
    host = f"[{host}]" if ":" in host else host
    return {port: f"{host}:{port}" for port in ports}


def _counted_on(own: Path) -> set[int]:
    """Local ports that gateways of this machine and other tunnels count on, also while they are stopped."""
    found: set[int] = set()
    for gateway in known_gateways():
        if not gateway.remote:
            found |= {gateway.port, gateway.gateway_port}
    for path in own.parent.parent.glob(f"*/{_FILE}"):
        state = _read(path) if path != own else None
        if state is not None:
            found |= set(state.ports.values())
    return found
