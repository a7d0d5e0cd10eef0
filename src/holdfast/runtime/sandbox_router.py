"""A router in front of many sandboxes: reads from the headers which one a request is for, and forwards it.

It behaves as the published one (`sandbox-router`). Environment variables:

    ROUTER_AUTH_TOKEN               clients must send `Authorization: Bearer <token>`
    ALLOW_UNAUTHENTICATED_ROUTER    `true`: start without a token
    PROXY_TIMEOUT_SECONDS           limit of each wait for a sandbox or client, default 180
    CLUSTER_DOMAIN                  default cluster.local
    ALLOW_LOOPBACK_POD_IP           `true`: sandboxes may be in the router's own network namespace

Each connection serves one request. Bodies are not buffered.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import ipaddress
import json
import math
import re
import socket
import struct
import sys
import traceback
from http import HTTPStatus
from typing import TYPE_CHECKING

from holdfast.runtime.http_message import CHUNK_SIZE, MAX_HEAD_BYTES, RequestHead, ResponseHead
from holdfast.runtime.http_request import HTTPError
from holdfast.runtime.request_slots import RequestSlots

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

PORT = 8080
# Above it, connections are closed at once. The other three leave connections for the health check. Each of
# these requests uses a second file descriptor; the sum is below the usual limit of 1024.
_MAX_CONNECTIONS = 512
_MAX_REQUESTS = 128
_MAX_UPGRADES = 256
_MAX_WAITING = 64
_HEAD_SECONDS = 10.0
_DIAL_SECONDS = 5.0
_DIAL_DELAYS = (0.2, 0.4, 0.8)
_UPGRADE_IDLE_SECONDS = 3600.0
_LINGER_SECONDS = 5.0
_MAX_PORT = 65535
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESET = struct.pack("ii", 1, 0)
_PORT = re.compile(r"[0-9]{1,5}")
_TRUE_WORDS = {"1", "true", "t", "yes", "y", "on"}
# The bearer token is for the router: the sandbox runs untrusted code.
_DROPPED_HEADERS = (
    "authorization", "x-sandbox-id", "x-sandbox-namespace", "x-sandbox-port", "x-sandbox-pod-ip",
    "x-sandbox-uid", "x-sandbox-timeout",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class RouterSettings:
    """The settings of a router; `token` is None if clients need none."""

    token: str | None = None
    timeout: float = 180.0
    cluster_domain: str = "cluster.local"
    allows_loopback: bool = False
    head_seconds: float = _HEAD_SECONDS
    dial_delays: Iterable[float] = _DIAL_DELAYS
    max_connections: int = _MAX_CONNECTIONS
    max_requests: int = _MAX_REQUESTS
    max_upgrades: int = _MAX_UPGRADES
    max_waiting: int = _MAX_WAITING

    @property
    def max_served(self) -> int:
        """How many connections can be in use for long; the others are for health checks and errors."""
        return self.max_requests + self.max_upgrades + self.max_waiting

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RouterSettings:
        """Read the settings; end the process if neither a token nor its absence is set."""
        token = environment.get("ROUTER_AUTH_TOKEN", "").strip() or None
        if token is None and not _is_true(environment, "ALLOW_UNAUTHENTICATED_ROUTER"):
            sys.exit(
                "ROUTER_AUTH_TOKEN must be set; "
                "for a router without authentication, set ALLOW_UNAUTHENTICATED_ROUTER=true"
            )
        text = environment.get("PROXY_TIMEOUT_SECONDS", "")
        timeout = _parse_seconds(text)
        if text and timeout is None:
            sys.stderr.write(f"PROXY_TIMEOUT_SECONDS is not a number of seconds: {text!r}\n")
        return cls(
            token=token,
            timeout=timeout or cls.timeout,
            cluster_domain=environment.get("CLUSTER_DOMAIN") or cls.cluster_domain,
            allows_loopback=_is_true(environment, "ALLOW_LOOPBACK_POD_IP"),
        )


def _is_true(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").strip().lower() in _TRUE_WORDS


def _parse_seconds(text: str) -> float | None:
    """Return a finite number greater than 0, or None."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


@dataclasses.dataclass(frozen=True)
class Target:
    """Where a request goes."""

    name: str
    host: str
    port: int
    timeout: float

    @classmethod
    def from_headers(cls, head: RequestHead, settings: RouterSettings) -> Target:
        """Return the sandbox that a request names.

        Nothing else is checked: a client can also reach other pods, including the router's own.
        """
        name = head.get("X-Sandbox-ID")
        if not name:
            raise HTTPError(400, "X-Sandbox-ID header is required.")
        if not _DNS_LABEL.fullmatch(name):
            raise HTTPError(400, "Invalid sandbox ID format.")
        namespace = head.get("X-Sandbox-Namespace") or "default"
        if not _DNS_LABEL.fullmatch(namespace):
            raise HTTPError(400, "Invalid namespace format.")
        port = head.get("X-Sandbox-Port") or "8888"
        if not (_PORT.fullmatch(port) and 0 < int(port) <= _MAX_PORT):
            raise HTTPError(400, "Invalid port format.")
        address = head.get("X-Sandbox-Pod-IP")
        host = f"{name}.{namespace}.svc.{settings.cluster_domain}"
        if address:
            host = _parse_pod_address(address, allows_loopback=settings.allows_loopback)
        asked = _parse_seconds(head.get("X-Sandbox-Timeout")) or settings.timeout
        return cls(name, host, int(port), min(asked, settings.timeout))

    @property
    def authority(self) -> str:
        """Host and port as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _parse_pod_address(text: str, *, allows_loopback: bool) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise HTTPError(400, "Invalid target IP address format.") from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        # In older Python versions, the properties below ignore an IPv4 address inside an IPv6 address.
        address = address.ipv4_mapped
    if (
        # The router's own network namespace, and the cloud's metadata service.
        (address.is_loopback and not allows_loopback)
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
    ):
        raise HTTPError(400, "Invalid target IP address.")
    return str(address)


class Exchange:
    """One request of a client and the response of its sandbox.

    `run` raises TimeoutError if nothing moves in either direction for the time of the target.
    """

    def __init__(
        self, head: RequestHead, target: Target, client: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ) -> None:
        self._head, self._target = head, target
        self._client_reader, self._client = client
        self._seconds = target.timeout
        self._is_upgraded = asyncio.get_running_loop().create_future()
        self.has_response = False

    async def run(self, slots: RequestSlots, dial_delays: Iterable[float]) -> None:
        """Wait for a slot, connect to the sandbox, and copy data in both directions."""
        slot = slots.hold(self._client, is_probed=self._head.version == "HTTP/1.1")
        async with asyncio.timeout(self._seconds) as self._limit, slot:
            self._sandbox_reader, self._sandbox = await _connect(self._target, dial_delays)
            for writer in (self._client, self._sandbox):
                # `drain` waits until the kernel has all data, so that closing loses none of it.
                writer.transport.set_write_buffer_limits(high=0)
            # Two tasks: if one side does not read, the other direction continues.
            sending = asyncio.create_task(self._send_request())
            receiving = asyncio.create_task(self._receive_response())
            try:
                await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    sending.result()
                await receiving
                if self._is_upgraded.result():
                    await sending
            finally:
                for task in (sending, receiving):
                    task.cancel()
                await asyncio.gather(sending, receiving, return_exceptions=True)
                self._sandbox.transport.abort()

    async def _send_request(self) -> None:
        try:
            if self._client.transport.is_closing():
                raise ConnectionResetError
            self._sandbox.write(self._head.encode_for_sandbox(self._target.authority, _DROPPED_HEADERS))
            await self._copy(self._head.read_body(self._client_reader), self._sandbox)
            # An upgraded connection continues with data of the client, so read nothing until that is known.
            if self._head.is_upgrade and await asyncio.shield(self._is_upgraded):
                await self._copy(_read_all(self._client_reader), self._sandbox)
            else:
                # Detects that the client disconnects. Further requests of the client are discarded.
                async for _ in _read_all(self._client_reader):
                    pass
            # The sandbox can terminate the command of a client that disconnected. A client that only closed
            # its sending side still receives the response.
            self._sandbox.write_eof()
        except ConnectionError:
            # The sandbox may have responded before it read the whole request.
            async for _ in _read_all(self._client_reader):
                pass

    async def _receive_response(self) -> None:
        response = await self._read_response_head()
        while response.is_interim:
            self._client.write(response.encode_for_client())
            await self._client.drain()
            response = await self._read_response_head()
        if response.is_switch and not self._head.is_upgrade:
            raise response.syntax_error()
        self.has_response = True
        self._client.write(response.encode_for_client())
        if response.is_switch:
            self._seconds = _UPGRADE_IDLE_SECONDS
            self._is_upgraded.set_result(True)
            await self._copy(_read_all(self._sandbox_reader), self._client)
            self._client.write_eof()
            self._seconds = self._target.timeout
            self._extend_limit()
            return
        self._is_upgraded.set_result(False)
        if response.has_body(self._head.method):
            await self._copy(response.read_body(self._sandbox_reader, is_until_close=True), self._client)
        await self._client.drain()

    async def _read_response_head(self) -> ResponseHead:
        try:
            return await ResponseHead.read(self._sandbox_reader)
        except (asyncio.IncompleteReadError, ConnectionError, HTTPError) as error:
            raise _unreachable(self._target) from error

    async def _copy(self, pieces: AsyncIterator[bytes], target: asyncio.StreamWriter) -> None:
        self._extend_limit()
        async for piece in pieces:
            target.write(piece)
            await target.drain()
            self._extend_limit()

    def _extend_limit(self) -> None:
        self._limit.reschedule(asyncio.get_running_loop().time() + self._seconds)


async def _read_all(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(CHUNK_SIZE):
        yield data


def _unreachable(target: Target) -> HTTPError:
    return HTTPError(502, f"Could not connect to the backend sandbox: {target.name}")


async def _connect(
    target: Target, delays: Iterable[float]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    remaining = iter(delays)
    while True:
        try:
            async with asyncio.timeout(_DIAL_SECONDS):
                return await asyncio.open_connection(target.host, target.port, limit=MAX_HEAD_BYTES)
        except OSError as error:
            delay = next(remaining, None)
            if delay is None:
                raise _unreachable(target) from error
        await asyncio.sleep(delay)


class Router:
    """Forwards each request to the sandbox that it names."""

    def __init__(self, settings: RouterSettings) -> None:
        self.settings = settings
        self._connections = 0
        # Upgraded connections are open for hours: they must not occupy the slots of requests.
        self._request_slots = RequestSlots(settings.max_requests, settings.max_waiting, "Too many requests.")
        self._upgrade_slots = RequestSlots(settings.max_upgrades, 0, "Too many upgraded connections.")

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections until the task is cancelled."""
        server = await asyncio.start_server(self._handle_client, sock=listener, limit=MAX_HEAD_BYTES)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()

    async def _handle_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= self.settings.max_connections:
            writer.transport.abort()
            return
        self._connections += 1
        try:
            await self._serve_request(reader, writer)
            writer.write_eof()
            if self._connections <= self.settings.max_served:
                # Closing with unread data would discard the response.
                async with asyncio.timeout(_LINGER_SECONDS):
                    async for _ in _read_all(reader):
                        pass
        except (OSError, asyncio.IncompleteReadError):
            # The client is gone, sends no request, or does not read.
            writer.transport.abort()
        finally:
            self._connections -= 1
            writer.close()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = None
        try:
            # Clients are not authenticated yet: one that sends nothing, or a byte at a time, must not stay.
            async with asyncio.timeout(self.settings.head_seconds):
                head = await RequestHead.read(reader)
            if head.method == "GET" and head.path == "/healthz":
                await _send_json(writer, 200, {"status": "ok"})
                return
            self._check_token(head)
            target = Target.from_headers(head, self.settings)
            exchange = Exchange(head, target, (reader, writer))
            await self._run_exchange(exchange, head, target)
        except Exception as error:
            is_lost = isinstance(error, OSError | asyncio.IncompleteReadError)
            if not (is_lost or isinstance(error, HTTPError)):
                traceback.print_exc()
                error = HTTPError(500, "An internal error occurred in the proxy.")
            if exchange is not None and exchange.has_response:
                # Reset instead of closed: the client must not take the response as complete.
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                raise ConnectionResetError from error
            if not isinstance(error, HTTPError):
                raise
            await _send_json(writer, error.status, {"detail": error.message})

    async def _run_exchange(self, exchange: Exchange, head: RequestHead, target: Target) -> None:
        slots = self._upgrade_slots if head.is_upgrade else self._request_slots
        try:
            await exchange.run(slots, self.settings.dial_delays)
        except TimeoutError as error:
            message = f"Timed out waiting for the backend sandbox: {target.name}"
            raise HTTPError(504, message) from error

    def _check_token(self, head: RequestHead) -> None:
        if self.settings.token is None:
            return
        words = head.get("Authorization").split()
        if len(words) != 2 or words[0].lower() != "bearer":  # noqa: PLR2004 (the scheme and the token)
            raise HTTPError(401, "Missing or invalid Authorization header.")
        if not hmac.compare_digest(words[1].encode("latin-1"), self.settings.token.encode()):
            raise HTTPError(401, "Invalid token.")


async def _send_json(writer: asyncio.StreamWriter, status: int, value: Mapping[str, str]) -> None:
    content = json.dumps(value).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + content)
    await writer.drain()


def serve(listener: socket.socket, settings: RouterSettings) -> None:
    """Run the router until the process ends."""

    async def run() -> None:
        await Router(settings).serve(listener)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())
