"""A file lock on another host, held by a shell command in an ssh session.

The command takes the lock with `flock`, prints one line and reads its stdin until it ends or stays silent.
The host needs util-linux and coreutils, but no part of holdfast. However the session ends, the command ends
with it and the kernel of that host releases the lock; if this machine disappears, that takes a minute.

When a holder on this machine is killed, its session may need a moment to end on the other host. `acquire`
waits for that.
"""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import LockedError, LockLostError, TemporaryError, ToolNotFoundError
from holdfast.retry import Policy, constant
from holdfast.workflow import LockHolder, locked_error

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_CODE_LOCKED, _EXIT_CODE_MISSING_TOOL = 4, 5
# Interval of the holder's heartbeats, and the silence after which the host releases the lock.
HEARTBEAT_SECONDS, HEARTBEAT_TIMEOUT_SECONDS = 10.0, 60.0

_ACQUIRED_LINE = "held"
# Waits for the session of a holder that was killed; after the deadline the host has released the lock.
_DEAD_HOLDER_POLICY = Policy(attempts=None, deadline=HEARTBEAT_TIMEOUT_SECONDS, backoff=constant(0.2))


class RemoteLock:
    """A `flock` on the host that a command prefix leads to.

    Args:
        path: the lock file on that host.
        prefix: a command such as `["ssh", "host"]`; an empty prefix means this machine.
        timeout: limit in seconds for each command.
        label: the name of the lock in error messages.
    """

    def __init__(
        self, path: str, prefix: Sequence[str] = (), *, timeout: float = 30.0, label: str = ""
    ) -> None:
        self.path = path
        self._prefix = tuple(prefix)
        self._timeout = timeout
        self._label = label
        self._last_heartbeat = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._released = threading.Event()
        self._holder_is_dead = False
        # Whether the last session ended before `release`.
        self.was_lost = False

    def acquire(self, holder: LockHolder) -> None:
        """Take the lock and write the holder into its file.

        Raises:
            LockedError: another run holds the lock.
            ToolNotFoundError: the host lacks a program.
            TemporaryError: the command failed on the host.
        """
        if self._process is not None:
            raise LockedError(f"{self.path} is already locked by this process")
        self._holder_is_dead = False
        _DEAD_HOLDER_POLICY.replace(retry_on=self._is_release_expected).call(self._try_acquire, holder)

    def _try_acquire(self, holder: LockHolder) -> None:
        child = self._start_process(_lock_script(self.path, msgspec.json.encode(holder).decode()))
        output = self._read_until_acquired(child)
        if output == _ACQUIRED_LINE:
            self._process, self.was_lost, self._last_heartbeat = child, False, _boot_seconds()
            self._released.clear()
            # A daemon thread: when the process ends, the pipe closes and the host releases the lock.
            threading.Thread(
                target=self._send_heartbeats, args=(child,), daemon=True, name="lock-heartbeat"
            ).start()
            return
        code = self._close_session(child)
        if code == EXIT_CODE_LOCKED:
            current = self.holder()
            # A holder empties the file just before it releases the lock: an empty file belongs to the same
            # holder as in the attempt before.
            self._holder_is_dead = self._holder_is_dead if current is None else not current.is_alive()
            raise locked_error(current, self._display_name())
        if code == _EXIT_CODE_MISSING_TOOL:
            raise ToolNotFoundError(
                f"{self._display_name()}: the lock cannot be taken: {output}",
                hint="Install util-linux (flock) and coreutils (stat, timeout) on that host.",
            )
        raise TemporaryError(
            f"{self._display_name()}: the lock cannot be taken: exit code {code}, output {output!r}"
        )

    def _is_release_expected(self, error: Exception) -> bool:
        return self._holder_is_dead and isinstance(error, LockedError)

    @property
    def is_held(self) -> bool:
        """Whether `acquire` was called without `release` since; `check` also tests the session."""
        return self._process is not None

    def check(self) -> None:
        """Raise LockLostError if the session that held the lock has ended."""
        # Makes no request, because it runs before every effect: ssh exits together with its connection. When
        # this machine was suspended, ssh may not know yet that the host has ended the session.
        if self._process is None or self._process.poll() is not None or self._is_silent(_boot_seconds()):
            raise LockLostError(
                f"{self._display_name()}: the session that held the lock has ended; the command was stopped"
            )

    def holder(self) -> LockHolder | None:
        """Read the holder from the lock file; None if the file is empty or cannot be read."""
        command = self._command(f"cat {shlex.quote(self.path)}")
        try:
            content = subprocess.run(command, capture_output=True, check=False, timeout=self._timeout).stdout
            return msgspec.json.decode(content, type=LockHolder)
        except (OSError, subprocess.SubprocessError, msgspec.MsgspecError):
            return None

    def release(self) -> None:
        """End the session, which releases the lock."""
        child, self._process = self._process, None
        if child is not None:
            # First, because `_close_session` closes the stdin that the heartbeats are written to.
            self._released.set()
            had_ended = child.poll() is not None or self._is_silent(_boot_seconds())
            # The script exits with 0 at the end of its stdin; a session that was cut has another exit code.
            self.was_lost = self._close_session(child) != 0 or had_ended

    def _send_heartbeats(self, child: subprocess.Popen[bytes]) -> None:
        """Write to the session until the lock is released or the session ends."""
        while not self._released.wait(HEARTBEAT_SECONDS):
            # Before the write: this machine may be suspended at any point.
            now = _boot_seconds()
            # A late heartbeat must not hide that the host has released the lock.
            if self._is_silent(now):
                return
            try:
                if child.stdin is not None:
                    child.stdin.write(b"\n")
                    child.stdin.flush()
            except (OSError, ValueError):
                return
            self._last_heartbeat = now

    def _is_silent(self, now: float) -> bool:
        """Whether the host has released the lock, because it received no heartbeat for too long."""
        return now - self._last_heartbeat >= HEARTBEAT_TIMEOUT_SECONDS

    def _start_process(self, script: str) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._command(script),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Ctrl-C signals the whole process group; the lock must be held until the running step ends.
                process_group=0,
            )
        except OSError as error:
            raise TemporaryError(
                f"{self._display_name()}: the lock cannot be taken: {error}", cause=error
            ) from error

    def _read_until_acquired(self, child: subprocess.Popen[bytes]) -> str:
        """Read until the command has the lock, or return its whole output; skips a login shell's greeting."""
        output, deadline = b"", time.monotonic() + self._timeout
        while child.stdout is not None:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not select.select([child.stdout], [], [], remaining)[0]:
                break
            # Not through the buffered reader: `select` does not see bytes that a buffer has already read.
            chunk = os.read(child.stdout.fileno(), 4096)
            output += chunk
            if not chunk or f"{_ACQUIRED_LINE}\n".encode() in output:
                break
        text = output.decode(errors="replace")
        return _ACQUIRED_LINE if _ACQUIRED_LINE in text.split("\n") else text.strip()

    def _close_session(self, child: subprocess.Popen[bytes]) -> int:
        """Close stdin, which ends the command; kill it if it does not end in time; return its exit code."""
        try:
            child.communicate(timeout=self._timeout)
        except subprocess.TimeoutExpired:
            # Ends the local ssh only; the host releases the lock when the session ends or stays silent.
            child.kill()
            child.communicate()
        return child.returncode

    def _command(self, script: str) -> list[str]:
        if not self._prefix:
            return ["sh", "-c", script]
        return [*self._prefix, f"sh -c {shlex.quote(script)}"]

    def _display_name(self) -> str:
        if self._label:
            return self._label
        return f"{self.path} ({' '.join(self._prefix)})" if self._prefix else self.path


def _boot_seconds() -> float:
    """Return the time since boot, including the time in which this machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _lock_script(path: str, holder: str) -> str:
    """A script that locks descriptor 9, writes the holder to the file and holds the lock until stdin ends.

    It treats the file like `FileLock(shared=True)`: it never truncates an existing file, follows no link, and
    rejects a file that was replaced meanwhile. It writes through the open descriptor.
    """
    # `set -C` creates the file with O_EXCL, so a link that another user puts there meanwhile is not followed.
    # /proc/self/fd/9 is the locked file: `>"$f"` would open whatever has the name now, with O_CREAT, which
    # the kernel may refuse (see `FileLock`). `9<&-`: the child must not keep the lock of a killed shell.
    return (
        f"f={shlex.quote(path)}; umask 0; "
        '[ -e "$f" ] || [ -L "$f" ] || (set -C; : >"$f") 2>/dev/null; '
        '[ -L "$f" ] && { echo "$f is a link"; exit 1; }; '
        '[ -f "$f" ] || { echo "$f cannot be created"; exit 1; }; '
        'exec 9<"$f" || exit 1; '
        "for tool in flock stat timeout; do command -v $tool >/dev/null || "
        f'{{ echo "$tool is not installed"; exit {_EXIT_CODE_MISSING_TOOL}; }}; done; '
        f"flock -n -E {EXIT_CODE_LOCKED} 9 || exit $?; "
        'i=$(stat -c %d:%i "$f") && [ "$i" = "$(stat -Lc %d:%i /proc/self/fd/9)" ] || '
        '{ echo "$f was replaced"; exit 1; }; '
        f"printf %s {shlex.quote(holder)} >/proc/self/fd/9 || exit 1; echo {_ACQUIRED_LINE}; "
        f'while timeout {HEARTBEAT_TIMEOUT_SECONDS:.0f} sh -c "read -r beat" 9<&-; do :; done; '
        ": >/proc/self/fd/9"
    )
