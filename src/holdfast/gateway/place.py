"""Where a gateway lives: on this machine's engine, or on another host's.

A place knows how to reach the engine, where the lock of a gateway is held, which ports are free over there,
and under which address they are reached from here. Everything else about a gateway is the same everywhere.
"""

from __future__ import annotations

import stat
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from holdfast.containers.engine import engine_address, plain_address
from holdfast.containers.ports import FIRST_PORT, LAST_PORT, free_port, is_taken
from holdfast.containers.ssh import SCHEME, parse_target
from holdfast.errors import LockLostError, PortTakenError, UsageError
from holdfast.gateway.settings_model import Settings
from holdfast.gateway.spec import LOOPBACK, met_at
from holdfast.gateway.tunnel import Tunnel, begun_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.containers.engine import Engine
    from holdfast.containers.images import ImageView
    from holdfast.containers.ssh import SshTarget
    from holdfast.containers.ssh_engine import SshHost
    from holdfast.containers.ssh_master import Patience
    from holdfast.engine import CommandLock, Lock
    from holdfast.gateway.spec import Metadata

_LOCK_FOLDER, _OTHER_LOCK_FOLDER = "/run/lock", "/tmp"  # noqa: S108 (where every user of a host may write)


DEFAULTS = Settings()


class Place(Protocol):
    """The host of a gateway, as far as commands care."""

    @property
    def remote(self) -> str:
        """`user@host`, or nothing for this machine."""

    @property
    def tunnel(self) -> Tunnel | None:
        """The way to the gateway's ports, where they are not this machine's own."""

    def engine(self) -> Engine:
        """Reach the container engine there."""

    def lock(self, name: str) -> Lock:
        """The lock of one gateway, held by the kernel of that host."""

    @property
    def locks_for_all(self) -> bool:
        """Whether all machines that can reach the engine meet the same lock."""

    def address(self, port: int, listen: str) -> tuple[str, int]:
        """Where a port of that host, opened on the address `listen`, is reached from here."""

    def is_taken(self, port: int) -> bool:
        """Whether something over there listens on a port, as far as it can be known."""

    def free_port(self, reserved: set[int]) -> int:
        """A port over there that nobody has and nobody counts on."""

    def supply_image(
        self,
        reference: str,
        check: Callable[[ImageView], None],
        progress: Callable[[str, float | None], None],
    ) -> bool:
        """Bring an image of this machine's engine to the engine there; False when there is none to bring.

        `check` refuses one that is of no use over there, before anything is sent.
        """


class Here:
    """This machine, with the engine that DOCKER_HOST or the Docker context names."""

    remote = ""
    tunnel = None

    def __init__(self, settings: Settings = DEFAULTS) -> None:
        self._settings = settings

    def engine(self) -> Engine:
        from holdfast.containers.engine import connect

        return connect(timeout=self._settings.timeouts.engine, patience=patience_of(self._settings))

    def lock(self, name: str) -> Lock:
        from holdfast.engine import FileLock

        return FileLock(lock_folder() / lock_file(name), shared=True)

    @property
    def locks_for_all(self) -> bool:
        """A socket is this machine's own; an engine on the network may have other users, elsewhere."""
        return engine_address().startswith("unix://")

    def address(self, port: int, listen: str) -> tuple[str, int]:
        return met_at(listen), port

    def is_taken(self, port: int) -> bool:
        return engine_address().startswith("unix://") and is_taken(port)

    def free_port(self, reserved: set[int]) -> int:
        return free_port(reserved=reserved)

    def supply_image(
        self,
        reference: str,
        check: Callable[[ImageView], None],
        progress: Callable[[str, float | None], None],
    ) -> bool:
        """The engine here is the one that has no such image."""
        del reference, check, progress
        return False


class There:
    """Another host, with the engine that its own socket leads to, through ssh."""

    locks_for_all = True

    def __init__(self, name: str, target: SshTarget, settings: Settings = DEFAULTS) -> None:
        self.remote = str(target)
        self._timeouts = settings.timeouts
        self._patience = patience_of(settings)
        self.tunnel = Tunnel(name, target, self._patience)
        self._target = target
        self._at_work = False
        self._lock: CommandLock | None = None

    @cached_property
    def _host(self) -> SshHost:
        from holdfast.containers.ssh_engine import SshHost

        return SshHost(self._target, self._patience)

    @cached_property
    def _engine(self) -> Engine:
        from holdfast.containers.ssh_engine import connect_by_ssh

        return connect_by_ssh(self._host, timeout=self._timeouts.engine, guard=self._refuse_without_lock)

    def engine(self) -> Engine:
        found = self._engine
        self._remember()
        return found

    def _remember(self) -> None:
        """A host whose engine answers, and where work has begun, is where the gateway is from now on."""
        if self._at_work and "_engine" in self.__dict__:
            self.tunnel.remember()

    def lock(self, name: str) -> Lock:
        from holdfast.engine import CommandLock

        self._at_work = True
        self._remember()
        path = f"{self._host.facts().lock_folder}/{lock_file(name)}"
        self._lock = CommandLock(
            path, self._host.master.prefix, timeout=self._timeouts.ssh, where=f"{path} on {self.remote}"
        )
        return self._lock

    def _refuse_without_lock(self) -> None:
        """Whoever took the lock makes no call without it: not over a new connection in an effect's middle."""
        if self._lock is None or not self._lock.held:
            return
        self._lock.check()
        if not self._host.master.is_alive():  # its session ends with it, and may not have noticed yet
            raise LockLostError(
                f"the connection to {self.remote} was cut, and the lock over there went with it"
            )

    def address(self, port: int, listen: str) -> tuple[str, int]:
        del listen  # the tunnel ends there, and begins on loopback
        return LOOPBACK, self.tunnel.local_port(port)

    def is_taken(self, port: int) -> bool:
        return port in self._host.listening_ports()

    def free_port(self, reserved: set[int]) -> int:
        taken = reserved | self._host.listening_ports()
        for port in range(FIRST_PORT, LAST_PORT + 1):
            if port not in taken:
                return port
        raise PortTakenError(
            f"no free port between {FIRST_PORT} and {LAST_PORT} on {self.remote}",
            hint="Name one yourself with --port.",
        )

    def supply_image(
        self,
        reference: str,
        check: Callable[[ImageView], None],
        progress: Callable[[str, float | None], None],
    ) -> bool:
        from holdfast.containers.engine import connect
        from holdfast.containers.ssh_engine import connect_by_ssh
        from holdfast.gateway.remote_image import bring_image

        # Older engines lay out, or unpack, a whole archive before they answer.
        silence = self._timeouts.image
        there = connect_by_ssh(self._host, timeout=silence, guard=self._refuse_without_lock)
        return bring_image(
            lambda: connect(timeout=silence, patience=self._patience), there, reference, check, progress
        )


def patience_of(settings: Settings) -> Patience:
    """How long and how often it is tried to reach a host by ssh."""
    from holdfast.containers.ssh_master import Patience

    return Patience(seconds=settings.timeouts.ssh, attempts=settings.attempts.engine_call)


def lock_folder() -> Path:
    """The folder where all users of this host meet: by its own mode, so that each of them chooses the same.

    The same choice is made over there by a host that is reached by ssh (containers/ssh_engine.py).
    """
    try:
        mode = Path(_LOCK_FOLDER).stat().st_mode
    except OSError:
        mode = 0
    for_all = stat.S_ISDIR(mode) and mode & stat.S_ISVTX and mode & stat.S_IWOTH
    return Path(_LOCK_FOLDER if for_all else _OTHER_LOCK_FOLDER)


def lock_file(name: str) -> str:
    """The lock of a gateway: by its name alone, for a host has one container of that name."""
    return f"holdfast-{name}.lock"


def place_of(
    name: str, *, asked: str | None, remembered: Metadata | None, settings: Settings = DEFAULTS
) -> Place:
    """Where it is remembered to be; for a new one where it was asked for; else where DOCKER_HOST points."""
    known = remembered.remote if remembered is not None else begun_on(name)
    wanted = str(parse_target(asked)) if asked is not None else None
    source = "--remote"
    if wanted is None and not known and engine_address().startswith(SCHEME):
        wanted, source = str(parse_target(engine_address())), "DOCKER_HOST or the Docker context"
    if known is not None and wanted is not None and wanted != known:
        raise UsageError(
            f"gateway {name} lives on {known or 'this machine'}, and {source} names {wanted}; "
            "nothing was changed",
            hint=f"Leave it out to go on with the gateway where it is, choose another name, or take it away "
            f"first: holdfast destroy {name}",
        )
    remote = wanted if wanted is not None else known
    return There(name, parse_target(remote), settings) if remote else Here(settings)


def refuse_other_engine(found: Engine, remembered: Metadata, file: Path) -> None:
    """Stop before anything is made or removed on an engine that the gateway does not live on.

    Another address may lead to the same engine; what that calls itself decides, where it was written down.
    """
    if not remembered.engine or plain_address(remembered.engine) == plain_address(found.address):
        return
    if remembered.engine_id and remembered.engine_id == found.identity:
        return
    raise UsageError(
        f"gateway {remembered.name} lives on the engine at {remembered.engine}, and the engine in use is "
        f"another, at {found.address}; nothing was changed",
        hint="Set DOCKER_HOST or the Docker context back. If that engine is gone for good, remove what is "
        f"remembered of it: {file}",
    )
