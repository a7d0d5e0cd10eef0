"""Two gateways on one engine: pods on both, and neither disturbs the other."""

import time

import pytest
from tests.support.gateway import pod_manifest

from holdfast.retry import Policy, constant

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def two_gateways(new_gateway):
    made = [new_gateway("left"), new_gateway("right")]
    for gateway in made:
        gateway.up()
        gateway.apply(
            *(
                pod_manifest(f"p{number}", command="i=0; while :; do i=$((i+1)); echo $i; sleep 1; done")
                for number in range(3)
            )
        )
    for gateway in made:
        for number in range(3):
            gateway.wait_ready(f"p{number}")
    return made


@pytest.mark.parametrize("seconds", [20, pytest.param(180, marks=pytest.mark.slow)])
def test_pods_on_both_gateways_keep_running(two_gateways, seconds):
    before = [states(gateway) for gateway in two_gateways]
    end = time.monotonic() + seconds
    watching = Policy(
        attempts=None, deadline=seconds + 60, backoff=constant(5.0), retry_on=TimeRemainingError
    )
    watching.call(assert_undisturbed, two_gateways, before, end)


def test_port_of_the_other_gateway_is_refused_and_names_it(two_gateways):
    left, right = two_gateways
    before = [states(gateway) for gateway in two_gateways]
    port = right.holdfast.json("status", right.name)["server"].rpartition(":")[2]
    for words in ((), ("--recreate",)):
        ended = left.holdfast.run("up", left.name, "--port", port, *words)
        assert ended.returncode == 3
        assert f"port {port}: already in use by container {right.container}" in ended.stderr
        assert "nothing was changed" in ended.stderr
    assert left.up()["changed"] == []
    assert [states(gateway) for gateway in two_gateways] == before


class TimeRemainingError(Exception):
    """Nothing has happened yet, as it should be, and there is time left to watch."""


def assert_undisturbed(pair, before, end):
    assert [states(gateway) for gateway in pair] == before
    if time.monotonic() < end:
        raise TimeRemainingError


def states(gateway):
    """Running containers with start time and restart count; a completed pod may be removed meanwhile."""
    return sorted(
        (item["metadata"]["uid"], item["status"]["phase"], status["restartCount"], str(status["state"]))
        for item in gateway.get("pods", "--all-namespaces")["items"]
        if item["status"]["phase"] != "Succeeded"
        for status in item["status"]["containerStatuses"]
    )
