"""New credentials in tasks: once for all, without holding up the loop; and bounds that change later."""

import asyncio

import pytest
import yaml
from kubernetes import client
from kubernetes.aio import client as aio

from holdfast.errors import ResponseTooLargeError
from holdfast.kube import api_client, async_api_client, resilient
from holdfast.kube.client_limits import MAX_ERROR_BYTES
from holdfast.retry import Deadline, Policy

STORED = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}
READ = ("a", "n")


@pytest.fixture
def unauthorized_server(server, responses):
    """401 until `fresh` is set."""

    def reply(*_):
        return (200, STORED) if fresh else responses.status(401, "Unauthorized")

    fresh = []
    server.reply = reply
    return fresh


def kubeconfig(path, server, token):
    named = {"name": "x"}
    content = {
        "current-context": "x",
        "contexts": [{**named, "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{**named, "cluster": {"server": server.url}}],
        "users": [{**named, "user": {"token": token}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_unauthorized_reloads_kubeconfig_async(server, unauthorized_server, tmp_path):
    path = kubeconfig(tmp_path / "config", server, "old")

    async def main():
        async with await async_api_client(path) as made:
            kubeconfig(path, server, "new")
            refusing_before = made.configuration.api_key["BearerToken"]
            with pytest.raises(aio.ApiException):
                await resilient(aio.CoreV1Api(made)).read_namespaced_config_map(*READ)
            return refusing_before, made.configuration.api_key["BearerToken"]

    assert asyncio.run(main()) == ("Bearer old", "Bearer new")
    assert len(server.requests) == 2


def test_unreadable_kubeconfig_keeps_the_401(server, unauthorized_server, tmp_path):
    path = kubeconfig(tmp_path / "config", server, "old")
    with api_client(path) as made:
        path.write_text("users: [token: hunter2")
        with pytest.raises(client.ApiException) as caught:
            resilient(client.CoreV1Api(made)).read_namespaced_config_map(*READ)
    assert caught.value.status == 401
    [note] = caught.value.__notes__
    assert note.startswith("credentials not renewed: kubeconfig: ")
    assert "hunter2" not in note


def test_wait_for_refresh_ends_at_deadline(server, unauthorized_server):
    async def refresh():
        await asyncio.Event().wait()

    with Deadline.after(0.5), pytest.raises(aio.ApiException) as caught:
        in_tasks(server, refresh)
    assert caught.value.__notes__ == ["credentials not renewed: TimeoutError"]


async def read_in_tasks(server, refresh, hook=None):
    """Make eight concurrent reads; return the names that they found."""
    configuration = aio.Configuration()
    configuration.host = server.url
    async with aio.ApiClient(configuration) as made:
        configuration.refresh_api_key_hook = made.configuration.refresh_api_key_hook = hook
        core = resilient(aio.CoreV1Api(made), refresh_credentials=refresh)
        found = await asyncio.gather(*[core.read_namespaced_config_map(*READ) for _ in range(8)])
        return [each.metadata.name for each in found]


def in_tasks(*args):
    return asyncio.run(read_in_tasks(*args))


def test_refresh_coroutine_is_awaited_once_for_all(server, unauthorized_server):
    async def refresh():
        await asyncio.sleep(0)
        unauthorized_server.append(1)

    assert in_tasks(server, refresh) == ["a"] * 8
    assert len(unauthorized_server) == 1


def test_blocking_refresh_does_not_block_event_loop(server, unauthorized_server):
    async def run_in_loop():
        """Only a loop that runs executes this."""

    def refresh():
        asyncio.run_coroutine_threadsafe(run_in_loop(), loops[0]).result(20)
        unauthorized_server.append(1)

    async def main():
        loops.append(asyncio.get_running_loop())
        return await read_in_tasks(server, refresh)

    loops = []
    assert asyncio.run(main()) == ["a"] * 8
    assert len(unauthorized_server) == 1


def test_hook_returning_coroutine_is_awaited(server, responses):
    done = []

    async def hook(configuration):
        await asyncio.sleep(0)
        done.append(1)

    # Without a token the client itself does not ask the hook: the renewal does.
    server.answers += [responses.status(401, "Unauthorized")]
    server.reply = lambda *_: (200, STORED)
    in_tasks(server, None, hook)
    assert done == [1]


def test_response_size_limit_can_be_changed(server):
    big = {**STORED, "data": {"k": "x" * 3 * MAX_ERROR_BYTES}}
    server.reply = lambda *_: (200, big)
    configuration = client.Configuration()
    configuration.host = server.url
    once = Policy(attempts=1)
    with client.ApiClient(configuration) as made:
        resilient(client.CoreV1Api(made)).read_namespaced_config_map(*READ)
        for bound in (100_000, MAX_ERROR_BYTES):
            core = resilient(client.CoreV1Api(made), once, max_response_bytes=bound)
            with pytest.raises(ResponseTooLargeError, match=str(bound)):
                core.read_namespaced_config_map(*READ)
