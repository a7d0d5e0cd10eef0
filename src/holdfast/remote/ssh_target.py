"""Parse ssh targets and translate the error messages of ssh; starts no process."""

from __future__ import annotations

import re

import msgspec

from holdfast.errors import HoldfastError, HostAccessError, HostUnreachableError, UsageError

SSH_SCHEME = "ssh://"
# Neither may start with `-`: ssh would read the destination as an option.
_USER_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.+\\@-]*"
_HOST_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.%-]*|\[[0-9A-Fa-f:.%]+[A-Za-z0-9]*\]"
_TARGET_PATTERN = re.compile(
    rf"(?:(?P<user>{_USER_PATTERN})@)?(?P<host>{_HOST_PATTERN})(?::(?P<port>\d{{1,5}}))?/?"
)
_MAX_PORT = 65535

_TRANSIENT_MESSAGES = re.compile(
    r"connection (refused|reset|closed|timed out)|operation timed out|no route to host|"
    r"network is unreachable|host is down|broken pipe|timeout, server|connection to \S+ port \d+ timed out|"
    r"temporary failure in name resolution|exchange_identification|lost connection|banner exchange",
    re.IGNORECASE,
)

_PROXY_ENDED = f"unknown port {_MAX_PORT}"  # how ssh names the other end of a ProxyCommand

# Problem and hint by error message. A retry can only change that of a jump host.
# The order matters: for a changed host key, ssh also prints "host key verification failed".
_REJECTIONS = {
    "identification has changed": (
        "the host key has changed",
        "Compare the fingerprint; if it is correct, use ssh-keygen -R and connect with `ssh {arguments}`.",
    ),
    "host key verification failed|host key is known": (
        "the host key is unknown, and holdfast never accepts one",
        "Connect once with `ssh {arguments}` and compare the fingerprint.",
    ),
    "permission denied|too many authentication failures": (
        "the host accepts no key of this user",
        "Add your key (ssh-copy-id, ssh-add) until `ssh -o BatchMode=yes {arguments} true` works.",
    ),
    "could not resolve(?!.*temporary failure)": (
        "the host name cannot be resolved",
        "Correct the name, or add it to your ssh configuration.",
    ),
    _PROXY_ENDED: (
        "the jump host or proxy command exited before ssh was connected",
        "Check ProxyJump and ProxyCommand in your ssh configuration until `ssh {arguments}` works.",
    ),
}


class SshTarget(msgspec.Struct, frozen=True, kw_only=True):
    """`[user@]host[:port]`; the host may be an alias of the ssh configuration."""

    host: str
    user: str = ""
    port: int = 0

    @property
    def destination(self) -> str:
        """The destination argument of ssh."""
        host = self.host.strip("[]")
        return f"{self.user}@{host}" if self.user else host

    @property
    def options(self) -> list[str]:
        """The options of ssh for this target; its configuration provides the rest."""
        return ["-p", str(self.port)] if self.port else []

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"{user}{self.host}{f':{self.port}' if self.port else ''}"


def parse_target(text: str) -> SshTarget:
    """Parse `user@host[:port]` or `ssh://…`.

    Raises:
        UsageError: the text is not a target, or ssh or a shell could interpret it as an option or a command.
    """
    match = _TARGET_PATTERN.fullmatch(text.strip().removeprefix(SSH_SCHEME))
    port = int(match["port"] or 0) if match else 0
    if match is None or port > _MAX_PORT or (match["port"] and not port):
        raise UsageError(
            f"{text!r}: not an ssh destination",
            hint="Write user@host, user@host:port, or a host of your ssh configuration.",
        )
    return SshTarget(host=match["host"], user=match["user"] or "", port=port)


def connection_error(target: SshTarget, stderr: str) -> HoldfastError:
    """Translate the error output of a failed ssh connection.

    Returns:
        HostUnreachableError if a retry may succeed, else HostAccessError.
    """
    arguments = f"-p {target.port} {target.destination}" if target.port else target.destination
    for pattern, (problem, hint) in _REJECTIONS.items():
        if re.search(pattern, stderr, re.IGNORECASE | re.DOTALL):
            kind = HostUnreachableError if pattern == _PROXY_ENDED else HostAccessError
            return kind(f"{target}: {problem}", hint=hint.format(arguments=arguments))
    message = _last_line(stderr)
    if _TRANSIENT_MESSAGES.search(stderr):
        return HostUnreachableError(
            f"{target}: the host cannot be reached by ssh: {message}",
            hint=f"Check that the host is up and that `ssh {arguments}` works, then rerun the same command.",
        )
    return HostAccessError(f"{target}: ssh failed: {message}", hint=f"Find out why `ssh {arguments}` fails.")


def _last_line(stderr: str) -> str:
    lines = [line.strip().removeprefix("ssh: ") for line in stderr.splitlines() if line.strip()]
    return lines[-1] if lines else "no error message"
