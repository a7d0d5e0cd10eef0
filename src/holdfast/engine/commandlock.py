"""The same lock on another host: held by a command that lives as long as its session.

The command takes the lock, says one line and then reads its standard input until that ends; `flock` of
util-linux through `ssh` does just that, with nothing of ours on the other side. When the session ends,
however it ends, the command ends and the kernel over there frees the lock. Not here: how the other host is
reached.
"""

from __future__ import annotations

import select
import shlex
import subprocess
from typing import TYPE_CHECKING

import msgspec

from holdfast.engine.lock import Holder, locked_by
from holdfast.errors import LockedError, LockLostError, TemporaryError

if TYPE_CHECKING:
    from collections.abc import Sequence

TAKEN = 4
_HELD = "held"


class CommandLock:
    """A `flock` held through a command prefix such as `["ssh", "host"]`; an empty prefix holds it here."""

    def __init__(self, path: str, prefix: Sequence[str] = (), *, timeout: float = 30.0) -> None:
        self.path = path
        self._prefix = tuple(prefix)
        self._timeout = timeout
        self._child: subprocess.Popen[bytes] | None = None

    def acquire(self, holder: Holder) -> None:
        if self._child is not None:
            raise LockedError(f"{self.path} is already held by this process")
        child = self._start(_script(self.path, msgspec.json.encode(holder).decode()))
        said = self._first_line(child)
        if said == _HELD:
            self._child = child
            return
        code = self._end(child)
        if code == TAKEN:
            raise locked_by(self.holder(), self._where())
        raise TemporaryError(
            f"the lock {self._where()} cannot be taken: the command ended with {code} and said {said!r}",
            hint="`flock` (util-linux) must be there on that side. Run the same command again.",
        )

    def check(self) -> None:
        if self._child is None or self._child.poll() is not None:
            raise LockLostError(
                f"the session that held the lock {self._where()} has ended; nothing more was done"
            )

    def holder(self) -> Holder | None:
        command = self._command(f"cat {shlex.quote(self.path)}")
        try:
            said = subprocess.run(command, capture_output=True, check=False, timeout=self._timeout).stdout
            return msgspec.json.decode(said, type=Holder)
        except (OSError, subprocess.SubprocessError, msgspec.MsgspecError):
            return None

    def release(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            self._end(child)

    def _start(self, script: str) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self._command(script),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # A Ctrl-C in a terminal goes to the whole group; the lock must outlive the effect in the air.
                process_group=0,
            )
        except OSError as error:
            raise TemporaryError(f"the lock {self._where()} cannot be taken: {error}", cause=error) from error

    def _first_line(self, child: subprocess.Popen[bytes]) -> str:
        out = child.stdout
        if out is None or not select.select([out], [], [], self._timeout)[0]:
            return ""
        return out.readline().decode(errors="replace").strip()

    def _end(self, child: subprocess.Popen[bytes]) -> int:
        """Close its standard input, which ends it; a deaf one is killed."""
        try:
            child.communicate(timeout=self._timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
        return child.returncode

    def _command(self, script: str) -> list[str]:
        if not self._prefix:
            return ["sh", "-c", script]
        return [*self._prefix, f"sh -c {shlex.quote(script)}"]

    def _where(self) -> str:
        return f"{self.path} ({' '.join(self._prefix)})" if self._prefix else self.path


def _script(path: str, holder: str) -> str:
    """Take the lock on descriptor 9, write the holder into it, say so, and hold it until input ends."""
    file = shlex.quote(path)
    return (
        f"umask 077; exec 9>>{file} || exit 1; flock -n -E {TAKEN} 9 || exit $?; "
        f"printf %s {shlex.quote(holder)} >{file}; echo {_HELD}; exec cat >/dev/null"
    )
