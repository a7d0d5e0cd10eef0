"""A connection to the engine that is cut in the middle of calls: commands end well, and do nothing twice."""

import json
import uuid

import pytest
from tests.support.commands import Holdfast
from tests.support.flaky_engine import CUTS, FlakyEngine, at, by_seed, never
from tests.support.gateways import TestGateway

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture
def gateway(tmp_path):
    made = TestGateway(f"flaky-{uuid.uuid4().hex[:6]}", Holdfast(tmp_path, HOLDFAST_WORKLOADS="false"))
    yield made
    made.destroy()


def through(gateway, decide, *words):
    """Run one command over a bad line; it must end well, without a person."""
    with FlakyEngine(decide) as flaky:
        command = Holdfast(gateway.holdfast.home, HOLDFAST_WORKLOADS="false", DOCKER_HOST=flaky.address)
        ended = command.run(*words, "--json")
        told = "\n".join(map(str, flaky.calls))
        assert ended.returncode == 0, f"{' '.join(words)}\n{ended.stderr[-1500:]}\n{told}"
        return flaky, json.loads(ended.stdout)


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_whole_life_over_a_line_that_is_cut_again_and_again(gateway, seed):
    name, cuts = gateway.name, 0
    flaky, _ = through(gateway, by_seed(seed), "up", name)
    cuts += len(flaky.cuts)
    once = (flaky.done("POST", "/containers/create"), flaky.done("POST", "/networks/create"))
    assert once == (1, 1)
    assert flaky.done("POST", "/containers/[^/]+/start") == 1
    flaky, _ = through(gateway, by_seed(seed, one_in=3), "stop", name)
    cuts += len(flaky.cuts)
    flaky, _ = through(gateway, by_seed(seed, one_in=3), "start", name)
    cuts += len(flaky.cuts)
    assert flaky.done("POST", "/containers/create") == 0
    flaky, seen = through(gateway, by_seed(seed, one_in=2), "status", name)
    assert seen["state"] == "ready"
    flaky, _ = through(gateway, by_seed(seed, one_in=3), "destroy", name, "--data", "--yes", name)
    cuts += len(flaky.cuts)
    assert flaky.done("DELETE", "/containers/") <= 1
    assert cuts >= 4, "the line was never bad"


@pytest.mark.parametrize("cut", CUTS)
def test_stop_and_status_with_each_call_cut_in_turn(gateway, cut):
    gateway.up()
    for words in (["status", gateway.name], ["stop", gateway.name]):
        number, calls = 1, 99
        while number <= calls:
            gateway.up()
            flaky, _ = through(gateway, at(number, cut), *words)
            calls = len(flaky.calls) - 1
            number += 1
        flaky, _ = through(gateway, never, "start", gateway.name)
