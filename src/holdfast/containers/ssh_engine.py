"""The container engine of a host that is reached by ssh: its socket, brought here through one connection.

Nothing but sshd and the engine's socket is needed over there. A connection that was cut is made again at the
next call. Not here: ports of gateways (the gateway floor's tunnel).
"""

from __future__ import annotations

import math
import shlex
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers.engine import Engine
from holdfast.containers.ssh import SCHEME, SshTarget
from holdfast.containers.ssh_master import USUAL, Patience, SshMaster
from holdfast.containers.translation import translated
from holdfast.errors import EnginePermissionError, EngineUnreachableError, HostUnusableError

if TYPE_CHECKING:
    from collections.abc import Callable

_PERSIST = "60"
"""Seconds that the connection outlives a command, so that the next one finds it."""

_MARK = "holdfast:"
_LOOK = f"""
d=${{DOCKER_HOST:-unix:///var/run/docker.sock}}; s=${{d#unix://}}; e=ok
[ -w "$s" ] || e=denied; [ -S "$s" ] || e=missing
l=/tmp; case $(ls -ld /run/lock/ 2>/dev/null) in d???????w[tT]*) l=/run/lock;; esac
printf '{_MARK}%s\\n' "$d" "$e" "$l" "$(id -un)"
"""


class HostFacts(msgspec.Struct, frozen=True):
    """What a host says of itself: the engine's address, whether it may be used, where locks are, the user."""

    engine: str
    state: str
    lock_folder: str
    user: str


class SshHost:
    """A host with a container engine; connects on first use."""

    def __init__(self, target: SshTarget, patience: Patience = USUAL) -> None:
        self.target = target
        self.master = SshMaster(target, "engine", persist=_PERSIST, patience=patience)
        self.socket = self.master.folder / "engine.sock"
        self._facts: HostFacts | None = None

    def facts(self) -> HostFacts:
        """Connect where needed, and ask the host once."""
        if self._facts is None or not self.master.is_alive():
            self.master.ensure()
            self._facts = _read(self.target, self.master.run(f"sh -c {shlex.quote(_LOOK)}"))
        return self._facts

    def reach(self) -> str:
        """Bring the engine's socket here and return its address on this machine."""
        facts = self.facts()
        path = facts.engine.removeprefix("unix://")
        self._refuse(facts, path)
        if not self.master.forward(str(self.socket), path):
            raise HostUnusableError(
                f"the engine's socket of {self.target} cannot be brought here: {self.master.said().strip()}"
            )
        return f"unix://{self.socket}"

    def listening_ports(self) -> set[int]:
        """The TCP ports that something listens on over there, as far as the host tells."""
        self.facts()
        return listening_in(self.master.run("cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; exit 0"))

    def _refuse(self, facts: HostFacts, path: str) -> None:
        if not facts.engine.startswith("unix://"):
            raise HostUnusableError(
                f"DOCKER_HOST is set to {facts.engine} on {self.target}, and only a socket can be reached",
                hint="Unset it over there, or set it to unix:///path/of/the/docker.sock.",
            )
        if facts.state == "missing":
            raise EngineUnreachableError(
                f"there is no container engine on {self.target}: {path} is not there",
                hint="Install or start Docker over there (`sudo systemctl start docker`).",
            )
        if facts.state == "denied":
            raise EnginePermissionError(
                f"the user {facts.user} may not use the container engine of {self.target}",
                hint=f"Join its group over there: sudo usermod -aG docker {facts.user}",
            )


class SshEngine(Engine):
    """An engine behind an ssh connection that may be cut at any time.

    `guard` is asked before each call, and raises where none may be made any more: a connection that is made
    again carries on for whoever calls, also for one whose lock went with the old connection.
    """

    def __init__(self, host: SshHost, *, timeout: float, guard: Callable[[], None] = lambda: None) -> None:
        super().__init__(None, f"{SCHEME}{host.target}")
        self.host = host
        self._timeout = timeout
        self._guard = guard

    @property
    def client(self) -> Any:
        """The SDK's client; before each call the connection is made again if it is gone."""
        self._guard()
        sdk = self._sdk
        if not self.host.master.is_alive():
            self.host.reach()
            self._guard()
        return sdk

    @cached_property
    def _sdk(self) -> Any:
        import docker

        address = self.host.reach()
        try:
            with translated("reaching the container engine", self.address):
                return docker.APIClient(base_url=address, version="auto", timeout=math.ceil(self._timeout))
        except EngineUnreachableError as error:
            if "prohibited" in self.host.master.said():
                raise HostUnusableError(
                    f"sshd on {self.host.target} does not let connections through to the engine's socket",
                    hint="Allow AllowStreamLocalForwarding and AllowTcpForwarding in its sshd_config.",
                ) from error
            raise


def connect_by_ssh(host: SshHost, *, timeout: float, guard: Callable[[], None] = lambda: None) -> SshEngine:
    """Reach the engine of a host and ask it to answer."""
    engine = SshEngine(host, timeout=timeout, guard=guard)
    _ = engine.client
    return engine


def listening_in(table: str) -> set[int]:
    """The ports with a listener in the kernel's own table of TCP sockets."""
    listening = "0A"
    rows = (line.split() for line in table.splitlines())
    return {
        int(row[1].rpartition(":")[2], 16)
        for row in rows
        if len(row) > 3 and row[3] == listening  # noqa: PLR2004
    }


def _read(target: SshTarget, said: str) -> HostFacts:
    """The marked lines alone: a shell may greet before it works."""
    marked = [line.removeprefix(_MARK) for line in said.splitlines() if line.startswith(_MARK)]
    if len(marked) != len(HostFacts.__struct_fields__):
        raise HostUnusableError(
            f"{target} does not run a plain shell command: {said.strip()[:200] or 'it printed nothing'}",
            hint=f"See what this prints: ssh {target.destination} id",
        )
    return HostFacts(*marked)
