"""One shared ssh connection in the background: a ControlMaster of the system's ssh.

The user's ssh configuration applies (keys, aliases, jump hosts, known hosts), including the check of host
keys. ssh never prompts. The sockets are in a private directory.
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
from holdfast.errors import (
    DeadlineExceededError,
    HostUnreachableError,
    PermanentError,
    ToolNotFoundError,
)
from holdfast.remote.ssh_target import connection_error
from holdfast.retry import Policy, constant, exponential
from holdfast.workflow import process_start_ticks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from holdfast.remote.ssh_target import SshTarget

# Socket paths are limited to 104 bytes on some systems, and ssh appends 17 while it creates one.
_MAX_SOCKET_DIRECTORY_LENGTH = 60

_KEEPALIVE_INTERVAL = 5
# Upper limit for the silence after which ssh gives up a connection. The host releases the lock of a silent
# session after twice that time, and no call of its holder may be pending by then.
MAX_SILENCE_SECONDS = 30

# These options override the user's configuration: ssh forwards and executes only what holdfast requests.
# BindUnlink: a killed ssh leaves its socket file, and the next bind would fail. BindMask: only this user may
# connect to the forwarded socket, which gives root access to the host.
_SSH_OPTIONS = (
    "BatchMode=yes",
    "ControlMaster=yes", "ClearAllForwardings=yes", "GatewayPorts=no", "ForwardAgent=no", "ForwardX11=no",
    "PermitLocalCommand=no", "RemoteCommand=none", "RequestTTY=no", "LogLevel=INFO", "Tunnel=no",
    "StreamLocalBindUnlink=yes", "StreamLocalBindMask=0177",
)  # fmt: skip


class SshTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts of ssh, derived from one total: one setting adapts all of them to a slow network."""

    total: float = 45.0
    attempts: int = 4

    @property
    def connect_timeout(self) -> int:
        """Limit for one connection attempt, in whole seconds as ssh requires."""
        return max(1, round(self.total * 2 / 9))

    @property
    def reply_timeout(self) -> float:
        """Limit for a short command on the host, or of the connection's process."""
        return max(1.0, self.total * 8 / 45)

    @property
    def lock_timeout(self) -> float:
        """Limit for waiting until another command has set up the same connection."""
        return self.total * 8 / 3

    @property
    def ssh_options(self) -> tuple[str, ...]:
        """The options of ssh for these timeouts."""
        silent = max(1, round(min(self.total / 3, MAX_SILENCE_SECONDS) / _KEEPALIVE_INTERVAL))
        return (
            f"ConnectTimeout={self.connect_timeout}",
            f"ServerAliveInterval={_KEEPALIVE_INTERVAL}",
            f"ServerAliveCountMax={silent}",
        )


DEFAULT_SSH_TIMEOUTS = SshTimeouts()


class ControlMaster:
    """A connection in the background.

    Args:
        target: the host.
        purpose: distinguishes several connections to one host.
        persist: ssh's ControlPersist: seconds after the last use, or `yes` until it is closed.
        timeouts: the timeouts of ssh.
    """

    def __init__(
        self, target: SshTarget, purpose: str, *, persist: str, timeouts: SshTimeouts = DEFAULT_SSH_TIMEOUTS
    ) -> None:
        self.target = target
        self.directory = _socket_directory(f"{target}\n{purpose}")
        self._control_socket = self.directory / "ctl"
        self._log_file = self.directory / "log"
        self._persist = persist
        self._timeouts = timeouts
        self._pid = 0
        # With the ID it identifies the process: the kernel may give the ID to another one.
        self._start_ticks: int | None = None
        # Whether this process opened the connection; otherwise other commands use it too.
        self.is_own = False

    @property
    def command_prefix(self) -> list[str]:
        """The start of a command line that runs a command on the host.

        ProxyCommand=false prevents ssh from opening another connection if this one is cut.
        """
        options = ("BatchMode=yes", "ProxyCommand=false", "ControlMaster=no", self._control_path_option)
        return ["ssh", "-F", "none", "-T", *_as_arguments(options), "--", self.target.destination]

    def ensure_connected(self) -> bool:
        """Connect unless a connection answers; return whether it is a new one."""
        policy = Policy(
            attempts=self._timeouts.attempts,
            deadline=self._timeouts.total,
            backoff=exponential(0.3, cap=3),
            retry_on=HostUnreachableError,
        )
        # Without the lock, two commands would both start a master, and one would remove the other's socket.
        with self.lock():
            if self._is_responsive():
                return False
            self._terminate()
            policy.call(self._connect)
            self._remember_process()
            self.is_own = True
            return True

    def is_process_alive(self) -> bool:
        """Whether the process of this connection exists; needs no request to the host."""
        ticks = process_start_ticks(self._pid) if self._pid else None
        return ticks is not None and ticks == self._start_ticks

    def is_responsive(self) -> bool:
        """Whether the connection exists and the host answers through it."""
        with self.lock():
            return self._is_responsive()

    def pid(self) -> int:
        """Return the process ID of the connection, or 0; needs no request to the host."""
        result = self._control_command("check") if self._control_socket.exists() else None
        match = re.search(r"pid=(\d+)", result.stderr) if result and not result.returncode else None
        return int(match[1]) if match else 0

    def run_script(self, script: str) -> str:
        """Run a short shell script on the host and return its output.

        Raises:
            HostUnreachableError: the connection is cut, or the script failed or took too long.
        """
        result = self._run_ssh([*self.command_prefix, script], self._timeouts.reply_timeout)
        if result is None or result.returncode != 0:
            problem = result.stderr.strip() if result is not None else "timeout"
            raise HostUnreachableError(f"{self.target}: no answer over ssh: {problem or 'no error message'}")
        return result.stdout

    def forward(self, local: str, remote: str) -> bool:
        """Forward a local socket or `address:port` to one of the host; return whether it could be opened."""
        result = self._control_command("forward", "-L", f"{local}:{remote}")
        return result is not None and result.returncode == 0

    def read_log(self) -> str:
        """Return the log of ssh for this connection."""
        try:
            return self._log_file.read_text(errors="replace")
        except OSError:
            return ""

    def close(self) -> bool:
        """Close the connection and everything that is forwarded; return False if there was none."""
        with self.lock():
            existed = bool(self.pid())
            self._terminate()
            return existed

    def _connect(self) -> None:
        self._log_file.write_bytes(b"")
        options = (*_SSH_OPTIONS, *self._timeouts.ssh_options, f"ControlPersist={self._persist}")
        # With -f, ssh goes to the background after the authentication: exit code 0 means connected.
        argv = ["ssh", "-f", "-N", "-T", *_as_arguments((*options, self._control_path_option))]
        argv += ["-E", str(self._log_file), *self.target.options, "--", self.target.destination]
        result = self._run_ssh(argv, self._timeouts.total, discard_output=True)
        if result is None:
            raise HostUnreachableError(f"{self.target}: the host cannot be reached by ssh: timeout")
        if result.returncode != 0:
            raise connection_error(self.target, self.read_log())

    def _remember_process(self) -> None:
        self._pid = self.pid()
        self._start_ticks = process_start_ticks(self._pid)

    def _is_responsive(self) -> bool:
        self._remember_process()
        if not self._pid:
            return False
        # Only the local process has answered so far; the script tests the host.
        with suppress(HostUnreachableError):
            self.run_script("exit 0")
            return True
        return False

    def _terminate(self) -> None:
        """End the connection, even one that hangs, and remove its socket."""
        if self._control_socket.exists():
            self._control_command("exit")
        # A master whose host is silent may not exit. Its start time proves that the pid was not reused.
        if self._start_ticks and self.is_process_alive():
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._pid = 0
        self._control_socket.unlink(missing_ok=True)

    @property
    def _control_path_option(self) -> str:
        return f"ControlPath={self._control_socket}"

    def _control_command(self, request: str, *arguments: str) -> subprocess.CompletedProcess[str] | None:
        """Send a request to the process of the connection."""
        argv = ["ssh", "-F", "none", "-o", self._control_path_option, "-O", request, *arguments]
        return self._run_ssh([*argv, "--", self.target.destination], self._timeouts.reply_timeout)

    def _run_ssh(
        self, argv: Sequence[str], timeout: float, *, discard_output: bool = False
    ) -> subprocess.CompletedProcess[str] | None:
        """Run ssh with English messages; return None after the timeout.

        `discard_output` is required for a process that stays in the background: it would keep the pipe open.
        """
        pipe = subprocess.DEVNULL if discard_output else subprocess.PIPE
        try:
            return subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace",
                timeout=timeout, check=False, env={**os.environ, "LC_ALL": "C"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        except FileNotFoundError as error:
            raise ToolNotFoundError(
                "ssh: not installed on this machine", hint="Run `sudo apt-get install openssh-client`."
            ) from error

    def lock(self, name: str = "lock") -> AbstractContextManager[None]:
        """Exclude other commands of this user while the connection is set up or changed."""
        return connection_lock(self.directory / name, self.target, timeout=self._timeouts.lock_timeout)


@contextmanager
def connection_lock(path: Path, target: SshTarget, *, timeout: float) -> Iterator[None]:
    """Hold a file lock against other commands of this user; create its private directory.

    Raises:
        HostUnreachableError: another command held the lock for the whole timeout.
    """
    policy = Policy(attempts=None, deadline=timeout, backoff=constant(0.1), retry_on=BlockingIOError)
    _ensure_private_directory(path.parent)
    # Python sets CLOEXEC: the ssh master in the background does not inherit the lock.
    with path.open("ab") as file:
        try:
            policy.call(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, DeadlineExceededError) as error:
            raise HostUnreachableError(
                f"{target}: another holdfast command has been connecting for {timeout:g} s",
                hint=f"Wait for it or end it, then rerun the same command. Its lock is {path}.",
            ) from error
        yield


def _socket_directory(key: str) -> Path:
    """The directory of a connection's sockets: in the state directory, unless ssh cannot use that path."""
    digest = hashlib.sha256(f"{home.state_dir()}\n{key}".encode()).hexdigest()[:12]
    directory = home.state_dir() / "ssh" / digest
    is_short = len(os.fsencode(directory)) <= _MAX_SOCKET_DIRECTORY_LENGTH
    # ssh expands `%` in ControlPath and splits the argument of -L at colons.
    if is_short and re.fullmatch(r"[\w./-]+", str(directory), re.ASCII):
        return directory
    runtime = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(runtime) / f"holdfast-{os.getuid()}" / digest


def _ensure_private_directory(directory: Path) -> None:
    """Create the directory; reject one that another user owns or can write to."""
    home.ensure_private_dir(directory)
    # Below /tmp, another user can create the directory first, and could then replace the sockets in it.
    for part in (directory.parent, directory):
        info = part.lstat()
        if part.is_symlink() or info.st_uid != os.getuid() or info.st_mode & 0o022:
            raise PermanentError(
                f"{part}: not a private directory of this user", hint="Remove it, then rerun the command."
            )


def _as_arguments(options: Iterable[str]) -> list[str]:
    return [part for option in options for part in ("-o", option)]
