"""One ssh connection that several commands share: started in the background, checked, used, ended.

It is a ControlMaster of the system's ssh: everything in the user's configuration counts (keys, aliases, jump
hosts, known hosts), nothing is ever asked, and host keys are checked as the user has it. Files are private.
Not here: what goes through it (ssh_engine.py, and the gateway's tunnel).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast import home
from holdfast.containers.ssh import complaint
from holdfast.errors import DeadlineError, HostUnreachableError, PermanentError, ToolMissingError
from holdfast.retry import Policy, constant, exponential

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from holdfast.containers.ssh import SshTarget

_LONGEST_FOLDER = 60
"""Socket paths end at 104 bytes on some systems, and ssh adds 17 of its own while it makes one."""

_PS_SECONDS = 8.0
_EVERY = 5
"""Seconds between two signs of life of a connection."""
LONGEST_SILENCE = 30
"""Seconds after which a line counts as cut at the latest, whatever was set: the other side gives the lock of
a silent connection to others after twice that, and until then no call may be waiting in it."""

_OPTIONS = (
    "BatchMode=yes",
    "ControlMaster=yes", "ClearAllForwardings=yes", "GatewayPorts=no", "ForwardAgent=no", "ForwardX11=no",
    "PermitLocalCommand=no", "RemoteCommand=none", "RequestTTY=no", "LogLevel=INFO", "Tunnel=no",
    "StreamLocalBindUnlink=yes", "StreamLocalBindMask=0177",
)  # fmt: skip


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long it may take to reach a host, and how often it is tried; each part has its share of the time.

    So one number makes everything slower for a slow line: a connection that is made, one that is asked, one
    that is given up because nothing came for a while, and the wait for another command that connects.
    """

    seconds: float = 45.0
    attempts: int = 4

    @property
    def connect(self) -> int:
        """For one connection to be made, in the whole seconds that ssh counts."""
        return max(1, round(self.seconds * 2 / 9))

    @property
    def answer(self) -> float:
        """For the other side, or the process of the connection, to answer a small question."""
        return max(1.0, self.seconds * 8 / 45)

    @property
    def meeting(self) -> float:
        """For another command to be done with the same connection."""
        return self.seconds * 8 / 3

    @property
    def options(self) -> tuple[str, ...]:
        """What ssh is told of this."""
        silent = max(1, round(min(self.seconds / 3, LONGEST_SILENCE) / _EVERY))
        return (
            f"ConnectTimeout={self.connect}",
            f"ServerAliveInterval={_EVERY}",
            f"ServerAliveCountMax={silent}",
        )


USUAL = Patience()


class SshMaster:
    """A connection in the background; `persist` is how long it outlives its last use (`yes`: until ended)."""

    def __init__(self, target: SshTarget, key: str, *, persist: str, patience: Patience = USUAL) -> None:
        self.target = target
        self.folder = _folder(f"{target}\n{key}")
        self._control = self.folder / "ctl"
        self._log = self.folder / "log"
        self._persist = persist
        self._patience = patience
        self._pid = 0

    @property
    def prefix(self) -> list[str]:
        """A command line that runs what follows over there, through this connection and no other."""
        only_here = [
            "-o",
            "ProxyCommand=false",
            "-o",
            "ControlMaster=no",
            "-o",
            f"ControlPath={self._control}",
        ]
        return ["ssh", "-F", "none", "-T", "-o", "BatchMode=yes", *only_here, "--", self.target.destination]

    def ensure(self) -> bool:
        """Connect unless there is a connection that answers; True when it is a new one."""
        starting = Policy(
            attempts=self._patience.attempts,
            deadline=self._patience.seconds,
            backoff=exponential(0.3, cap=3),
            retry_on=HostUnreachableError,
        )
        with self.alone():
            if self._answers():
                return False
            self._end()
            starting.call(self._start)
            self._pid = self.pid()
            return True

    def is_alive(self) -> bool:
        """Whether the process of this connection is there; asks nobody else, so it costs nothing."""
        return bool(self._pid) and _lives(self._pid)

    def is_up(self) -> bool:
        """Whether there is a connection now, and the other side answers through it."""
        with self.alone():
            return self._answers()

    def pid(self) -> int:
        """The process of the connection, 0 when there is none; asks it alone, not the other side."""
        ended = self._ask("check") if self._control.exists() else None
        found = re.search(r"pid=(\d+)", ended.stderr) if ended is not None and ended.returncode == 0 else None
        return int(found[1]) if found else 0

    def run(self, script: str) -> str:
        """What a small shell script prints over there; raises when the connection does not carry it."""
        ended = self._ssh([*self.prefix, script], self._patience.answer)
        if ended is None or ended.returncode != 0:
            said = ended.stderr if ended is not None else "it did not answer in time"
            raise HostUnreachableError(f"{self.target} does not answer by ssh: {said.strip() or 'no words'}")
        return ended.stdout

    def forward(self, local: str, remote: str) -> bool:
        """Let a local socket or `address:port` lead to one over there; False when it could not be opened."""
        ended = self._ask("forward", "-L", f"{local}:{remote}")
        return ended is not None and ended.returncode == 0

    def said(self) -> str:
        """What ssh has written about this connection since it was made."""
        try:
            return self._log.read_text(errors="replace")
        except OSError:
            return ""

    def close(self) -> bool:
        """End the connection and whatever goes through it; False when there was none."""
        with self.alone():
            there = bool(self.pid())
            self._end()
            return there

    def _start(self) -> None:
        self._log.write_bytes(b"")
        options = [
            *_OPTIONS,
            *self._patience.options,
            f"ControlPath={self._control}",
            f"ControlPersist={self._persist}",
        ]
        words = [part for option in options for part in ("-o", option)]
        argv = ["ssh", "-f", "-N", "-T", *words, "-E", str(self._log), *self.target.options]
        ended = self._ssh([*argv, "--", self.target.destination], self._patience.seconds, quiet=True)
        if ended is None:
            raise HostUnreachableError(f"{self.target} cannot be reached by ssh: it did not answer in time")
        if ended.returncode != 0:
            raise complaint(self.target, self.said())

    def _answers(self) -> bool:
        self._pid = self.pid()
        if not self._pid:
            return False
        with suppress(HostUnreachableError):
            self.run("exit 0")
            return True
        return False

    def _end(self) -> None:
        """End the connection, also one that hangs; what is left of one that died is swept away."""
        if self._control.exists():
            self._ask("exit")
        if self.is_alive() and _is_about(self._pid, str(self._control)):
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._pid = 0
        self._control.unlink(missing_ok=True)

    def _ask(self, what: str, *more: str) -> subprocess.CompletedProcess[str] | None:
        """Talk to the connection's own process."""
        words = ["ssh", "-F", "none", "-o", f"ControlPath={self._control}", "-O", what, *more, "--"]
        return self._ssh([*words, self.target.destination], self._patience.answer)

    def _ssh(
        self, argv: Sequence[str], timeout: float, *, quiet: bool = False
    ) -> subprocess.CompletedProcess[str] | None:
        """Run ssh in plain English; None when it takes too long. `quiet`: its child outlives it."""
        pipe = subprocess.DEVNULL if quiet else subprocess.PIPE
        try:
            return subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace",
                timeout=timeout, check=False, env={**os.environ, "LC_ALL": "C"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        except FileNotFoundError as error:
            raise ToolMissingError(
                "there is no ssh on this machine", hint="Install it: sudo apt-get install openssh-client"
            ) from error

    def alone(self, what: str = "lock") -> AbstractContextManager[None]:
        """Two commands must not make the same connection at once, nor do `what` with it."""
        return alone(self.folder / what, self.target, within=self._patience.meeting)


@contextmanager
def alone(path: Path, target: SshTarget, *, within: float) -> Iterator[None]:
    """One at a time, of all commands of this user on this machine; the folder is made, and is private."""
    meeting = Policy(attempts=None, deadline=within, backoff=constant(0.1), retry_on=BlockingIOError)
    _own(path.parent)
    with path.open("ab") as file:
        try:
            meeting.call(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, DeadlineError) as error:
            raise HostUnreachableError(
                f"another holdfast command is connecting to {target}, and does not come to an end",
                hint=f"See what it waits for, or end it, then run this command again. Its lock is {path}.",
            ) from error
        yield


def _folder(key: str) -> Path:
    """A private folder for the sockets of one connection, with a path that is short and plain enough."""
    digest = hashlib.sha256(f"{home.state_dir()}\n{key}".encode()).hexdigest()[:12]
    wanted = home.state_dir() / "ssh" / digest
    if len(os.fsencode(wanted)) <= _LONGEST_FOLDER and re.fullmatch(r"[\w./-]+", str(wanted), re.ASCII):
        return wanted
    runtime = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(runtime) / f"holdfast-{os.getuid()}" / digest


def _own(folder: Path) -> None:
    """Make the folder and refuse one that somebody else has put there."""
    home.private_dir(folder)
    for part in (folder.parent, folder):
        found = part.lstat()
        if part.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise PermanentError(
                f"{part} is not a private folder of this user", hint="Remove it, then run the command again."
            )


def _lives(pid: int) -> bool:
    """Whether a process of ours has this number and has not ended; one that nobody buried has."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    try:
        after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return True  # no such table on this system, or it ended just now: the next look says so
    return after_name[:1] != [b"Z"]


def _is_about(pid: int, path: str) -> bool:
    """Whether a process has a path in its command line: never end a process that only has an old number."""
    argv = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_PS_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False  # nobody to ask: then it is left alone
    return path in ended.stdout
