"""Carries faults out, one function each; every one says whether the client's connection stays usable.

Waiting here is the fault itself: a stall ends when its time is up or the client leaves.
Not here: when a fault strikes (`decide`) and how made-up answers read (`answers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TypeAlias

from holdfast.testing.faults.answers import error_event, made_up
from holdfast.testing.faults.connection import Exchange, Response
from holdfast.testing.faults.rules import Fault
from holdfast.testing.faults.wire import Framing, ending, framed, head_bytes, status_line

Injector: TypeAlias = Callable[[Exchange, Fault], Awaitable[bool]]

_STALL = 30.0
_SLOW = 1.0
_ENORMOUS = 256 * 1024 * 1024
_PAD = b"x" * (64 * 1024)
_CHUNKED = Framing(chunked=True)
_OK = 200


async def carry_out(exchange: Exchange, fault: Fault | None) -> bool:
    """Deal with one request; true when the client may send another."""
    if fault is None:
        return await exchange.relay(await exchange.forward())
    return await _INJECTORS.get(fault.kind, _answer)(exchange, fault)


async def _reset_before(exchange: Exchange, _fault: Fault) -> bool:
    exchange.client.reset()
    return False


async def _reset_after(exchange: Exchange, _fault: Fault) -> bool:
    await (await exchange.forward()).drain()
    exchange.client.reset()
    return False


async def _stall_headers(exchange: Exchange, fault: Fault) -> bool:
    if fault.commit:
        await (await exchange.forward()).drain()
    await _stall(exchange, fault)
    return False


async def _stall_body(exchange: Exchange, fault: Fault) -> bool:
    await _send_part(exchange, fault)
    await _stall(exchange, fault)
    return False


async def _truncated(exchange: Exchange, fault: Fault) -> bool:
    await _send_part(exchange, fault)
    exchange.client.close()
    return False


async def _send_part(exchange: Exchange, fault: Fault) -> None:
    response = await exchange.forward()
    with exchange.client.streaming():
        async with aclosing(response.pieces()) as pieces:
            content = await anext(pieces, b"")
        cut = len(content) // 2 if fault.bytes is None else min(fault.bytes, max(len(content) - 1, 0))
        # A chunk announces its whole size before it is cut.
        part = (
            framed(content, response.framing)[: cut - len(content) - 2]
            if response.framing.chunked
            else content[:cut]
        )
        await exchange.client.send(exchange.answer_head(response) + part)


async def _stall(exchange: Exchange, fault: Fault) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(
            exchange.client.gone.wait(), _STALL if fault.seconds is None else fault.seconds
        )
    exchange.client.reset()


async def _slow(exchange: Exchange, fault: Fault) -> bool:
    # The client may leave meanwhile; its request is on its way all the same.
    never = asyncio.Event()
    with suppress(TimeoutError):
        await asyncio.wait_for(never.wait(), _SLOW if fault.seconds is None else fault.seconds)
    return await exchange.relay(await exchange.forward())


async def _answer(exchange: Exchange, fault: Fault) -> bool:
    if fault.commit:
        await (await exchange.forward()).drain()
    answer = made_up(fault)
    exchange.record.status = answer.status
    length = ("Content-Length", str(len(answer.body)))
    headers = (("Content-Type", answer.content_type), *answer.headers, length)
    await exchange.client.send(head_bytes(status_line(answer.status), headers) + answer.body)
    return True


async def _enormous(exchange: Exchange, fault: Fault) -> bool:
    if fault.commit:
        await (await exchange.forward()).drain()
    status = _OK if fault.status is None else fault.status
    exchange.record.status = status
    headers = (("Content-Type", "application/json"), ("Transfer-Encoding", "chunked"))
    left = _ENORMOUS if fault.bytes is None else fault.bytes
    with exchange.client.streaming():
        await exchange.client.send(head_bytes(status_line(status), headers))
        await exchange.client.send(framed(b'{"kind":"Status","apiVersion":"v1","message":"', _CHUNKED))
        while left > 0:
            await exchange.client.send(framed(_PAD[:left], _CHUNKED))
            left -= len(_PAD)
        await exchange.client.send(framed(b'"}', _CHUNKED) + ending(_CHUNKED))
    return True


async def _wrong_content_type(exchange: Exchange, _fault: Fault) -> bool:
    response = await exchange.forward()
    response.head.headers = [*response.head.without("content-type"), ("Content-Type", "text/plain")]
    return await exchange.relay(response)


async def _stream(exchange: Exchange, fault: Fault) -> bool:
    response = await exchange.forward()
    if response.head.status != _OK:
        return await exchange.relay(response)
    client = exchange.client
    with client.streaming():
        await exchange.start_answer(response, _CHUNKED)
        async with aclosing(_lines(response, fault.events or 0)) as lines:
            async for line in lines:
                await client.send(framed(line, _CHUNKED))
        response.link.close()
        if fault.kind == "drop-stream":
            client.reset()
            return False
        if fault.kind != "end-stream":
            await client.send(framed(error_event(fault), _CHUNKED))
        await client.send(ending(_CHUNKED))
    return True


async def _lines(response: Response, limit: int) -> AsyncGenerator[bytes, None]:
    """The first events of a watch, one line each."""
    rest = b""
    if limit == 0:
        return
    async with aclosing(response.pieces()) as pieces:
        async for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line + b"\n"
                limit -= 1
                if limit == 0:
                    return


_INJECTORS: dict[str, Injector] = {
    "reset-before": _reset_before,
    "reset-after": _reset_after,
    "refuse": _reset_before,
    "truncated": _truncated,
    "stall-headers": _stall_headers,
    "stall-body": _stall_body,
    "slow": _slow,
    "enormous": _enormous,
    "wrong-content-type": _wrong_content_type,
    "event-gone": _stream,
    "event-too-many-requests": _stream,
    "event-garbage": _stream,
    "end-stream": _stream,
    "drop-stream": _stream,
}
