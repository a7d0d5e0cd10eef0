"""Answers that no API server gives: classified and survived, with bounded memory."""

from __future__ import annotations

import asyncio
import resource

import pytest
from kubernetes import aio, client, config

from holdfast.kube import FailureClass, WriteOutcome, classify, resilient, write_outcome
from holdfast.retry import Budget, Policy, exponential
from holdfast.testing.faults import RETRY_AFTER_FORMS, Fault, rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

POLICY = Policy(attempts=4, deadline=60, backoff=exponential(0.01, cap=0.1), budget=Budget(1000, burst=1000))
MEBIBYTE = 1024 * 1024
MALFORMED_RESPONSES = {
    **{f"{kind} 200": Fault(kind=kind) for kind in ("html", "empty", "invalid-utf8")},
    **{f"{kind} 503": Fault(kind=kind, status=503) for kind in ("html", "empty", "invalid-utf8")},
    **{f"{kind} 200 done": Fault(kind=kind, commit=True) for kind in ("html", "empty", "invalid-utf8")},
    "wrong content type": Fault(kind="wrong-content-type"),
    "truncated": Fault(kind="truncated"),
    "truncated head": Fault(kind="truncated", bytes=0),
    "enormous 200": Fault(kind="enormous", bytes=8 * MEBIBYTE),
    "enormous 500": Fault(kind="enormous", bytes=8 * MEBIBYTE, status=500),
}


def sync_calls(path, work):
    with config.new_client_from_config(str(path)) as made:
        return work(resilient(client.CoreV1Api(made), POLICY, max_response_bytes=4 * MEBIBYTE))


def async_calls(path, work):
    async def main():
        async with await aio.config.new_client_from_config(str(path)) as made:
            return await work(resilient(aio.client.CoreV1Api(made), POLICY, max_response_bytes=4 * MEBIBYTE))

    return asyncio.run(main())


@pytest.mark.parametrize("calls", [sync_calls, async_calls], ids=["threads", "tasks"])
@pytest.mark.parametrize("odd", MALFORMED_RESPONSES)
@pytest.mark.parametrize("verb", ["create", "list"])
def test_single_malformed_response_is_retried(faulty_kube, kube_server, kube_namespace, calls, odd, verb):
    def work(api):
        if verb == "create":
            return api.create_namespaced_config_map(kube_namespace, {"metadata": {"name": "a"}})
        return api.list_namespaced_config_map(kube_namespace)

    with faulty_kube.faults(rule(MALFORMED_RESPONSES[odd], path="configmaps", count=1)) as log:
        result = calls(faulty_kube.kubeconfig, work)
    assert sum(log.faults().values()) == 1
    if verb == "create":
        assert result.metadata.name == "a"
    else:
        assert result.items == []


@pytest.mark.parametrize("calls", [sync_calls, async_calls], ids=["threads", "tasks"])
@pytest.mark.parametrize("odd", sorted(MALFORMED_RESPONSES.keys() - {"wrong content type"}))
def test_only_malformed_responses_is_an_unknown_outcome(faulty_kube, kube_namespace, calls, odd):
    def work(api):
        return api.create_namespaced_config_map(kube_namespace, {"metadata": {"name": "a"}})

    with faulty_kube.faults(rule(MALFORMED_RESPONSES[odd])) as log, pytest.raises(Exception) as caught:
        calls(faulty_kube.kubeconfig, work)
    assert classify(caught.value) is FailureClass.AMBIGUOUS
    assert write_outcome(caught.value) is WriteOutcome.UNKNOWN
    assert 4 <= len(log) <= 6
    assert len(str(caught.value)) < 200_000


@pytest.mark.parametrize("calls", [sync_calls, async_calls], ids=["threads", "tasks"])
@pytest.mark.parametrize("kind", ["too-many-requests", "unavailable"])
@pytest.mark.parametrize("form", RETRY_AFTER_FORMS)
def test_every_retry_after_format_is_handled(faulty_kube, kube_namespace, calls, kind, form):
    with faulty_kube.faults(rule(kind, retry_after=form, count=1)) as log:
        calls(faulty_kube.kubeconfig, lambda api: api.list_namespaced_config_map(kube_namespace))
    first, second = log
    waited = second.clock - first.clock
    assert waited >= 0.99 if form in {"1", "1.5"} else waited < 10


@pytest.mark.parametrize("calls", [sync_calls, async_calls], ids=["threads", "tasks"])
@pytest.mark.parametrize("status", [200, 500])
def test_huge_response_uses_bounded_memory(faulty_kube, kube_namespace, calls, status, print_result):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    enormous = Fault(kind="enormous", bytes=512 * MEBIBYTE, status=status)
    with faulty_kube.faults(rule(enormous, count=2)):
        calls(faulty_kube.kubeconfig, lambda api: api.list_namespaced_config_map(kube_namespace))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print_result(f"two answers of 512 MiB with status {status}: {grown:.0f} MiB more at most")
    assert grown < 100
