"""A host that is reached with the system's ssh: what it is called, and what ssh's complaints mean.

Pure: no process is started here. Not here: the connection itself (ssh_master.py).
"""

from __future__ import annotations

import re

import msgspec

from holdfast.errors import HoldfastError, HostUnreachableError, HostUnusableError, UsageError

SCHEME = "ssh://"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.+\\@-]*"
_HOST = r"[A-Za-z0-9_][A-Za-z0-9_.%-]*|\[[0-9A-Fa-f:.%]+[A-Za-z0-9]*\]"
_TARGET = re.compile(rf"(?:(?P<user>{_USER})@)?(?P<host>{_HOST})(?::(?P<port>\d{{1,5}}))?/?")
_LAST_PORT = 65535

_PASSING = re.compile(
    r"connection (refused|reset|closed|timed out)|operation timed out|no route to host|"
    r"network is unreachable|host is down|broken pipe|timeout, server|connection to \S+ port \d+ timed out|"
    r"temporary failure in name resolution|exchange_identification|lost connection|banner exchange",
    re.IGNORECASE,
)


class SshTarget(msgspec.Struct, frozen=True, kw_only=True):
    """`[user@]host[:port]`; the host may be an alias of ssh's own configuration."""

    host: str
    user: str = ""
    port: int = 0

    @property
    def destination(self) -> str:
        """The word that ssh takes."""
        host = self.host.strip("[]")
        return f"{self.user}@{host}" if self.user else host

    @property
    def options(self) -> list[str]:
        """What else ssh has to be told; the rest is its configuration's to say."""
        return ["-p", str(self.port)] if self.port else []

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"{user}{self.host}{f':{self.port}' if self.port else ''}"


def parse_target(text: str) -> SshTarget:
    """Read `user@host[:port]` or `ssh://…`; refuse what ssh could take for an option or a shell for more."""
    found = _TARGET.fullmatch(text.strip().removeprefix(SCHEME))
    port = int(found["port"] or 0) if found else 0
    if found is None or port > _LAST_PORT or (found["port"] and not port):
        raise UsageError(
            f"{text!r} is no host to reach by ssh",
            hint="Write it as user@host, user@host:port, or as a name from your ssh configuration.",
        )
    return SshTarget(host=found["host"], user=found["user"] or "", port=port)


def complaint(target: SshTarget, said: str) -> HoldfastError:
    """What ssh said when it could not connect, as an error: may it pass, and what is there to do?"""
    text = said.lower()
    port = f"-p {target.port} " if target.port else ""
    by_hand = f"ssh {port}{target.destination}"
    if "identification has changed" in text:
        return HostUnusableError(
            f"the host key of {target} is not the one that this machine knows",
            hint="Somebody may be in between, or the host was set up anew. Compare its fingerprint; only if "
            f"it is right, forget the old key (ssh-keygen -R) and connect once by hand: {by_hand}",
        )
    if "host key verification failed" in text or "host key is known" in text:
        return HostUnusableError(
            f"the host key of {target} is not known here, and holdfast never accepts one by itself",
            hint=f"Connect once by hand and compare the fingerprint: {by_hand}",
        )
    if "permission denied" in text or "too many authentication failures" in text:
        return HostUnusableError(
            f"{target} accepts no key of this user",
            hint=f"Put your key there (ssh-copy-id) or into your agent (ssh-add) until this works without "
            f"asking: ssh -o BatchMode=yes {by_hand.removeprefix('ssh ')} true",
        )
    if "could not resolve" in text and "temporary failure" not in text:
        return HostUnusableError(
            f"there is no host {target.host}: its name cannot be resolved",
            hint="Correct the name, or add it to your ssh configuration.",
        )
    return _of_the_way(target, said, by_hand)


def _of_the_way(target: SshTarget, said: str, by_hand: str) -> HoldfastError:
    """What is left when the host itself has refused nothing."""
    text = said.lower()
    if f"unknown port {_LAST_PORT}" in text:  # what ssh calls the other end of a command
        return HostUnusableError(
            f"the jump host or proxy command on the way to {target} ended before ssh could speak through it",
            hint=f"Find out why this does not work: {by_hand} -- and see its ProxyJump or ProxyCommand in "
            "your ssh configuration.",
        )
    words = _last_line(said)
    if _PASSING.search(text):
        return HostUnreachableError(
            f"{target} cannot be reached by ssh: {words}",
            hint=f"See that the host is up and that this works: {by_hand} -- then run this command again.",
        )
    return HostUnusableError(
        f"ssh to {target} failed: {words}", hint=f"Find out why this does not work: {by_hand}"
    )


def _last_line(said: str) -> str:
    lines = [line.strip().removeprefix("ssh: ") for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "it did not say why"
