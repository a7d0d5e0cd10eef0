"""The same lock on another host: held by a command that lives as long as its session.

The command takes the lock, says one line and then reads its standard input until that ends or falls silent;
`flock` of util-linux through `ssh` does just that, with nothing of ours on the other side. When the session
ends, however it ends, the command ends and the kernel over there frees the lock; a laptop that vanished
without a word is given up after a minute. The end of a holder that was killed here has to travel there,
behind all that was still on its way: who comes in between waits for that. Not here: how it is reached.
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

from holdfast.engine.lock import Holder, locked_by
from holdfast.errors import LockedError, LockLostError, TemporaryError
from holdfast.retry import Policy, constant

if TYPE_CHECKING:
    from collections.abc import Sequence

TAKEN = 4
BEAT, SILENCE = 10.0, 60.0
"""How often a holder says that it is there, and after how long a silence the other side lets go."""

_HELD = "held"
_NOTICING = Policy(attempts=None, deadline=SILENCE, backoff=constant(0.2))
"""For the other side to hear that a process of this machine has ended; by then it lets go by itself."""


class CommandLock:
    """A `flock` held through a command prefix such as `["ssh", "host"]`; an empty prefix holds it here."""

    def __init__(
        self, path: str, prefix: Sequence[str] = (), *, timeout: float = 30.0, where: str = ""
    ) -> None:
        self.path = path
        self._prefix = tuple(prefix)
        self._timeout = timeout
        self._name = where
        self._child: subprocess.Popen[bytes] | None = None
        self._released = threading.Event()
        self._left_behind = False
        self.lost = False
        """Whether the session that held it last had ended before it was let go."""

    def acquire(self, holder: Holder) -> None:
        if self._child is not None:
            raise LockedError(f"{self.path} is already held by this process")
        self._left_behind = False
        _NOTICING.with_(retry_on=self._is_let_go_soon).call(self._take, holder)

    def _take(self, holder: Holder) -> None:
        child = self._start(_script(self.path, msgspec.json.encode(holder).decode()))
        said = self._first_line(child)
        if said == _HELD:
            self._child, self.lost = child, False
            self._released.clear()
            threading.Thread(target=self._beat, args=(child,), daemon=True, name="lock-beat").start()
            return
        code = self._end(child)
        if code == TAKEN:
            found = self.holder()
            # A name is taken out just before the lock is let go: none after a dead one's is still that one's.
            self._left_behind = self._left_behind if found is None else not found.lives()
            raise locked_by(found, self._where())
        raise TemporaryError(
            f"the lock {self._where()} cannot be taken: the command ended with {code} and said {said!r}",
            hint="`flock` (util-linux) and `timeout` must be there on that side. Run the same command again.",
        )

    def _is_let_go_soon(self, error: Exception) -> bool:
        return self._left_behind and isinstance(error, LockedError)

    @property
    def held(self) -> bool:
        """Whether it was taken and not let go since; its session may have ended all the same (`check`)."""
        return self._child is not None

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
            self._released.set()
            had_ended = child.poll() is not None
            # The script ends well when its input does; of a session that was cut nobody hears that.
            self.lost = self._end(child) != 0 or had_ended

    def _beat(self, child: subprocess.Popen[bytes]) -> None:
        """Say every few seconds that the holder lives; ends with the lock or with the session."""
        while not self._released.wait(BEAT):
            try:
                if child.stdin is not None:
                    child.stdin.write(b"\n")
                    child.stdin.flush()
            except (OSError, ValueError):
                return

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
        """What it says once it has the lock, or all it said; greetings of a login shell are passed over."""
        said, limit = b"", time.monotonic() + self._timeout
        while child.stdout is not None:
            left = limit - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                break
            chunk = os.read(child.stdout.fileno(), 4096)
            said += chunk
            if not chunk or f"{_HELD}\n".encode() in said:
                break
        lines = said.decode(errors="replace").split("\n")
        return _HELD if _HELD in lines else said.decode(errors="replace").strip()

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
        if self._name:
            return self._name
        return f"{self.path} ({' '.join(self._prefix)})" if self._prefix else self.path


def _script(path: str, holder: str) -> str:
    """Take the lock on descriptor 9, write the holder into it, say so, and hold it until input ends.

    The same file, mode and care as `FileLock(shared=True)`: only a new file is created, no link is followed,
    and a file that was replaced meanwhile does not count. The file is written through the open descriptor.
    """
    return (
        f"f={shlex.quote(path)}; umask 0; "
        '[ -e "$f" ] || [ -L "$f" ] || (set -C; : >"$f") 2>/dev/null; '
        '[ -L "$f" ] && { echo "$f is a link"; exit 1; }; '
        '[ -f "$f" ] || { echo "$f cannot be made"; exit 1; }; '
        'exec 9<"$f" || exit 1; '
        "{ command -v flock && command -v timeout; } >/dev/null || { echo no flock or no timeout; exit 1; }; "
        f"flock -n -E {TAKEN} 9 || exit $?; "
        'i=$(stat -c %d:%i "$f") && [ "$i" = "$(stat -Lc %d:%i /proc/self/fd/9)" ] || '
        '{ echo "$f was replaced"; exit 1; }; '
        f"printf %s {shlex.quote(holder)} >/proc/self/fd/9 || exit 1; echo {_HELD}; "
        f'while timeout {SILENCE:.0f} sh -c "read -r beat" 9<&-; do :; done; : >/proc/self/fd/9'
    )
