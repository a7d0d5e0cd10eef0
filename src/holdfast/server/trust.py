"""Whom the server believes: its certificate, the CA of its clients, and what happens when they are renewed.

The files are those of mounted Secrets, and change under a running server. New connections then meet the new
ones; a connection whose client came in under another CA, or whose certificate has ended since, is cut, and no
session is resumed past the check. Not here: listening (serve.py).
"""

from __future__ import annotations

import hashlib
import logging
import ssl
import time
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import DamagedFileError
from holdfast.retry import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_LOOK_EVERY = 1.0
_log = logging.getLogger("holdfast.server")


class Client(msgspec.Struct, frozen=True):
    """Who is at the other end of a connection."""

    name: str
    fingerprint: str
    ends: float
    """when the certificate ends, in seconds since 1970"""
    generation: int
    """under which CA it was let in"""


class _Context(ssl.SSLContext):
    """A TLS context that knows under which CA it lets clients in."""

    generation = 0


class Trust:
    """The TLS context that is listened with, kept as the files say."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path) -> None:
        self._files = (certificate, key, client_ca)
        self.generation = 1
        self._content = self._read()
        self._current = self._made(self._content, self.generation)
        self._trouble = ""
        self.context = self._made(self._content, self.generation)
        # Asked at the start of each handshake: certificate and CA are those of the context that is set here.
        self.context.sni_callback = self._choose

    def client(self, connection: Any) -> Client | None:
        """Who is at the other end of a TLS connection."""
        shown = connection.getpeercert() if connection is not None else None
        if not shown:
            return None
        names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
        return Client(
            name=names[0] if names else "",
            fingerprint=hashlib.sha256(connection.getpeercert(binary_form=True)).hexdigest(),
            ends=float(ssl.cert_time_to_seconds(shown["notAfter"])),
            # Not the newest: a CA may have been renewed while hands were shaken.
            generation=connection.context.generation,
        )

    def holds(self, client: Client | None) -> bool:
        """Whether a client that was let in would be let in now."""
        return client is not None and client.generation == self.generation and time.time() < client.ends

    def renew(self) -> bool:
        """Take up files that have changed, and say if there were such; bad ones change nothing."""
        try:
            content = self._read()
            if content == self._content:
                return False
            renewed = content[-1] != self._content[-1]
            made = self._made(content, self.generation + renewed)
        except DamagedFileError as error:
            # Two Secrets do not change at the same moment: what does not fit together is looked at again.
            if str(error) != self._trouble:
                _log.warning("%s; the former ones stay in use", error)
            self._trouble = str(error)
            return False
        self._trouble = ""
        if renewed:
            self.generation = made.generation
            _log.info("the CA of the clients was renewed; those of the former one are not let in any more")
        self._content, self._current = content, made
        return True

    async def watch(self, connections: Callable[[], Iterable[Any]]) -> None:
        """Look at the files for ever, and cut the connections of clients that are not trusted any more."""
        while True:
            await clock.apause(_LOOK_EVERY, None)
            self.renew()
            for connection in list(connections()):
                if not self.holds(connection.app_state.get("client")):
                    connection.transport.abort()

    def _choose(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _read(self) -> tuple[bytes, ...]:
        try:
            return tuple(path.read_bytes() for path in self._files)
        except OSError as error:
            raise _unusable(error) from error

    def _made(self, content: tuple[bytes, ...], generation: int) -> _Context:
        context = _Context(ssl.PROTOCOL_TLS_SERVER)
        context.generation = generation
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        # A resumed session would bring along a client that was believed once.
        context.num_tickets = 0
        try:
            context.load_verify_locations(cadata=content[-1].decode("ascii") or "\n")
            context.load_cert_chain(*self._files[:2], password=lambda: "")
        except (OSError, ValueError) as error:  # of which ssl's errors are a kind
            raise _unusable(error) from error
        return context


def _unusable(error: Exception) -> DamagedFileError:
    why = getattr(error, "strerror", None) or type(error).__name__
    return DamagedFileError(
        f"the server's certificates cannot be used: {why}",
        hint="`holdfast up` looks at them and makes new ones where they are not good.",
    )
