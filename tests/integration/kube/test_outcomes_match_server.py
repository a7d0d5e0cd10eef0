"""Thousands of mixed calls while 30 % of all requests fail; every report is held against the server.

Deadline and budget are stated here, and printed with the figures; so is the same run with the bare client.
"""

from __future__ import annotations

import asyncio

import pytest
from kubernetes import aio, client, config
from tests.support.scheduling_delay import SchedulingDelayMonitor

from holdfast.kube import WriteOutcome, resilient, write_outcome
from holdfast.retry import Budget, Policy, exponential
from holdfast.testing.apiserver.outcome_audit import audit, run_tasks, run_threads
from holdfast.testing.faults import rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1200)]

SIZES = [1500, pytest.param(10_000, marks=pytest.mark.slow)]
DEADLINE, RATE, BURST = 60.0, 400.0, 100
SHORT_DEADLINE = 0.5
# Once in a while the server asks everybody to wait for a second or two.
RETRY_AFTER_RULE = rule("too-many-requests", name="asked", retry_after=["1", "date:+2"], probability=0.002)
# With these some calls cannot succeed in time, however fast the machine: refused each time, or never told.
UNRECOVERABLE_RULES = (
    rule("too-many-requests", name="hopeless", path="7$"),
    rule("gateway-timeout", name="hopeless", path="3$", commit=True),
)


def policy(deadline=DEADLINE):
    return Policy(
        attempts=None,
        deadline=deadline,
        backoff=exponential(0.02, cap=1.0),
        budget=Budget(RATE, burst=BURST),
    )


def classify_error(call, error):
    if getattr(error, "status", None) == 404 and call.verb == "read":
        return "absent", ""
    return ("unknown" if write_outcome(error) is WriteOutcome.UNKNOWN else "not done"), type(error).__name__


@pytest.fixture
def thread_report(faulty_kube, thirty_percent_faults, kube_server, kube_namespace):
    """A run of threads through the faults, and its audit."""

    def run(wrap, judged, calls, *more):
        settings = client.Configuration()
        settings.connection_pool_maxsize = 16
        made = config.new_client_from_config(str(faulty_kube.kubeconfig), client_configuration=settings)
        with made, faulty_kube.faults(*more, thirty_percent_faults):
            api = wrap(client.CoreV1Api(made))
            return audit(kube_server, kube_namespace, run_threads(api, kube_namespace, judged, calls=calls))

    return run


@pytest.fixture
def task_report(faulty_kube, thirty_percent_faults, kube_server, kube_namespace):
    """The same from one event loop."""

    async def work(wrap, judged, calls):
        async with await aio.config.new_client_from_config(str(faulty_kube.kubeconfig)) as made:
            api = wrap(aio.client.CoreV1Api(made))
            return await run_tasks(api, kube_namespace, judged, calls=calls)

    def run(wrap, judged, calls, *more):
        with faulty_kube.faults(*more, thirty_percent_faults):
            return audit(kube_server, kube_namespace, asyncio.run(work(wrap, judged, calls)))

    return run


def print_report(say, what, report, log):
    say(f"{what}: {report}")
    say(f"    {log.summary()}")


@pytest.mark.parametrize("calls", SIZES)
@pytest.mark.parametrize("kind", ["thread_report", "task_report"])
def test_all_calls_succeed_and_outcomes_match_server(request, kind, calls, faulty_kube, print_result):
    run = request.getfixturevalue(kind)
    report = run(lambda api: resilient(api, policy()), classify_error, calls, RETRY_AFTER_RULE)
    print_report(
        print_result,
        f"resilient, {kind}, deadline {DEADLINE:g} s, budget {RATE:g}/s",
        report,
        faulty_kube.log,
    )
    assert report.mismatches == []
    assert report.stuck == 0
    assert report.outcomes == {"done": calls}
    assert report.slowest_seconds < DEADLINE


@pytest.mark.parametrize("calls", SIZES)
@pytest.mark.parametrize("kind", ["thread_report", "task_report"])
def test_short_deadline_failures_match_server(request, kind, calls, faulty_kube, print_result):
    run = request.getfixturevalue(kind)
    with SchedulingDelayMonitor() as held_up:
        report = run(
            lambda api: resilient(api, policy(SHORT_DEADLINE)), classify_error, calls, *UNRECOVERABLE_RULES
        )
    print_report(print_result, f"resilient, {kind}, deadline {SHORT_DEADLINE:g} s", report, faulty_kube.log)
    assert report.mismatches == []
    assert report.stuck == 0
    assert report.outcomes.total() == calls
    assert {name.partition(" (")[0] for name in report.outcomes} == {"done", "not done", "unknown"}
    # A connection, a request and a read-back are three moments at which a busy machine may hold a call up.
    assert report.slowest_seconds < 2 * SHORT_DEADLINE + 3 * held_up.max_delay


@pytest.mark.parametrize("calls", SIZES)
@pytest.mark.parametrize("kind", ["thread_report", "task_report"])
def test_bare_client_for_comparison(
    request, kind, calls, faulty_kube, classify_bare_client_error, print_result
):
    """No promise of ours: what the figures above are to be compared with."""
    run = request.getfixturevalue(kind)
    report = run(lambda api: api, classify_bare_client_error, calls, RETRY_AFTER_RULE)
    print_report(print_result, f"bare client, {kind}", report, faulty_kube.log)
    assert report.stuck == 0
