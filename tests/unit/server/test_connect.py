"""Opening a stream into a pod: only where nothing can have begun is a client told to come again."""

from __future__ import annotations

import asyncio

import pytest
from kubernetes.aio import client
from tests.support.api_servers import LOOPBACK, free_ports

from holdfast.errors import TemporaryError
from holdfast.server.cluster import Cluster
from holdfast.server.problems import AnswerLostError, as_api_error

REFUSED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
GARBLED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
BEGINNING = b"HTTP/1.1 101 Switch"


async def opened(port):
    """The error of one attempt to run a command."""
    async with client.ApiClient(client.Configuration(host=f"http://{LOOPBACK}:{port}")) as api:
        with pytest.raises((TemporaryError, AnswerLostError)) as caught:
            await Cluster(api, "ns").execute("p", [("command", "x")])
    return caught.value


async def answered(answer):
    """The error where a server says this to each request and hangs up; and how many requests there were."""
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


def test_a_cluster_that_is_not_reached_or_says_no_has_not_begun():
    (nobody,) = free_ports(1)
    assert shown(asyncio.run(opened(nobody)))[:2] == (503, "1")
    error, requests = asyncio.run(answered(REFUSED))
    assert (shown(error)[:2], requests) == ((503, "1"), 1)


@pytest.mark.parametrize("answer", [b"", BEGINNING, GARBLED])
def test_a_command_that_may_run_already_is_never_asked_for_again(answer):
    error, requests = asyncio.run(answered(answer))
    assert (shown(error), requests) == ((502, None, "answer-lost"), 1)
