"""Locks that prevent parallel runs: `FileLock` on the host where the work happens, and process identity.

`holdfast.remote.RemoteLock` takes the same lock file on another host.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.errors import LockedError, LockLostError, StoreError, StoreFullError
from holdfast.home import NO_SPACE_ERRNOS

# Index of `starttime` in /proc/PID/stat, counted after the command name.
_START_TIME_FIELD = 19


def _boot_id() -> str:
    """Return the id of the current boot; empty if the system does not provide it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_start_ticks(pid: int) -> int | None:
    """Return the start time of a process in ticks since boot.

    0 means that it is unknown; None that the process does not exist or is a zombie.
    """
    try:
        with suppress(PermissionError):  # it exists and belongs to another user
            os.kill(pid, 0)
        # The command name may contain anything, including a closing parenthesis.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] == b"Z" else int(fields[_START_TIME_FIELD])
    except ProcessLookupError:
        return None
    except (OSError, ValueError, IndexError, OverflowError):
        return 0


_MAX_HOLDER_BYTES = 4096


class LockHolder(msgspec.Struct, frozen=True, omit_defaults=True):
    """The process that holds a lock, as it is written into the lock file.

    `boot_seconds` is the age of the boot when the lock was taken. `start_ticks` is the start time of the
    process in ticks since boot: with `pid` and `boot` it identifies the process after a pid is reused.
    """

    pid: int
    host: str
    command: str = ""
    run: str = ""
    since: float = 0.0
    boot: str = ""
    boot_seconds: float = 0.0
    start_ticks: int = 0

    @classmethod
    def current_process(cls, command: str = "", run: str = "") -> LockHolder:
        """Return this process as a holder, since now."""
        pid, boot_seconds = os.getpid(), time.clock_gettime(time.CLOCK_BOOTTIME)
        ticks = process_start_ticks(pid) or 0
        return cls(pid, socket.gethostname(), command, run, time.time(), _boot_id(), boot_seconds, ticks)

    def is_alive(self) -> bool:
        """Report whether the process exists; on another host it counts as alive."""
        if self.host != socket.gethostname():
            return True
        # After a reboot the process is gone, even if its pid is in use again.
        if self.boot and _boot_id() not in {self.boot, ""}:
            return False
        ticks = process_start_ticks(self.pid)
        # Another start time: the kernel has given the pid to another process.
        return ticks is not None and (ticks == self.start_ticks or 0 in {ticks, self.start_ticks})

    def age_seconds(self) -> float:
        """Return how long the lock has been held; during one boot, independent of clock changes."""
        if self.boot_seconds and self.boot == _boot_id():
            return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - self.boot_seconds)
        return max(0.0, time.time() - self.since)

    def describe(self) -> str:
        """Describe process, command and age for an error message."""
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        command = f" ({self.command})" if self.command else ""
        return f"process {self.pid} on {self.host}{command}, for {self.age_seconds():.0f} s, since {since}"


class Lock(Protocol):
    """Prevents parallel runs. A run never waits for a lock: it fails and names the holder."""

    def acquire(self, holder: LockHolder) -> None:
        """Take the lock, or raise `LockedError` with its holder."""

    def check(self) -> None:
        """Raise `LockLostError` unless the lock is still held; called before every effect."""

    def holder(self) -> LockHolder | None:
        """Return the holder; None if it is unknown."""

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""


class NoLock:
    """No lock, for workflows that are never run in parallel. `Lock` describes the methods."""

    def acquire(self, holder: LockHolder) -> None:
        pass

    def check(self) -> None:
        pass

    def holder(self) -> LockHolder | None:
        return None

    def release(self) -> None:
        pass


class FileLock:
    """A lock by `flock` on a file; the kernel releases it when the process ends. Forks do not share it.

    `Lock` describes the methods.

    Args:
        path: the lock file; created if it does not exist.
        shared: let all users of the host take the lock and read its holder.

    Raises:
        StoreError: the file cannot be opened or written; raised by `acquire`.
    """

    def __init__(self, path: str | os.PathLike[str], *, shared: bool = False) -> None:
        self.path = Path(path)
        self._mode = 0o666 if shared else 0o600
        self._fd: int | None = None

    def acquire(self, holder: LockHolder) -> None:
        if self._fd is not None:
            raise LockedError(f"this process already holds the lock {self.path}")
        while self._fd is None:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # If the file was replaced between opening and locking, this lock protects nothing.
                if _is_same_file(fd, self.path):
                    self._fd = fd
            except OSError as error:
                if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                    raise StoreError(
                        f"the lock {self.path} cannot be taken: {error.strerror}", cause=error
                    ) from error
                raise locked_error(self.holder(), str(self.path)) from None
            finally:
                if self._fd is None:
                    os.close(fd)
        _held_locks.add(self)
        # Until this write, the file is empty or still names a holder that was killed.
        self._write_holder(self._fd, msgspec.json.encode(holder))

    def check(self) -> None:
        if self._fd is None:
            raise LockLostError(f"the lock {self.path} is not held")
        # Another run can create and lock a new file at this path: the lock on the old file has no effect.
        if not _is_same_file(self._fd, self.path):
            raise LockLostError(
                f"the lock {self.path} was removed or replaced during the run; the run stopped",
                hint="Find out what removes that file, then run the same command again.",
            )

    def holder(self) -> LockHolder | None:
        try:
            # In a shared directory, another user may have put a pipe (it must not block) or a link there.
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                return msgspec.json.decode(os.read(fd, _MAX_HOLDER_BYTES), type=LockHolder)
            finally:
                os.close(fd)
        except (OSError, msgspec.MsgspecError):
            return None

    def release(self) -> None:
        if self._fd is not None:
            _held_locks.discard(self)
            fd, self._fd = self._fd, None
            # Cleared before the lock is released: afterwards, the file may name the next holder.
            if _is_same_file(fd, self.path):
                with suppress(OSError):  # a stale holder in the file does no harm
                    os.ftruncate(fd, 0)
            # Closing is not enough: a child that has not called exec yet has a copy of the descriptor.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def _write_holder(self, fd: int, content: bytes) -> None:
        """Write the holder into the file; release the lock if the disk is full, because the store is too."""
        try:
            os.ftruncate(fd, 0)
            written = 0
            while written < len(content):  # an almost full disk accepts a part first
                written += os.pwrite(fd, content[written:], written)
        except OSError as error:
            self.release()
            kind = StoreFullError if error.errno in NO_SPACE_ERRNOS else StoreError
            raise kind(f"the lock {self.path} cannot be written: {error.strerror}", cause=error) from error

    def _open(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = self._open_or_create()
        except (OSError, ValueError) as error:  # ValueError: the path contains a null byte
            raise StoreError(
                f"the lock {str(self.path)!r} cannot be opened: {getattr(error, 'strerror', error)}",
                hint="Check that its directory is writable and that no link or file of another user has its"
                " name.",
                cause=error,
            ) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise StoreError(f"the lock {self.path} is not a regular file", hint="Remove it.")
        return fd

    def _open_or_create(self) -> int:
        """Open or create the file without O_CREAT on an existing one.

        In a shared (sticky) directory, the kernel refuses O_CREAT on a file of another user.
        """
        # O_NOFOLLOW: a link of another user must not direct the write to a file of this user.
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        while True:
            with suppress(FileNotFoundError):
                return os.open(self.path, flags)
            try:
                fd = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, self._mode)
            except FileExistsError:
                continue
            os.fchmod(fd, self._mode)  # independent of the umask
            return fd

    def _close_in_child(self) -> None:
        if self._fd is not None:
            # Close only: both processes share one open file description, and LOCK_UN would release the
            # parent's lock.
            os.close(self._fd)
            self._fd = None


def locked_error(holder: LockHolder | None, lock_name: str) -> LockedError:
    """Return the error of a second run, with what is known about the first."""
    description = holder.describe() if holder else "a process that has just started"
    return LockedError(f"another run is in progress: {description}; the lock is {lock_name}")


_held_locks: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _close_locks_in_child() -> None:
    for lock in list(_held_locks):
        lock._close_in_child()  # noqa: SLF001
    _held_locks.clear()


# O_CLOEXEC takes effect at exec only: a forked child that outlives its parent would keep the lock.
os.register_at_fork(after_in_child=_close_locks_in_child)


def _is_same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except OSError:
        return False
