"""A connection to the engine that is cut in the middle of calls: commands end well, and do nothing twice."""

import json
import uuid

import pytest
from tests.support.flaky_container_engine import (
    CUT_POINTS,
    FlakyContainerEngine,
    cut_call,
    cut_nothing,
    cut_randomly,
)
from tests.support.gateway import TestGateway
from tests.support.holdfast_cli import HoldfastCli

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture
def gateway(tmp_path):
    made = TestGateway(f"flaky-{uuid.uuid4().hex[:6]}", HoldfastCli(tmp_path, HOLDFAST_WORKLOADS="false"))
    yield made
    made.destroy()


def flaky_connection(gateway, decide, *words):
    """Run one command over a bad connection; it must succeed without help."""
    with FlakyContainerEngine(decide) as flaky:
        command = HoldfastCli(gateway.holdfast.home, HOLDFAST_WORKLOADS="false", DOCKER_HOST=flaky.address)
        ended = command.run(*words, "--json")
        told = "\n".join(map(str, flaky.calls))
        assert ended.returncode == 0, f"{' '.join(words)}\n{ended.stderr[-1500:]}\n{told}"
        return flaky, json.loads(ended.stdout)


@pytest.mark.parametrize("seed", range(1, 7))
def test_gateway_lifecycle_over_flaky_engine_connection(gateway, seed):
    name, cuts = gateway.name, 0
    flaky, _ = flaky_connection(gateway, cut_randomly(seed), "up", name)
    cuts += len(flaky.cut_calls)
    once = (
        flaky.count_succeeded("POST", "/containers/create"),
        flaky.count_succeeded("POST", "/networks/create"),
    )
    assert once == (1, 1)
    assert flaky.count_succeeded("POST", "/containers/[^/]+/start") == 1
    flaky, _ = flaky_connection(gateway, cut_randomly(seed, one_in=3), "stop", name)
    cuts += len(flaky.cut_calls)
    flaky, _ = flaky_connection(gateway, cut_randomly(seed, one_in=3), "start", name)
    cuts += len(flaky.cut_calls)
    assert flaky.count_succeeded("POST", "/containers/create") == 0
    flaky, seen = flaky_connection(gateway, cut_randomly(seed, one_in=2), "status", name)
    assert seen["state"] == "ready"
    flaky, _ = flaky_connection(
        gateway, cut_randomly(seed, one_in=3), "destroy", name, "--data", "--yes", name
    )
    cuts += len(flaky.cut_calls)
    assert flaky.count_succeeded("DELETE", "/containers/") <= 1
    assert cuts >= 4, "the line was never bad"


@pytest.mark.parametrize("cut", CUT_POINTS)
def test_stop_and_status_with_each_engine_call_cut(gateway, cut):
    gateway.up()
    for words in (["status", gateway.name], ["stop", gateway.name]):
        number, calls = 1, 99
        while number <= calls:
            gateway.up()
            flaky, _ = flaky_connection(gateway, cut_call(number, cut), *words)
            calls = len(flaky.calls) - 1
            number += 1
        flaky, _ = flaky_connection(gateway, cut_nothing, "start", gateway.name)
