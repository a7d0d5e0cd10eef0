"""`AsyncGateway`: the methods of `Gateway`, without blocking the event loop."""

import asyncio
import threading

import pytest

from holdfast.client import AsyncSandbox
from holdfast.errors import ContainerEngineUnreachableError, GatewayNotFoundError, InvalidGatewayNameError
from holdfast.gateway import AsyncGateway, Gateway, GatewayResult, commands
from holdfast.gateway.registry import GatewayMetadata, write_metadata


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.delenv("HOLDFAST_GATEWAY", raising=False)


def test_names_are_those_of_gateway():
    with pytest.raises(InvalidGatewayNameError):
        AsyncGateway("no/slashes")
    write_metadata(GatewayMetadata(name="dev", image="i", port=1))
    assert [gateway.name for gateway in AsyncGateway.all()] == ["dev"]
    assert AsyncGateway("dev").kubeconfig == Gateway("dev").kubeconfig


def test_errors_and_events_are_those_of_gateway():
    heard = []
    with pytest.raises(ContainerEngineUnreachableError):
        asyncio.run(AsyncGateway("dev", listener=heard.append).destroy(data=True))
    assert type(heard[0]).__name__ == "RunStarted"
    assert asyncio.run(AsyncGateway("dev").runs())[0].id == heard[0].run


class BlockedCommand:
    """A command that runs until it is released, and passes its arguments on."""

    def __init__(self):
        self.started, self.release, self.ended = (threading.Event() for _ in range(3))

    def __call__(self, name, bus):
        self.started.set()
        assert self.release.wait(20)
        self.ended.set()
        return GatewayResult(name=name, run="r", changed=())


@pytest.fixture
def blocked_stop(monkeypatch):
    command = BlockedCommand()
    monkeypatch.setattr(commands, "stop", command)
    return command


def test_event_loop_runs_while_a_command_blocks(blocked_stop):
    async def run():
        stopping = asyncio.create_task(AsyncGateway("dev").stop())
        await asyncio.to_thread(blocked_stop.started.wait, 20)
        assert not stopping.done()
        blocked_stop.release.set()
        return await stopping

    assert asyncio.run(run()).name == "dev"


def test_cancelled_call_ends_at_once_and_its_command_continues(blocked_stop):
    async def run():
        stopping = asyncio.create_task(AsyncGateway("dev").stop())
        await asyncio.to_thread(blocked_stop.started.wait, 20)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert not blocked_stop.ended.is_set()
        blocked_stop.release.set()

    asyncio.run(run())
    assert blocked_stop.ended.is_set(), "asyncio.run has to wait for the command"


def test_log_lines_arrive_in_order_and_its_error_at_the_end(monkeypatch):
    def logs(self, **options):
        assert options == {"component": "etcd", "tail": 3, "follow": False}
        yield from "abc"
        raise GatewayNotFoundError("gateway dev: gone")

    monkeypatch.setattr(Gateway, "logs", logs)
    lines = []

    async def run():
        async for line in AsyncGateway("dev").logs(component="etcd", tail=3):
            lines.append(line)  # noqa: PERF401 (what was read before the error counts)

    with pytest.raises(GatewayNotFoundError):
        asyncio.run(run())
    assert lines == ["a", "b", "c"]


def test_followed_log_without_new_lines_does_not_delay_the_end(monkeypatch):
    never = threading.Event()

    def logs(self, **options):
        yield "only"
        never.wait(20)

    monkeypatch.setattr(Gateway, "logs", logs)

    async def run():
        async for line in AsyncGateway("dev").logs(follow=True):
            return line
        return None

    assert asyncio.run(run()) == "only"
    assert not never.is_set()
    never.set()


@pytest.mark.parametrize("name", ["sandboxes", "templates", "pools", "secrets"])
def test_clients_are_asynchronous_and_need_a_gateway(name):
    async def run():
        async with getattr(AsyncGateway("dev"), name)() as client:
            if name == "sandboxes":
                await anext(client.list())
            await client.get("a")

    with pytest.raises(GatewayNotFoundError):
        asyncio.run(run())


def test_sandbox_is_asynchronous():
    async def run():
        async with AsyncGateway("dev").sandbox("box") as sandbox:
            assert isinstance(sandbox, AsyncSandbox)
            await sandbox.get()

    with pytest.raises(GatewayNotFoundError):
        asyncio.run(run())
