"""The connection to a gateway's API: requests that are made again, streams that are not.

A plain request is retried by policy where it may arrive twice. A stream is only opened again while nothing
of it has begun; once bytes have flowed, its end is an error for whoever reads. After a call that did not get
through, the way to the gateway is looked up anew: ports, tunnels and certificates change.
Not here: what is asked for (handle.py), and what failures are called (problems.py).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from holdfast.errors import ClusterRefusedError, HoldfastError, SandboxMissingError
from holdfast.kube.reach import ApiRefusedError, verified_context
from holdfast.retry import Budget, Policy, current_deadline, exponential
from holdfast.sandbox.sdk import problems

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType
    from typing import Self

    from holdfast.retry.policy import Sink
    from holdfast.sandbox.sdk.access import Access, Find

T = TypeVar("T")

_ATTEMPTS = 4
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 30.0
_HANG_UP_SECONDS = 1.0
_LARGEST_PROBLEM = 1 << 16
_LARGEST_FRAME = 1 << 24
_REFUSED = 400
_KEEP_ALIVE = {
    getattr(socket, name): value
    for name, value in {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}.items()
    if hasattr(socket, name)
}


class Connection:
    """One gateway's API for one event loop; opens nothing until the first call."""

    def __init__(self, find: Find, *, on_retry: Sink | None = None) -> None:
        self._find = find
        self.on_retry = on_retry
        """told of every request that is made again, and of every wait that goes on over a new stream"""
        self._access: Access | None = None
        self._session: aiohttp.ClientSession | None = None
        self._opening = asyncio.Lock()
        calls = Policy(
            attempts=_ATTEMPTS,
            backoff=exponential(0.2, cap=5.0),
            retry_on=problems.may_be_sent_again,
            retry_after=problems.asked_wait,
            budget=Budget(10.0),
            on_retry=on_retry,
        )
        self._calls = calls
        self._openings = calls.with_(retry_on=problems.was_not_carried_out)

    async def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: Any = None,
        body: msgspec.Struct | None = None,
    ) -> T:
        """One request that may safely arrive twice, and its answer."""
        return (await self.call_with_status(method, path, answer, query=query, body=body))[1]

    async def call_with_status(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: Any = None,
        body: msgspec.Struct | None = None,
    ) -> tuple[int, T]:
        """The same with the HTTP status, where two kinds of success are told apart."""
        headers = {"Content-Type": "application/json"} if body is not None else None
        data = msgspec.json.encode(body) if body is not None else None
        lost = False

        async def once() -> tuple[int, bytes]:
            session = await self._opened()
            async with session.request(
                method, path, params=query, data=data, headers=headers, timeout=_answer_timeout()
            ) as response:
                return response.status, await response.read()

        async def attempt() -> tuple[int, bytes]:
            nonlocal lost
            try:
                return await self._translated(once)
            except SandboxMissingError as error:
                if lost:
                    raise problems.GoneMeanwhileError(error.message, hint=error.hint) from error
                raise
            except problems.AnswerLostError:
                lost = True
                raise

        status, content = await self._calls.with_(operation=f"{method} {path}").acall(attempt)
        return status, decoded(content, answer)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, query: Any = None, body: Callable[[], Any] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A request whose answer, or whose body, is as long as it is; `body` makes the body's chunks."""
        headers = {"Content-Type": "application/x-tar"} if body is not None else None

        async def once() -> aiohttp.ClientResponse:
            session = await self._opened()
            data = body() if body is not None else None
            return await session.request(
                method, path, params=query, data=data, headers=headers, timeout=_stream_timeout()
            )

        policy = self._calls if method == "GET" else self._openings
        response = await policy.with_(operation=f"{method} {path}").acall(self._translated, once)
        try:
            yield response
        except (aiohttp.ClientError, ConnectionError) as error:
            if not problems.is_of_the_connection(error):
                raise
            raise self._failure(error) from error
        finally:
            response.close()

    @asynccontextmanager
    async def web_socket(
        self, path: str, *, query: Any = None
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse[bool]]:
        """A WebSocket; once it is open, its end is told and nothing is tried again."""

        async def once() -> aiohttp.ClientWebSocketResponse[bool]:
            session = await self._opened()
            return await session.ws_connect(path, params=query, max_msg_size=_LARGEST_FRAME)

        opened = await self._openings.with_(operation=f"open {path}").acall(self._translated, once)
        try:
            yield opened
        except (aiohttp.ClientError, ConnectionError) as error:
            if not problems.is_of_the_connection(error):
                raise
            raise self._failure(error) from error
        finally:
            await opened.close()

    @property
    def is_open(self) -> bool:
        """Whether there is anything to close."""
        return self._session is not None

    async def close(self) -> None:
        """Let go of everything; the next call opens it again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _translated(self, once: Callable[[], Awaitable[T]]) -> T:
        """One attempt; with certificates that are no longer good, the current ones are tried at once."""
        try:
            return await once()
        except HoldfastError as error:
            if not isinstance(error, ApiRefusedError) or not await self._look_again():
                raise
        except problems.FAILURES as error:
            failure = await self._diagnosed(error)
            changed = await self._look_again()
            if not (changed and isinstance(failure, ApiRefusedError)):
                raise failure from error
        try:
            return await once()
        except problems.FAILURES as error:
            raise self._failure(error) from error

    async def _diagnosed(self, error: Exception) -> HoldfastError:
        """The failure's name; a server that hangs up on everybody who shows this certificate refuses it."""
        access = self._access
        cut = isinstance(error, aiohttp.ServerDisconnectedError)
        if cut and access is not None and await hangs_up(access):
            return problems.certificate_refused(access, error)
        return self._failure(error)

    def _failure(self, error: Exception) -> HoldfastError:
        if isinstance(error, HoldfastError):
            return error
        assert self._access is not None  # noqa: S101 (a session is made with it)
        return problems.from_failure(error, self._access)

    async def _opened(self) -> aiohttp.ClientSession:
        async with self._opening:
            if self._session is None:
                if self._access is None:
                    self._access = await asyncio.to_thread(self._find)
                self._session = _session(self._access)
            return self._session

    async def _look_again(self) -> bool:
        """Whether the way to the gateway, or what is shown there, has changed since it was last looked up."""
        async with self._opening:
            found = await asyncio.to_thread(self._find)
            if found == self._access:
                return False
            self._access = found
            await self.close()
            return True


async def hangs_up(access: Access) -> bool:
    """Whether the server ends a connection before anything is asked: with TLS 1.3, that is its refusal."""
    address = urlsplit(access.url)
    tls = verified_context(access.ca, access.certificate, access.key)
    try:
        async with asyncio.timeout(_HANG_UP_SECONDS):
            reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=tls)
            try:
                return not await reader.read(1)
            finally:
                writer.close()
    except ssl.SSLError:
        return True
    except OSError:  # of which a timeout is a kind: it keeps the connection and waits for a request
        return False


def decoded(content: bytes, kind: type[T]) -> T:
    """An answer's body as the model it must be."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise ClusterRefusedError(
            f"the gateway's API answered with something else than a {kind.__name__}: {error}",
            hint="The gateway and this client differ in version: `holdfast up` brings both together.",
        ) from error


def _session(access: Access) -> aiohttp.ClientSession:
    tls = verified_context(access.ca, access.certificate, access.key)
    session = aiohttp.ClientSession(
        base_url=access.url,
        connector=aiohttp.TCPConnector(ssl=tls, limit=0, socket_factory=_kept_alive),
        cookie_jar=aiohttp.DummyCookieJar(),
        raise_for_status=_refused,
        timeout=_stream_timeout(),
        trust_env=False,
    )
    # The library would send a GET twice, and that is how a WebSocket begins: a command would run twice.
    session._retry_connection = False  # noqa: SLF001
    return session


def _kept_alive(address: Any) -> socket.socket:
    """A peer that has gone without a word is noticed by the kernel.

    A WebSocket's own ping would not do: a server that waits for a slow program reads none.
    """
    made = socket.socket(*address[:3])
    for option, value in _KEEP_ALIVE.items():
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return made


async def _refused(response: aiohttp.ClientResponse) -> None:
    """Called by the library with every answer, that of a WebSocket's opening too."""
    if response.status < _REFUSED:
        return
    body = await response.content.read(_LARGEST_PROBLEM)
    what = f"{response.method} {response.url.path}"
    raise problems.from_answer(response.status, body, response.headers, what=what)


def _answer_timeout() -> aiohttp.ClientTimeout:
    deadline = current_deadline()
    total = deadline.clip(_ANSWER_SECONDS) if deadline is not None else _ANSWER_SECONDS
    return aiohttp.ClientTimeout(total=max(total, 0.001), sock_connect=_CONNECT_SECONDS)


def _stream_timeout() -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
