"""Inject faults into requests; each injector returns whether the client's connection stays usable.

Delays are the fault: a stall ends after its duration, or when the client disconnects.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from email.utils import formatdate
from typing import Any, NamedTuple, TypeAlias

from holdfast.testing.faults.client_connection import ProxyExchange, UpstreamResponse
from holdfast.testing.faults.http1 import (
    BodyFraming,
    encode_body_piece,
    encode_head,
    end_of_body,
    status_line,
)
from holdfast.testing.faults.rules import FAULT_KINDS, Fault

_JSON_TYPE = "application/json"
_HTML_PAGE = b"<html><head><title>Error</title></head><body><h1>Error</h1><p>nginx</p></body></html>\n"
# Status (None: that of the fault), content type and body.
_RESPONSES: dict[str, tuple[int | None, str, bytes]] = {
    "html": (None, "text/html; charset=utf-8", _HTML_PAGE),
    "bad-gateway": (502, "text/html", _HTML_PAGE),
    "request-timeout": (408, "text/html", _HTML_PAGE),
    "empty": (None, _JSON_TYPE, b""),
    "invalid-utf8": (None, _JSON_TYPE, b'{"kind":"Status","message":"\xff\xfe\xc3\x28"}'),
}


class _ErrorStatus(NamedTuple):
    code: int
    reason: str
    message: str


_ERROR_STATUSES = {
    "unauthorized": _ErrorStatus(401, "Unauthorized", "Unauthorized"),
    "gone": _ErrorStatus(410, "Expired", "The provided resource version is too old."),
    "too-many-requests": _ErrorStatus(429, "TooManyRequests", "too many requests, please try again later"),
    "internal-error": _ErrorStatus(500, "InternalError", "Internal error occurred: injected"),
    "leader-changed": _ErrorStatus(500, "", "etcdserver: leader changed"),
    "server-timeout": _ErrorStatus(
        500, "ServerTimeout", "The operation could not be completed at this time, please try again."
    ),
    "unavailable": _ErrorStatus(
        503, "ServiceUnavailable", "the server is currently unable to handle the request"
    ),
    "gateway-timeout": _ErrorStatus(
        504, "Timeout", "Timeout: request did not complete within the allotted time"
    ),
    "event-gone": _ErrorStatus(410, "Expired", "too old resource version: 1 (2)"),
    "event-too-many-requests": _ErrorStatus(429, "TooManyRequests", "storage is (re)initializing"),
}


def status_object(fault: Fault) -> dict[str, Any]:
    """Return the `Status` of the API server; its details repeat a Retry-After in seconds."""
    refusal = _ERROR_STATUSES[fault.kind]
    content: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "code": refusal.code,
    }
    if refusal.reason:
        content["reason"] = refusal.reason
    form = fault.retry_after
    if isinstance(form, str) and form.isdecimal():
        content["details"] = {"retryAfterSeconds": int(form)}
    return content


def error_event(fault: Fault) -> bytes:
    """Return the watch event that reports an error."""
    if fault.kind == "event-garbage":
        return b'{"type":"MODIFIED","object":{"kind":"Po\xff\n'
    return json.dumps({"type": "ERROR", "object": status_object(fault)}).encode() + b"\n"


def retry_after_headers(form: str | tuple[str, ...] | None) -> tuple[tuple[str, str], ...]:
    """Return the Retry-After header in a form, with the Date to which an HTTP date refers."""
    now = time.time()
    date = ("Date", formatdate(now, usegmt=True))
    if form is None or form == "absent" or not isinstance(form, str):
        return (date,)
    if form.startswith("date:"):
        form = formatdate(now + int(form.removeprefix("date:")), usegmt=True)
    return (date, ("Retry-After", form))


Injector: TypeAlias = Callable[[ProxyExchange, Fault], Awaitable[bool]]

_ENORMOUS_BYTES = 256 * 1024 * 1024
_PADDING = b"x" * (64 * 1024)
_CHUNKED = BodyFraming(chunked=True)
_OK = 200


async def handle_request(exchange: ProxyExchange, fault: Fault | None) -> bool:
    """Handle one request with an optional fault; returns whether the client can send another."""
    if fault is None:
        return await exchange.relay(await exchange.forward())
    if fault.commit or fault.kind == "reset-after":
        await (await exchange.forward()).drain()
    return await _INJECTORS.get(fault.kind, _respond)(exchange, fault)


async def _reset(exchange: ProxyExchange, _fault: Fault) -> bool:
    exchange.client.reset()
    return False


async def _stall(exchange: ProxyExchange, fault: Fault) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(exchange.client.disconnected.wait(), fault.duration)
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
    response = await exchange.forward()
    with exchange.client.streaming():
        async with aclosing(response.iter_body()) as pieces:
            content = await anext(pieces, b"")
        cut = len(content) // 2 if fault.bytes is None else min(fault.bytes, max(len(content) - 1, 0))
        # A chunk announces its full size before it is cut.
        part = (
            encode_body_piece(content, response.framing)[: cut - len(content) - 2]
            if response.framing.chunked
            else content[:cut]
        )
        await exchange.client.send(exchange.response_head(response) + part)


async def _slow(exchange: ProxyExchange, fault: Fault) -> bool:
    # The request continues even if the client disconnects meanwhile.
    never = asyncio.Event()
    with suppress(TimeoutError):
        await asyncio.wait_for(never.wait(), fault.duration)
    return await exchange.relay(await exchange.forward())


async def _respond(exchange: ProxyExchange, fault: Fault) -> bool:
    headers: tuple[tuple[str, str], ...] = ()
    if fault.kind in _RESPONSES:
        fixed_status, content_type, body = _RESPONSES[fault.kind]
        status = fixed_status or fault.status or _OK
    else:
        status, content_type = _ERROR_STATUSES[fault.kind].code, _JSON_TYPE
        body = json.dumps(status_object(fault)).encode()
        headers = retry_after_headers(fault.retry_after)
    exchange.record.status = status
    headers = (("Content-Type", content_type), *headers, ("Content-Length", str(len(body))))
    await exchange.client.send(encode_head(status_line(status), headers) + body)
    return True


async def _send_enormous_body(exchange: ProxyExchange, fault: Fault) -> bool:
    status = fault.status or _OK
    exchange.record.status = status
    headers = (("Content-Type", "application/json"), ("Transfer-Encoding", "chunked"))
    left = _ENORMOUS_BYTES if fault.bytes is None else fault.bytes
    with exchange.client.streaming():
        await exchange.client.send(encode_head(status_line(status), headers))
        await exchange.client.send(
            encode_body_piece(b'{"kind":"Status","apiVersion":"v1","message":"', _CHUNKED)
        )
        while left > 0:
            await exchange.client.send(encode_body_piece(_PADDING[:left], _CHUNKED))
            left -= len(_PADDING)
        await exchange.client.send(encode_body_piece(b'"}', _CHUNKED) + end_of_body(_CHUNKED))
    return True


async def _wrong_content_type(exchange: ProxyExchange, _fault: Fault) -> bool:
    response = await exchange.forward()
    response.head.headers = [*response.head.without("content-type"), ("Content-Type", "text/plain")]
    return await exchange.relay(response)


async def _inject_into_watch(exchange: ProxyExchange, fault: Fault) -> bool:
    response = await exchange.forward()
    if response.head.status != _OK:
        return await exchange.relay(response)
    client = exchange.client
    with client.streaming():
        await client.send(exchange.response_head(response, chunked=True))
        async with aclosing(_watch_lines(response, fault.events or 0)) as lines:
            async for line in lines:
                await client.send(encode_body_piece(line, _CHUNKED))
        response.connection.close()
        if fault.kind == "drop-stream":
            client.reset()
            return False
        if fault.kind != "end-stream":
            await client.send(encode_body_piece(error_event(fault), _CHUNKED))
        await client.send(end_of_body(_CHUNKED))
    return True


async def _watch_lines(response: UpstreamResponse, limit: int) -> AsyncGenerator[bytes, None]:
    """Yield the first events of a watch, one line each."""
    rest = b""
    if limit == 0:
        return
    async with aclosing(response.iter_body()) as pieces:
        async for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line + b"\n"
                limit -= 1
                if limit == 0:
                    return


_INJECTORS: dict[str, Injector] = {
    "reset-before": _reset,
    "reset-after": _reset,
    "refuse": _reset,
    "truncated": _truncate,
    "stall-headers": _stall,
    "stall-body": _stall_body,
    "slow": _slow,
    "enormous": _send_enormous_body,
    "wrong-content-type": _wrong_content_type,
    **{kind: _inject_into_watch for kind, description in FAULT_KINDS.items() if description.watch_only},
}
