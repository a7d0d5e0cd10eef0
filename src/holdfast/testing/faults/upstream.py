"""The real API server behind the proxy: address, credentials and pooled connections."""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from holdfast.errors import UsageError
from holdfast.kube import temporary_secret_file
from holdfast.testing.faults.http1 import (
    MAX_HEAD_BYTES,
    BadMessageError,
    BodyFraming,
    HttpHead,
    iter_body,
    read_head,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

# Below the 90 s after which kube-apiserver closes idle connections: a request must not meet the close.
_IDLE_SECONDS = 20.0
_BODILESS_STATUSES = frozenset({HTTPStatus.SWITCHING_PROTOCOLS, 204, 304})
_CERTIFICATE_KEYS = ("client-certificate", "client-key")


class UpstreamLostError(Exception):
    """The server could not be reached, or closed the connection during its response."""


class Upstream(NamedTuple):
    """Address and credentials of the server; `user` has the credentials that clients send themselves."""

    url: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    user: dict[str, Any] = {}  # noqa: RUF012 - never changed

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; raises `UsageError` if the URL is invalid."""
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError(f"upstream: {self.url!r} is not an http or https URL")
        return parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def upstream_from_kubeconfig(path: Path, context: str | None = None) -> Upstream:
    """Read the server and the client certificate of a kubeconfig."""
    content = _load_kubeconfig(path)
    named = context or content.get("current-context") or ""
    chosen = _named_entry(content, "contexts", "context", named, path)
    cluster = _named_entry(content, "clusters", "cluster", chosen.get("cluster", ""), path)
    user = _named_entry(content, "users", "user", chosen["user"], path) if chosen.get("user") else {}
    if cluster.get("proxy-url"):
        raise UsageError(f"{path}: proxy-url: the fault proxy does not support a proxy to the server")
    url = str(cluster.get("server", ""))
    tls = _tls_context(cluster, user, path.parent) if url.startswith("https") else None
    own = {key: value for key, value in user.items() if not key.startswith(_CERTIFICATE_KEYS)}
    if "tokenFile" in own:
        own["tokenFile"] = str(path.parent / own["tokenFile"])
    upstream = Upstream(url, tls, cluster.get("tls-server-name"), own)
    # Reject an invalid URL now, not at the first request.
    _ = upstream.address
    return upstream


def _load_kubeconfig(path: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: cannot be read as a kubeconfig: {error}", cause=error) from error
    if not isinstance(content, dict):
        raise UsageError(f"{path}: not a valid kubeconfig: not a mapping")
    return content


def _named_entry(content: dict[str, Any], listing: str, key: str, name: str, path: Path) -> dict[str, Any]:
    for entry in content.get(listing) or ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(key), dict):
            value: dict[str, Any] = entry[key]
            return value
    raise UsageError(f"{path}: {listing}: no entry named {name!r}")


def _tls_context(cluster: dict[str, Any], user: dict[str, Any], directory: Path) -> ssl.SSLContext:
    authority = _read_pem(cluster, "certificate-authority", directory)
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    # The server would choose HTTP/2 if it were offered; the proxy supports HTTP/1.1 only.
    context.set_alpn_protocols(["http/1.1"])
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = (_read_pem(user, name, directory) for name in _CERTIFICATE_KEYS)
    if certificate and key:
        load_key_pair(context, certificate, key)
    return context


def load_key_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate and its key; the ssl module reads them from files only."""
    with temporary_secret_file(certificate + b"\n" + key) as path:
        context.load_cert_chain(path)


def _read_pem(entry: dict[str, Any], name: str, directory: Path) -> bytes | None:
    if entry.get(f"{name}-data"):
        return base64.b64decode(entry[f"{name}-data"])
    return (directory / entry[name]).read_bytes() if entry.get(name) else None


class UpstreamConnection:
    """One connection to the server, and the response to its current request."""

    head: HttpHead
    framing: BodyFraming

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.idle_since: float | None = None

    async def send_request(self, content: bytes, method: str) -> None:
        """Send a request and read the head of its response; raises `UpstreamLostError`."""
        self.idle_since = None
        try:
            self.writer.write(content)
            await self.writer.drain()
            self.head = await self._read_final_head()
            has_body = method != "HEAD" and self.head.status not in _BODILESS_STATUSES
            self.framing = self.head.framing(BodyFraming()) if has_body else BodyFraming(length=0)
        except (OSError, BadMessageError) as error:
            raise UpstreamLostError(str(error)) from error

    async def _read_final_head(self) -> HttpHead:
        while head := await read_head(self.reader):
            if head.status >= HTTPStatus.SWITCHING_PROTOCOLS:
                return head
        raise BadMessageError("no response")

    async def iter_body(self) -> AsyncGenerator[bytes, None]:
        """Yield the body; once it is complete, the connection can be reused. Raises `UpstreamLostError`."""
        try:
            async for piece in iter_body(self.reader, self.framing):
                yield piece
        except (OSError, BadMessageError) as error:
            raise UpstreamLostError(str(error)) from error
        if not self.framing.until_close and not self.head.wants_close:
            self.idle_since = time.monotonic()

    @property
    def is_usable(self) -> bool:
        """Whether the last response is complete and the server has not closed the connection."""
        fresh = self.idle_since is not None and time.monotonic() - self.idle_since < _IDLE_SECONDS
        return fresh and not self.reader.at_eof() and not self.writer.is_closing()

    def close(self) -> None:
        """Close the connection immediately."""
        self.writer.transport.abort()


class UpstreamPool:
    """Idle connections to the server, most recently used first: a fault must not cost a TLS handshake."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._idle: list[UpstreamConnection] = []

    @property
    def host(self) -> str:
        """Value of the Host header."""
        return urlsplit(self._upstream.url).netloc

    async def acquire(self) -> UpstreamConnection:
        """Return an idle connection or a new one; raises `UpstreamLostError`."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
        host, port = self._upstream.address
        tls = self._upstream.tls
        name = (self._upstream.server_name or host) if tls is not None else None
        try:
            streams = await asyncio.open_connection(
                host, port, ssl=tls, server_hostname=name, limit=MAX_HEAD_BYTES
            )
        except OSError as error:
            raise UpstreamLostError(f"not reached: {error}") from error
        return UpstreamConnection(*streams)

    def release(self, connection: UpstreamConnection) -> None:
        """Keep a connection whose response is complete; close any other."""
        if connection.is_usable:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().close()
