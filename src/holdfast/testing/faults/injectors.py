"""Inject faults into requests; each injector returns whether the client's connection stays usable.

Delays are the fault: a stall ends after its duration, or when the client disconnects.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing, suppress
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from holdfast.testing.faults.http1 import CHUNKED, synthetic_head
from holdfast.testing.faults.rules import FAULT_KINDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from holdfast.testing.faults.client_connection import ProxyExchange
    from holdfast.testing.faults.rules import Fault
    from holdfast.testing.faults.upstream import UpstreamConnection

_OK = 200
_JSON_TYPE = "application/json"
_HTML_PAGE = b"<html><head><title>Error</title></head><body><h1>Error</h1><p>nginx</p></body></html>\n"
_ENORMOUS_BYTES = 256 * 1024 * 1024
_PADDING = b"x" * (64 * 1024)

# Status (unless the fault sets one), content type and body of responses that are not a Kubernetes `Status`.
_FOREIGN_RESPONSES = {
    "html": (_OK, "text/html; charset=utf-8", _HTML_PAGE),
    "bad-gateway": (502, "text/html", _HTML_PAGE),
    "request-timeout": (408, "text/html", _HTML_PAGE),
    "empty": (_OK, _JSON_TYPE, b""),
    "invalid-utf8": (_OK, _JSON_TYPE, b'{"kind":"Status","message":"\xff\xfe\xc3\x28"}'),
}

# Code, reason and message of a Kubernetes `Status`.
_ERROR_STATUSES = {
    "unauthorized": (401, "Unauthorized", "Unauthorized"),
    "gone": (410, "Expired", "The provided resource version is too old."),
    "too-many-requests": (429, "TooManyRequests", "too many requests, please try again later"),
    "internal-error": (500, "InternalError", "Internal error occurred: injected"),
    "leader-changed": (500, "", "etcdserver: leader changed"),
    "server-timeout": (
        500,
        "ServerTimeout",
        "The operation could not be completed at this time, please try again.",
    ),
    "unavailable": (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    "gateway-timeout": (504, "Timeout", "Timeout: request did not complete within the allotted time"),
    "event-gone": (410, "Expired", "too old resource version: 1 (2)"),
    "event-too-many-requests": (429, "TooManyRequests", "storage is (re)initializing"),
}


def _status_object(fault: Fault) -> dict[str, Any]:
    """Return the `Status` of the API server; its details repeat a Retry-After in seconds."""
    code, reason, message = _ERROR_STATUSES[fault.kind]
    content: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "code": code,
    }
    if reason:
        content["reason"] = reason
    form = fault.retry_after
    if isinstance(form, str) and form.isdecimal():
        content["details"] = {"retryAfterSeconds": int(form)}
    return content


def _retry_after_headers(form: str | tuple[str, ...] | None) -> tuple[tuple[str, str], ...]:
    """Return the Retry-After header in a form, with the Date to which an HTTP date refers."""
    now = time.time()
    date = ("Date", formatdate(now, usegmt=True))
    if form == "absent" or not isinstance(form, str):
        return (date,)
    if form.startswith("date:"):
        form = formatdate(now + int(form.removeprefix("date:")), usegmt=True)
    return (date, ("Retry-After", form))


async def handle_request(exchange: ProxyExchange, fault: Fault | None) -> bool:
    """Handle one request.

    Args:
        exchange: The request.
        fault: The fault to inject, or None.

    Returns:
        Whether the client can send another request on its connection.

    Raises:
        UpstreamLostError: The server cannot be reached, or closed its connection.
    """
    if fault is None:
        return await exchange.relay(await exchange.forward())
    # Commit first: the client must not see the failure before the server has decided.
    if fault.commit or fault.kind == "reset-after":
        await exchange.discard_response()
    return await _INJECTORS.get(fault.kind, _respond)(exchange, fault)


async def _reset(exchange: ProxyExchange, _fault: Fault) -> bool:
    exchange.client.reset()
    return False


async def _stall(exchange: ProxyExchange, fault: Fault) -> bool:
    await _wait(exchange.client.disconnected, fault.duration)
    exchange.client.reset()
    return False


async def _stall_body(exchange: ProxyExchange, fault: Fault) -> bool:
    await _send_partial_response(exchange, fault)
    return await _stall(exchange, fault)


async def _truncate(exchange: ProxyExchange, fault: Fault) -> bool:
    await _send_partial_response(exchange, fault)
    exchange.client.close()
    return False


async def _send_partial_response(exchange: ProxyExchange, fault: Fault) -> None:
    server = await exchange.forward()
    with exchange.client.streaming():
        async with aclosing(server.iter_body()) as pieces:
            content = await anext(pieces, b"")
        cut = len(content) // 2 if fault.bytes is None else min(fault.bytes, max(len(content) - 1, 0))
        part = content[:cut]
        if server.framing.chunked:
            # A chunk announces its full size before it is cut.
            part = CHUNKED.encode(content)[: cut - len(content) - 2]
        await exchange.send_response(server, part)


async def _slow(exchange: ProxyExchange, fault: Fault) -> bool:
    # The request continues even if the client disconnects meanwhile.
    await _wait(asyncio.Event(), fault.duration)
    return await exchange.relay(await exchange.forward())


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


async def _respond(exchange: ProxyExchange, fault: Fault) -> bool:
    headers: tuple[tuple[str, str], ...] = ()
    if fault.kind in _FOREIGN_RESPONSES:
        status, content_type, body = _FOREIGN_RESPONSES[fault.kind]
    else:
        status, content_type = _ERROR_STATUSES[fault.kind][0], _JSON_TYPE
        body, headers = json.dumps(_status_object(fault)).encode(), _retry_after_headers(fault.retry_after)
    status = exchange.record.status = fault.status or status
    length = ("Content-Length", str(len(body)))
    head = synthetic_head(status, ("Content-Type", content_type), *headers, length)
    await exchange.client.send(head + body)
    return True


async def _send_enormous_body(exchange: ProxyExchange, fault: Fault) -> bool:
    status = exchange.record.status = fault.status or _OK
    left = _ENORMOUS_BYTES if fault.bytes is None else fault.bytes
    client = exchange.client
    with client.streaming():
        head = synthetic_head(status, ("Content-Type", _JSON_TYPE), ("Transfer-Encoding", "chunked"))
        await client.send(head + CHUNKED.encode(b'{"kind":"Status","apiVersion":"v1","message":"'))
        while left > 0:
            await client.send(CHUNKED.encode(_PADDING[:left]))
            left -= len(_PADDING)
        await client.send(CHUNKED.encode(b'"}') + CHUNKED.end)
    return True


async def _wrong_content_type(exchange: ProxyExchange, _fault: Fault) -> bool:
    server = await exchange.forward()
    server.head.headers = [*server.head.without("content-type"), ("Content-Type", "text/plain")]
    return await exchange.relay(server)


async def _inject_into_watch(exchange: ProxyExchange, fault: Fault) -> bool:
    server = await exchange.forward()
    if server.head.status != _OK:
        return await exchange.relay(server)
    # The proxy inserts and drops events, so the length that the server declared does not apply.
    others = server.head.without("content-length", "transfer-encoding")
    server.head.headers = [*others, ("Transfer-Encoding", "chunked")]
    client = exchange.client
    with client.streaming():
        await exchange.send_response(server)
        async with aclosing(_watch_lines(server, fault.events or 0)) as lines:
            async for line in lines:
                await client.send(CHUNKED.encode(line))
        if fault.kind == "drop-stream":
            client.reset()
            return False
        await client.send(_last_event(fault) + CHUNKED.end)
    return True


def _last_event(fault: Fault) -> bytes:
    """Return the encoded event that ends a watch, empty for a regular end."""
    if fault.kind == "end-stream":
        return b""
    if fault.kind == "event-garbage":
        return CHUNKED.encode(b'{"type":"MODIFIED","object":{"kind":"Po\xff\n')
    return CHUNKED.encode(json.dumps({"type": "ERROR", "object": _status_object(fault)}).encode() + b"\n")


async def _watch_lines(server: UpstreamConnection, limit: int) -> AsyncGenerator[bytes, None]:
    """Yield the first events of a watch, one line each."""
    rest = b""
    if limit == 0:
        return
    async with aclosing(server.iter_body()) as pieces:
        async for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line + b"\n"
                limit -= 1
                if limit == 0:
                    return


_INJECTORS: dict[str, Callable[[ProxyExchange, Fault], Awaitable[bool]]] = {
    "reset-before": _reset,
    "reset-after": _reset,
    "refuse": _reset,
    "truncated": _truncate,
    "stall-headers": _stall,
    "stall-body": _stall_body,
    "slow": _slow,
    "enormous": _send_enormous_body,
    "wrong-content-type": _wrong_content_type,
    **{name: _inject_into_watch for name, kind in FAULT_KINDS.items() if kind.is_watch_only},
}
