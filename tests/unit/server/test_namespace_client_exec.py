"""A command is started again only while the kubelet does not know the pod, and reports a lost connection."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from kubernetes.aio import client
from tests.support.gateway_api_server import LOOPBACK
from tests.support.spdy_pod import POD_UNKNOWN, SUCCESS, spdy_pod

from holdfast.errors import TemporaryError
from holdfast.retry import testing_mode
from holdfast.server.errors import PodResponseLostError
from holdfast.server.namespace_client import NamespaceClient
from holdfast.server.sandboxes import PodTarget
from holdfast.server.streams.spdy import run_in_pod

TARGET = PodTarget("p", "c")
STREAMS = "error", "stdout", "stderr"


@asynccontextmanager
async def cluster(does, *, before=()):
    async with (
        asyncio.timeout(30),
        spdy_pod(does, before=before) as port,
        client.ApiClient(client.Configuration(host=f"http://{LOOPBACK}:{port}")) as api,
    ):
        yield NamespaceClient(api, "ns")


async def echo_input(side):
    await side.accept("stdin", *STREAMS)
    is_last = False
    while not is_last:
        _, data, is_last = await side.read()
        side.send("stdout", data)
    side.end()


@pytest.mark.parametrize("unknown", [0, 1, 3])
def test_exec_is_repeated_until_kubelet_knows_pod(unknown):
    async def run():
        async with (
            cluster(echo_input, before=[POD_UNKNOWN] * unknown) as made,
            run_in_pod(made, TARGET, ["cat"], stdin=True) as command,
        ):
            await command.write(b"all of it")
            await command.close_stdin()
            return await command.read(), await command.wait()

    with testing_mode():
        assert asyncio.run(run()) == (b"all of it", 0)


def test_unknown_pod_is_reported_as_temporary_after_timeout():
    async def run():
        async with cluster(None, before=[POD_UNKNOWN] * 10_000) as made:
            with pytest.raises(TemporaryError, match="kubelet does not know it yet"):
                await made.open_exec_stream(TARGET, ["x"])

    with testing_mode():
        asyncio.run(run())


def test_rejected_exec_is_not_repeated_and_has_the_reason():
    answer = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 19\r\n\r\ncontainer not found"

    async def run():
        async with cluster(None, before=[answer]) as made:
            with pytest.raises(TemporaryError, match="HTTP 500: container not found"):
                await made.open_exec_stream(TARGET, ["x"])

    asyncio.run(run())


def test_output_without_status_is_a_lost_command():
    async def cut(side):
        await side.accept(*STREAMS)
        side.send("stdout", b"half")
        side.send("error", SUCCESS[:10])
        side.writer.close()

    async def run():
        async with cluster(cut) as made, run_in_pod(made, TARGET, ["tar"]) as command:
            assert await command.read() == b"half"
            with pytest.raises(PodResponseLostError, match="before the command ended"):
                await command.read()

    asyncio.run(run())
