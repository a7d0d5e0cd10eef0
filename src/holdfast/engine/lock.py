"""One run at a time: a lock that the kernel holds and that dies with its holder.

`FileLock` is for the host the work happens on; `CommandLock` (in `commandlock`) takes the same file
elsewhere. Not here: waiting for a lock. A second run says who holds it and ends.
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

from holdfast.engine import process
from holdfast.errors import LockedError, LockLostError, StoreError, StoreFullError

_LONGEST_HOLDER = 4096
NO_ROOM = frozenset({errno.EFBIG, errno.ENOSPC, errno.EDQUOT})
"""What a system says of a disk, a file or a quota that takes no more."""


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who holds a lock: written into the locked file by its holder."""

    pid: int
    host: str
    command: str = ""
    run: str = ""
    since: float = 0.0
    boot: str = ""
    ticks: float = 0.0
    born: int = 0

    @classmethod
    def me(cls, command: str = "", run: str = "") -> Holder:
        ticks = time.clock_gettime(time.CLOCK_BOOTTIME)
        pid, boot = os.getpid(), process.boot_id()
        return cls(pid, socket.gethostname(), command, run, time.time(), boot, ticks, process.born(pid))

    def lives(self) -> bool:
        """Whether that process is still there; of one on another host only that host can tell."""
        return process.lives(self.pid, self.host, self.boot, self.born)

    def age(self) -> float:
        """Seconds that it has been held; a changed clock does not matter on the same boot."""
        if self.boot and self.boot == process.boot_id():
            return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - self.ticks)
        return max(0.0, time.time() - self.since)

    def words(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        what = f" ({self.command})" if self.command else ""
        return f"process {self.pid} on {self.host}{what}, for {self.age():.0f} s, since {since}"


class Lock(Protocol):
    """What the runner asks of a lock, wherever it is held."""

    def acquire(self, holder: Holder) -> None:
        """Take it at once, or raise `LockedError` with the holder."""

    def check(self) -> None:
        """Raise `LockLostError` unless it is still ours; called before every effect."""

    def holder(self) -> Holder | None:
        """Who holds it, as far as it can be read."""

    def release(self) -> None:
        """Let it go; harmless when it is not held."""


class NoLock:
    """For workflows that nothing else can run at the same time."""

    def acquire(self, holder: Holder) -> None:
        """Always ours."""

    def check(self) -> None:
        """Always ours."""

    def holder(self) -> Holder | None:
        return None

    def release(self) -> None:
        """Nothing to let go."""


class FileLock:
    """A `flock` on a file: freed by the kernel when its holder ends, however that was; no fork shares it.

    `shared=True` is for a folder where several users of a host meet: each of them may take the lock and read
    who holds it, whoever made the file.
    """

    def __init__(self, path: str | os.PathLike[str], *, shared: bool = False) -> None:
        self.path = Path(path)
        self._mode = 0o666 if shared else 0o600
        self._fd: int | None = None

    def acquire(self, holder: Holder) -> None:
        if self._fd is not None:
            raise LockedError(f"{self.path} is already held by this process")
        while self._fd is None:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The file may have been replaced between opening and locking: then this lock guards nothing.
                if _same_file(fd, self.path):
                    self._fd = fd
            except OSError as error:
                if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                    raise StoreError(
                        f"{self.path} cannot be locked: {error.strerror}", cause=error
                    ) from error
                raise locked_by(self.holder(), str(self.path)) from None
            finally:
                if self._fd is None:
                    os.close(fd)
        _held.add(self)
        self._write(self._fd, msgspec.json.encode(holder))

    def check(self) -> None:
        if self._fd is None:
            raise LockLostError(f"the lock {self.path} is not held")
        if not _same_file(self._fd, self.path):
            raise LockLostError(
                f"the lock {self.path} was removed or replaced while it was held; nothing more was done",
                hint="Find out what removes that file, then run the same command again.",
            )

    def holder(self) -> Holder | None:
        try:
            # Anything may lie where all users meet: a pipe must not hang this, nor a link lead elsewhere.
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                return msgspec.json.decode(os.read(fd, _LONGEST_HOLDER), type=Holder)
            finally:
                os.close(fd)
        except (OSError, msgspec.MsgspecError):
            return None

    def release(self) -> None:
        if self._fd is not None:
            _held.discard(self)
            fd, self._fd = self._fd, None
            if _same_file(fd, self.path):
                with suppress(OSError):  # a name that stays there holds nothing
                    os.ftruncate(fd, 0)
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def _write(self, fd: int, words: bytes) -> None:
        """Say who holds it; where that finds no room, no record would either, and nobody is kept out."""
        try:
            os.ftruncate(fd, 0)
            written = 0
            while written < len(words):  # a disk takes what still fits, and says no only then
                written += os.pwrite(fd, words[written:], written)
        except OSError as error:
            self.release()
            kind = StoreFullError if error.errno in NO_ROOM else StoreError
            raise kind(f"the lock {self.path} cannot be written: {error.strerror}", cause=error) from error

    def _open(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = self._open_or_make()
        except (OSError, ValueError) as error:  # a path may hold what no file system takes
            raise StoreError(
                f"the lock {str(self.path)!r} cannot be opened: {getattr(error, 'strerror', error)}",
                hint="Its directory must be there and be writable, and the file no link and not another's "
                "private one.",
                cause=error,
            ) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise StoreError(f"the lock {self.path} is no regular file", hint="Remove it; it is not ours.")
        return fd

    def _open_or_make(self) -> int:
        """Where users meet, kernels refuse O_CREAT on a file of another user: only a new one is created."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        while True:
            try:
                return os.open(self.path, flags)
            except FileNotFoundError:
                pass
            try:
                fd = os.open(self.path, flags | os.O_CREAT | os.O_EXCL, self._mode)
            except FileExistsError:
                continue
            os.fchmod(fd, self._mode)  # whatever the umask
            return fd

    def _forget_in_child(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def locked_by(holder: Holder | None, what: str) -> LockedError:
    """The refusal that a second run gives, with all that is known of the first."""
    words = holder.words() if holder else "a process that has only just begun"
    return LockedError(f"another run is at work: {words}; the lock is {what}")


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_held):
        lock._forget_in_child()  # noqa: SLF001  this module's own
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)


def _same_file(fd: int, path: Path) -> bool:
    try:
        there = path.lstat()
    except OSError:
        return False
    here = os.fstat(fd)
    return (here.st_ino, here.st_dev) == (there.st_ino, there.st_dev)
