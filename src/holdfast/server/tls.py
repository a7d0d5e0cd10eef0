"""TLS context of the server, reloaded when the mounted Secrets change.

New connections use the new files. Connections of clients that were accepted under a replaced CA, or whose
certificate has expired, are aborted. TLS sessions are never resumed, because resumption skips the certificate
check.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
import time
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import CorruptFileError
from holdfast.retry import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_RELOAD_INTERVAL = 1.0
_log = logging.getLogger("holdfast.server")


class PeerIdentity(msgspec.Struct, frozen=True):
    """Identity of the client of a TLS connection."""

    fingerprint: str
    expires_at: float
    """expiry of the certificate, in seconds since the epoch"""
    generation: int
    """generation of the client CA that accepted the certificate"""


class _ServerContext(ssl.SSLContext):
    """A TLS context with the generation of the client CA that it trusts."""

    generation = 0


class CertificateReloader:
    """Serve with the certificates of files, and reload them when the files change.

    Raises:
        CorruptFileError: the files cannot be read or do not fit together.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path) -> None:
        self._files = (certificate, key, client_ca)
        self.generation = 1
        self._file_contents = self._read_files()
        self._last_error = ""
        self.context = self._current_context = self._build_context(self._file_contents, self.generation)
        # OpenSSL calls this in each handshake: the listening context need not be replaced.
        self.context.sni_callback = self._select_context

    def client_identity(self, connection: Any) -> PeerIdentity | None:
        """Return the identity of the client of a TLS connection, or None without a certificate."""
        certificate = connection.getpeercert() if connection is not None else None
        if not certificate:
            return None
        return PeerIdentity(
            fingerprint=hashlib.sha256(connection.getpeercert(binary_form=True)).hexdigest(),
            expires_at=float(ssl.cert_time_to_seconds(certificate["notAfter"])),
            # The generation of this connection, not the current one: the CA may change during the
            # handshake.
            generation=connection.context.generation,
        )

    def is_trusted(self, client: PeerIdentity | None) -> bool:
        """Return whether the client of an open connection would still be accepted."""
        # OpenSSL checks the CA and the expiry in the handshake only; a connection can outlive both.
        return client is not None and client.generation == self.generation and time.time() < client.expires_at

    def reload(self) -> bool:
        """Load changed files; invalid files are logged and ignored.

        Returns:
            Whether new files are in use.
        """
        try:
            content = self._read_files()
            if content == self._file_contents:
                return False
            renewed = content[-1] != self._file_contents[-1]
            context = self._build_context(content, self.generation + renewed)
        except CorruptFileError as error:
            # Two Secrets do not change at the same moment; the next reload reads a consistent set.
            if str(error) != self._last_error:
                _log.warning("%s; the previous certificates stay in use", error)
            self._last_error = str(error)
            return False
        self._last_error = ""
        if renewed:
            self.generation = context.generation
            _log.info("the client CA was replaced; clients of the previous CA are disconnected")
        self._file_contents, self._current_context = content, context
        return True

    async def watch(self, connections: Callable[[], Iterable[Any]]) -> None:
        """Reload the files periodically and abort the connections of clients that are no longer trusted."""
        while True:
            await clock.asleep(_RELOAD_INTERVAL, None)
            self.reload()
            for connection in list(connections()):
                if not self.is_trusted(connection.app_state.get("client")):
                    # Not close(), which would first send buffered data to a client that is no longer trusted.
                    connection.transport.abort()

    def _select_context(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current_context

    def _read_files(self) -> tuple[bytes, ...]:
        try:
            return tuple(path.read_bytes() for path in self._files)
        except OSError as error:
            raise _unusable_certificates(error) from error

    def _build_context(self, file_contents: tuple[bytes, ...], generation: int) -> _ServerContext:
        context = _ServerContext(ssl.PROTOCOL_TLS_SERVER)
        context.generation = generation
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        # A resumed session skips the verification of the client certificate.
        context.num_tickets = 0
        try:
            context.load_verify_locations(cadata=file_contents[-1].decode("ascii") or "\n")
            # `ssl` reads key pairs from files only. If the files changed since `_read_files`, the next reload
            # finds the difference and builds another context.
            context.load_cert_chain(*self._files[:2], password=lambda: "")
        except (OSError, ValueError) as error:  # includes ssl.SSLError
            raise _unusable_certificates(error) from error
        return context


def _unusable_certificates(error: Exception) -> CorruptFileError:
    reason = getattr(error, "strerror", None) or type(error).__name__
    return CorruptFileError(
        f"server certificates: unusable: {reason}",
        hint="Repeat `up` for this gateway: it replaces invalid certificates.",
    )
