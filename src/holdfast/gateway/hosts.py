"""The host of a gateway: this machine, or a remote one over ssh.

A host knows how to reach its container engine, where the lock of a gateway is, which ports are free, and
under which address its ports are reachable from this machine.
"""

from __future__ import annotations

import stat
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from holdfast.containers import (
    engine_address,
    free_port,
    is_local_address,
    is_port_taken,
    normalize_address,
)
from holdfast.errors import LockLostError, UsageError
from holdfast.gateway.settings import Settings
from holdfast.gateway.spec import LOOPBACK, connect_address
from holdfast.gateway.tunnel import Tunnel, recorded_host
from holdfast.remote import (
    SSH_SCHEME,
    RemoteLock,
    SshHost,
    SshTimeouts,
    connect,
    connect_over_ssh,
    copy_image,
    parse_target,
)
from holdfast.workflow import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.containers import ContainerEngine, ImageView
    from holdfast.gateway.registry import GatewayMetadata
    from holdfast.remote import SshTarget
    from holdfast.workflow import Lock, LockHolder

    CheckImage = Callable[[ImageView], None]
    ReportProgress = Callable[[str, float | None], None]

_LOCK_DIRECTORY, _FALLBACK_LOCK_DIRECTORY = "/run/lock", "/tmp"  # noqa: S108 (where every user of a host may write)


DEFAULT_SETTINGS = Settings()


class LocalHost:
    """This machine, with the engine of DOCKER_HOST or the Docker context.

    Attributes:
        remote: `user@host` of a remote host; empty for this machine.
        tunnel: The tunnel to the gateway's ports; None for this machine.
    """

    remote = ""
    tunnel = None

    def __init__(self, settings: Settings = DEFAULT_SETTINGS) -> None:
        self._settings = settings

    def engine(self) -> ContainerEngine:
        """Connect to the container engine."""
        return connect(timeout=self._settings.timeouts.engine, ssh_timeouts=ssh_timeouts(self._settings))

    def lock(self, name: str) -> Lock:
        """The lock of one gateway, held by the kernel of the host."""
        # Shared (mode 0666): all users of the engine have to exclude each other. The file contains no secret.
        return FileLock(lock_directory() / lock_file_name(name), shared=True)

    def lock_holder(self, name: str) -> LockHolder | None:
        """The process that the gateway's lock file names; takes no lock and records nothing."""
        return self.lock(name).holder()

    @property
    def has_shared_lock(self) -> bool:
        """Whether all machines that can reach the engine use the same lock: only for a local socket."""
        return self._is_local_engine

    def address(self, port: int, listen: str) -> tuple[str, int]:
        """The address of a port of the host, listening on `listen`, from this machine."""
        return connect_address(listen), port

    def is_port_taken(self, port: int, listen: str = LOOPBACK) -> bool:
        """Whether a program on the host is known to listen on a port of this address."""
        return self._is_local_engine and is_port_taken(port, listen)

    def lacks_address(self, listen: str) -> bool:
        """Whether the host is known not to have this address."""
        return self._is_local_engine and not is_local_address(listen)

    @property
    def _is_local_engine(self) -> bool:
        # An engine at tcp:// publishes ports on its own machine, whose listeners cannot be seen from here.
        return engine_address().startswith("unix://")

    def free_port(self, reserved: set[int]) -> int:
        """A port of the host that is neither in use nor reserved."""
        return free_port(reserved=reserved)

    def transfer_image(self, reference: str, check: CheckImage, progress: ReportProgress) -> bool:
        """Copy an image from this machine's engine to the host's.

        Args:
            reference: the image.
            check: raises an error for an unsuitable image before anything is sent.
            progress: receives a message and the completed fraction.

        Returns:
            False if there is nothing to copy.
        """
        del reference, check, progress
        return False


class RemoteHost:
    """A remote host, with the engine of its Docker socket over ssh."""

    has_shared_lock = True

    def __init__(self, name: str, target: SshTarget, settings: Settings = DEFAULT_SETTINGS) -> None:
        self.remote = str(target)
        self._timeouts = settings.timeouts
        self._ssh_timeouts = ssh_timeouts(settings)
        self.tunnel = Tunnel(name, target, self._ssh_timeouts)
        self._target = target
        self._is_started = False
        self._lock: RemoteLock | None = None

    @cached_property
    def _host(self) -> SshHost:
        return SshHost(self._target, self._ssh_timeouts)

    @cached_property
    def _engine(self) -> ContainerEngine:
        return connect_over_ssh(self._host, timeout=self._timeouts.engine, before_call=self._check_lock_held)

    def engine(self) -> ContainerEngine:
        engine = self._engine
        self._record_host()
        return engine

    def _record_host(self) -> None:
        """Record the host of the gateway once its engine has answered and a run has started."""
        # Otherwise a preview or a mistyped host would bind the name of the gateway to that host.
        if self._is_started and "_engine" in self.__dict__:
            self.tunnel.save_if_new()

    def lock(self, name: str) -> Lock:
        self._is_started = True
        self._record_host()
        self._lock = self._remote_lock(name)
        return self._lock

    def lock_holder(self, name: str) -> LockHolder | None:
        return self._remote_lock(name).holder()

    def _remote_lock(self, name: str) -> RemoteLock:
        # Commands on that host and from other machines lock the same file.
        path = f"{self._host.facts().lock_directory}/{lock_file_name(name)}"
        return RemoteLock(
            path,
            self._host.control_master.command_prefix,
            timeout=self._timeouts.ssh,
            label=f"{path} on {self.remote}",
        )

    def _check_lock_held(self) -> None:
        """Raise LockLostError after the lock was lost.

        Without this check, an effect could continue over a new connection while another command has the lock.
        """
        # Step threads call this before each call to the engine. Outside a run, no lock is held.
        if self._lock is None or not self._lock.is_held:
            return
        self._lock.check()
        # The lock's session ends with its connection, but may not have noticed yet.
        if not self._host.control_master.is_process_alive():
            raise LockLostError(f"{self.remote}: lost the connection, and with it the lock")

    def address(self, port: int, listen: str) -> tuple[str, int]:
        del listen  # the tunnel always starts on loopback
        return LOOPBACK, self.tunnel.local_port(port)

    def is_port_taken(self, port: int, listen: str = LOOPBACK) -> bool:
        return any(listener.occupies(port, listen) for listener in self._host.listeners())

    def lacks_address(self, listen: str) -> bool:
        del listen
        return False  # unknown; the engine rejects an address that it does not have

    def free_port(self, reserved: set[int]) -> int:
        taken = {listener.port for listener in self._host.listeners()}
        return free_port(reserved=reserved, is_taken=taken.__contains__)

    def transfer_image(self, reference: str, check: CheckImage, progress: ReportProgress) -> bool:
        # Older engines pack or unpack the whole archive before they answer.
        timeout = self._timeouts.image
        return copy_image(
            lambda: connect(timeout=timeout, ssh_timeouts=self._ssh_timeouts),
            connect_over_ssh(self._host, timeout=timeout, before_call=self._check_lock_held),
            reference,
            check,
            progress,
        )


Host: TypeAlias = LocalHost | RemoteHost


def ssh_timeouts(settings: Settings) -> SshTimeouts:
    """The ssh timeouts and attempts of the settings."""
    return SshTimeouts(total=settings.timeouts.ssh, attempts=settings.attempts.engine_call)


def lock_directory() -> Path:
    """The directory of locks on this machine.

    Its mode decides, so that all users choose the same one. Remote hosts choose by the same rule
    (remote/container_engine.py).
    """
    try:
        mode = Path(_LOCK_DIRECTORY).stat().st_mode
    except OSError:
        mode = 0
    # Without the sticky bit any user could replace the file, and two runs would lock different files.
    is_shared = stat.S_ISDIR(mode) and mode & stat.S_ISVTX and mode & stat.S_IWOTH
    return Path(_LOCK_DIRECTORY if is_shared else _FALLBACK_LOCK_DIRECTORY)


def lock_file_name(name: str) -> str:
    """The lock file of a gateway: by name only, because a host has one container of that name."""
    return f"holdfast-{name}.lock"


def resolve_host(
    name: str,
    *,
    requested: str | None,
    metadata: GatewayMetadata | None,
    settings: Settings = DEFAULT_SETTINGS,
) -> Host:
    """Return the host of a gateway: the recorded one, else the requested one, else that of DOCKER_HOST.

    Raises:
        UsageError: The gateway is recorded on another host than the requested one.
    """
    # Empty means recorded on this machine; None means not recorded at all.
    recorded = metadata.remote if metadata is not None else recorded_host(name)
    wanted = str(parse_target(requested)) if requested is not None else None
    source = "--remote"
    if wanted is None and not recorded and engine_address().startswith(SSH_SCHEME):
        wanted, source = str(parse_target(engine_address())), "DOCKER_HOST or the Docker context"
    if recorded is not None and wanted is not None and wanted != recorded:
        raise UsageError(
            f"gateway {name}: is on {recorded or 'this machine'}, but {source} names {wanted}; "
            "nothing was changed",
            hint="Omit the host to use the existing gateway, choose another name, or destroy the existing "
            "gateway first.",
        )
    remote = wanted if wanted is not None else recorded
    return RemoteHost(name, parse_target(remote), settings) if remote else LocalHost(settings)


def check_same_engine(engine: ContainerEngine, metadata: GatewayMetadata, metadata_path: Path) -> None:
    """Raise UsageError if the gateway was created on another engine.

    Different addresses may lead to the same engine, so its recorded id decides.
    """
    if not metadata.engine or normalize_address(metadata.engine) == normalize_address(engine.address):
        return
    if metadata.engine_id and metadata.engine_id == engine.engine_id:
        return
    raise UsageError(
        f"gateway {metadata.name}: is on the engine at {metadata.engine}, but the current engine is "
        f"{engine.address}; nothing was changed",
        hint="Restore DOCKER_HOST or the Docker context. If that engine no longer exists, remove the record "
        f"of the gateway: {metadata_path}",
    )
