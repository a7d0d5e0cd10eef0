"""The server is gone for a while: every call waits it out, and their number does not become a storm."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from kubernetes import aio, client, config
from tests.support.scheduling_delay import SchedulingDelayMonitor

from holdfast.kube import resilient
from holdfast.retry import Budget, Policy, exponential
from holdfast.testing.faults import FaultProxy

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

RATE, BURST = 20.0, 10
OUTAGE = 20.0
CALLERS = 120


def policy():
    return Policy(
        attempts=None, deadline=60, backoff=exponential(0.2, cap=2.0), budget=Budget(RATE, burst=BURST)
    )


def names(server, namespace):
    _, listed = server.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")
    return sorted(item["metadata"]["name"] for item in listed["items"])


def assert_request_rate(proxy, began, held_up, say, what):
    """In any t seconds at most burst + rate·t requests: the bucket's bound.

    A machine that stalls for s seconds sends the delayed requests together: those of 1 + s seconds.
    """
    ended = began + OUTAGE
    during = proxy.log.peak_rate(since=began, until=ended)
    after = proxy.log.peak_rate(since=ended)
    bound = BURST + RATE * (1 + held_up.max_delay)
    say(
        f"{what}: {CALLERS} calls, outage {OUTAGE:g} s, {len(proxy.log)} requests; peak in any second "
        f"{during:g} during and {after:g} after it, bound {bound:.1f} (held up {held_up.max_delay:.2f} s)"
    )
    assert 0 < during <= bound
    assert 0 < after <= bound


def test_threads_wait_for_end_of_outage(faulty_kube, kube_server, kube_namespace, print_result):
    failures = []
    with config.new_client_from_config(str(faulty_kube.kubeconfig)) as made:
        api = resilient(client.CoreV1Api(made), policy())

        def work(number):
            threading.Event().wait(number * OUTAGE / CALLERS)
            body = {"metadata": {"name": f"a-{number:03}"}}
            try:
                api.create_namespaced_config_map(kube_namespace, body)
            except Exception as error:  # noqa: BLE001 - all of them are shown together
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(CALLERS)]
        faulty_kube.outage(OUTAGE, "reset")
        began = time.monotonic()
        with SchedulingDelayMonitor() as held_up:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(90)
        assert not any(thread.is_alive() for thread in threads)
    assert failures == []
    assert names(kube_server, kube_namespace) == [f"a-{number:03}" for number in range(CALLERS)]
    assert_request_rate(faulty_kube, began, held_up, print_result, "threads")


@pytest.mark.slow
def test_tasks_wait_for_end_of_outage(faulty_kube, kube_server, kube_namespace, print_result):
    async def work(api, number):
        await asyncio.sleep(number * OUTAGE / CALLERS)
        await api.create_namespaced_config_map(kube_namespace, {"metadata": {"name": f"a-{number:03}"}})

    async def main():
        async with await aio.config.new_client_from_config(str(faulty_kube.kubeconfig)) as made:
            api = resilient(aio.client.CoreV1Api(made), policy())
            await asyncio.gather(*(work(api, number) for number in range(CALLERS)))

    faulty_kube.outage(OUTAGE, "reset")
    began = time.monotonic()
    with SchedulingDelayMonitor() as held_up:
        asyncio.run(main())
    assert names(kube_server, kube_namespace) == [f"a-{number:03}" for number in range(CALLERS)]
    assert_request_rate(faulty_kube, began, held_up, print_result, "tasks")


def test_refused_connections_are_retried(kube_server, kube_namespace):
    with (
        FaultProxy(kube_server.kubeconfig) as proxy,
        config.new_client_from_config(str(proxy.kubeconfig)) as made,
    ):
        api = resilient(client.CoreV1Api(made), policy())
        proxy.outage(2.0)
        began = time.monotonic()
        api.create_namespaced_config_map(kube_namespace, {"metadata": {"name": "a"}})
        assert time.monotonic() - began >= 1.9
        assert [record.committed for record in proxy.log if record.method == "POST"] == [True]
