"""Opening a stream into a pod is retryable only if nothing can have started."""

from __future__ import annotations

import asyncio
import socket

import pytest
from kubernetes.aio import client
from tests.support.gateway_api_server import LOOPBACK, free_ports

from holdfast.errors import ApiRequestRejectedError, TemporaryError
from holdfast.server.errors import PodResponseLostError, as_api_error
from holdfast.server.namespace_client import NamespaceClient
from holdfast.server.sandboxes import PodTarget

REFUSED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
GARBLED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
BEGINNING = b"HTTP/1.1 101 Switch"


async def opened(port, scheme="http", **options):
    """Return the error of an attempt to run a command."""
    async with client.ApiClient(client.Configuration(host=f"{scheme}://{LOOPBACK}:{port}")) as api:
        with pytest.raises((TemporaryError, PodResponseLostError, ApiRequestRejectedError)) as caught:
            await NamespaceClient(api, "ns", **options).open_exec_stream(PodTarget("p", "c"), ["x"])
    return caught.value


async def answered(answer):
    """Return the error when a server sends this response and disconnects, and the number of requests."""
    requests = []

    async def serve(reader, writer):
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
        error = await opened(server.sockets[0].getsockname()[1])
    return error, len(requests)


def shown(error):
    found = as_api_error(error)
    return found.status, found.headers.get("Retry-After"), found.problem.code


def test_unreachable_or_rejecting_cluster_means_not_started():
    (nobody,) = free_ports(1)
    assert shown(asyncio.run(opened(nobody)))[:2] == (503, "1")
    error, requests = asyncio.run(answered(REFUSED))
    assert (shown(error)[:2], requests) == ((503, "1"), 1)


def test_timeout_before_the_request_means_not_started():
    with socket.create_server((LOOPBACK, 0)) as server:  # nobody answers the TLS handshake
        error = asyncio.run(opened(server.getsockname()[1], "https", open_timeout=0.05))
    assert shown(error)[:2] == (503, "1")


@pytest.mark.parametrize("status", [401, 403])
def test_rejected_credentials_are_not_retried(status):
    answer = b"HTTP/1.1 %d Rejected\r\nContent-Length: 0\r\n\r\n" % status
    error, requests = asyncio.run(answered(answer))
    assert (shown(error), requests) == ((500, None, "cluster-refused"), 1)
    assert f"rejected the stream with HTTP {status}" in error.message


def test_cluster_that_does_not_answer_ends_the_attempt():
    async def run():
        released = asyncio.Event()

        async def serve(reader, writer):
            await released.wait()
            writer.close()

        async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
            error = await opened(server.sockets[0].getsockname()[1], open_timeout=0.05)
            released.set()
        return error

    assert shown(asyncio.run(run())) == (502, None, "answer-lost")


@pytest.mark.parametrize("answer", [b"", BEGINNING, GARBLED])
def test_possibly_started_exec_is_not_retried(answer):
    error, requests = asyncio.run(answered(answer))
    assert (shown(error), requests) == ((502, None, "answer-lost"), 1)
