"""Waits survive everything that can happen to a watch, miss nothing, and do not hammer the server."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast.errors import DeadlineExceededError
from holdfast.kube import AsyncObjects, Objects, WaitResult, api_client, async_api_client
from holdfast.retry import Budget, Policy, exponential
from holdfast.testing.faults import Fault, rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]

POLICY = Policy(attempts=4, backoff=exponential(0.02, cap=0.5), budget=Budget(50, burst=20))

WATCH_FAULTS = {
    "410 answers": [rule("gone", query="watch=true", count=8)],
    "410 events": [rule("event-gone", count=8)],
    "410 events after the first": [rule("event-gone", events=1, count=3)],
    "429 events": [rule("event-too-many-requests", retry_after="1", count=2)],
    "dropped connections": [rule("drop-stream", count=8)],
    "early ends": [rule("end-stream", count=8)],
    "garbage": [rule("event-garbage", count=5)],
    "refused lists": [rule("unavailable", "reset-before", "html", methods="GET", count=8)],
    "all of it": [
        rule("gone", query="watch=true", probability=0.3, count=10),
        rule(
            "event-gone",
            "drop-stream",
            "end-stream",
            "event-garbage",
            "reset-before",
            "truncated",
            Fault(kind="event-too-many-requests", retry_after="0"),
            count=12,
        ),
    ],
}


def counter_reaches_three(obj):
    value = None if obj is None else obj["data"]["x"]
    return WaitResult(done=value == "3", observed=f"x is {value}")


@pytest.fixture
def counter_config_map(kube_server, kube_namespace):
    """An object whose value another client slowly counts up to 3, without the proxy."""
    path = f"/api/v1/namespaces/{kube_namespace}/configmaps"

    def body(value):
        return {"metadata": {"name": "a"}, "data": {"x": str(value)}}

    def count():
        for value in (1, 2, 3):
            threading.Event().wait(0.7)
            kube_server.request("PUT", f"{path}/a", body(value))

    kube_server.request("POST", path, body(0))
    thread = threading.Thread(target=count)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize("storm", WATCH_FAULTS)
def test_wait_survives_watch_fault(counter_config_map, faulty_kube, kube_namespace, storm, print_result):
    with api_client(faulty_kube.kubeconfig) as made, faulty_kube.faults(*WATCH_FAULTS[storm]) as log:
        found = Objects(made, POLICY).wait(
            "ConfigMap", "a", counter_reaches_three, namespace=kube_namespace, deadline=60
        )
    assert found["data"]["x"] == "3"
    peak = log.peak_rate()
    print_result(f"{storm}: {log.summary()}, peak {peak:g}/s")
    assert log.faults()
    assert peak <= 70  # burst + rate of the budget above


def test_async_wait_survives_watch_fault(counter_config_map, faulty_kube, kube_namespace):
    async def main():
        async with await async_api_client(faulty_kube.kubeconfig) as made:
            return await AsyncObjects(made, POLICY).wait(
                "ConfigMap", "a", counter_reaches_three, namespace=kube_namespace, deadline=60
            )

    with faulty_kube.faults(*WATCH_FAULTS["all of it"]) as log:
        assert asyncio.run(main())["data"]["x"] == "3"
    assert log.faults()


def test_wait_lists_once_then_watches(counter_config_map, faulty_kube, kube_namespace):
    with api_client(faulty_kube.kubeconfig) as made:
        Objects(made, POLICY).wait(
            "ConfigMap", "a", counter_reaches_three, namespace=kube_namespace, deadline=60
        )
    assert ["watch=true" in r.query for r in faulty_kube.log if "configmaps" in r.path] == [False, True]


def test_wait_timeout_reports_last_state(faulty_kube, kube_server, kube_namespace):
    path = f"/api/v1/namespaces/{kube_namespace}/configmaps"
    kube_server.request("POST", path, {"metadata": {"name": "a"}, "data": {"x": "0"}})
    began = time.monotonic()
    with (
        api_client(faulty_kube.kubeconfig) as made,
        faulty_kube.faults(rule("event-gone", "drop-stream", probability=0.5)),
        pytest.raises(DeadlineExceededError, match="last seen: x is 0"),
    ):
        Objects(made, POLICY).wait(
            "ConfigMap", "a", counter_reaches_three, namespace=kube_namespace, deadline=2
        )
    assert 1.5 <= time.monotonic() - began < 10


def test_stalled_watch_ends_at_deadline(faulty_kube, kube_server, kube_namespace):
    path = f"/api/v1/namespaces/{kube_namespace}/configmaps"
    kube_server.request("POST", path, {"metadata": {"name": "a"}, "data": {"x": "0"}})
    began = time.monotonic()
    with (
        api_client(faulty_kube.kubeconfig) as made,
        faulty_kube.faults(rule("stall-headers", query="watch=true", seconds=60)),
        pytest.raises(DeadlineExceededError),
    ):
        Objects(made, POLICY).wait(
            "ConfigMap", "a", counter_reaches_three, namespace=kube_namespace, deadline=2
        )
    assert time.monotonic() - began < 15
