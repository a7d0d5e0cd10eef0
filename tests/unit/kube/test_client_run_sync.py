"""Coroutines of this package run in the calling thread when the client is a sync one."""

import asyncio
import traceback

import pytest
from kubernetes import client

from holdfast.kube import Objects
from holdfast.kube.client import run_sync
from holdfast.retry import Deadline, current_deadline


def test_result_and_context_are_those_of_the_caller():
    async def deadline():
        return current_deadline()

    with Deadline.after(60):
        assert run_sync(deadline()) is not None
    assert run_sync(deadline()) is None


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_error_passes_unchanged_with_its_traceback(error):
    async def innermost():
        raise error

    async def outer():
        await innermost()

    with pytest.raises(error) as caught:
        run_sync(outer())
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-3:] == ["run_sync", "outer", "innermost"]


def test_suspended_coroutine_is_closed_and_reported():
    closed = []

    async def suspended():
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    with pytest.raises(AssertionError, match="suspended"):
        run_sync(suspended())
    assert closed


def test_sync_objects_work_inside_a_running_event_loop(server, store):
    configuration = client.Configuration()
    configuration.host = server.url

    async def main():
        with client.ApiClient(configuration) as made:
            return Objects(made).ensure({"kind": "ConfigMap", "metadata": {"name": "a"}}, namespace="n")

    assert asyncio.run(main()).effect == "created"
