"""Thousands of mixed calls while 30 % of all requests fail; every report is held against the server.

Deadline and budget are stated here, and printed with the figures; so is the same run with the bare client.
"""

from __future__ import annotations

import asyncio

import pytest
from kubernetes import aio, client, config
from tests.support.held_up import HeldUp

from holdfast.kube import Done, outcome_of, resilient
from holdfast.retry import Budget, Policy, exponential
from holdfast.testing.faults import rule
from holdfast.testing.kube_workload import audit, run_tasks, run_threads

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(1200)]

SIZES = [1500, pytest.param(10_000, marks=pytest.mark.slow)]
DEADLINE, RATE, BURST = 60.0, 400.0, 100
SHORT = 0.5
# Once in a while the server asks everybody to wait for a second or two.
ASKED = rule("too-many-requests", name="asked", retry_after=["1", "date:+2"], probability=0.002)
# With these some calls cannot succeed in time, however fast the machine: refused each time, or never told.
HOPELESS = (
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


def judge(call, error):
    if getattr(error, "status", None) == 404 and call.verb == "read":
        return "absent", ""
    return ("unknown" if outcome_of(error) is Done.UNKNOWN else "not done"), type(error).__name__


@pytest.fixture
def threaded(faulty_kube, thirty_percent, kube_server, kube_namespace):
    """A run of threads through the faults, and its audit."""

    def run(wrap, judged, calls, *more):
        settings = client.Configuration()
        settings.connection_pool_maxsize = 16
        made = config.new_client_from_config(str(faulty_kube.kubeconfig), client_configuration=settings)
        with made, faulty_kube.faults(*more, thirty_percent):
            api = wrap(client.CoreV1Api(made))
            return audit(kube_server, kube_namespace, run_threads(api, kube_namespace, judged, calls=calls))

    return run


@pytest.fixture
def tasked(faulty_kube, thirty_percent, kube_server, kube_namespace):
    """The same from one event loop."""

    async def work(wrap, judged, calls):
        async with await aio.config.new_client_from_config(str(faulty_kube.kubeconfig)) as made:
            api = wrap(aio.client.CoreV1Api(made))
            return await run_tasks(api, kube_namespace, judged, calls=calls)

    def run(wrap, judged, calls, *more):
        with faulty_kube.faults(*more, thirty_percent):
            return audit(kube_server, kube_namespace, asyncio.run(work(wrap, judged, calls)))

    return run


def shown(say, what, report, log):
    say(f"{what}: {report}")
    say(f"    {log.summary()}")


@pytest.mark.parametrize("calls", SIZES)
@pytest.mark.parametrize("kind", ["threaded", "tasked"])
def test_all_calls_succeed_and_all_reports_are_true(request, kind, calls, faulty_kube, say):
    run = request.getfixturevalue(kind)
    report = run(lambda api: resilient(api, policy()), judge, calls, ASKED)
    shown(say, f"resilient, {kind}, deadline {DEADLINE:g} s, budget {RATE:g}/s", report, faulty_kube.log)
    assert report.lies == []
    assert report.stuck == 0
    assert report.outcomes == {"done": calls}
    assert report.slowest < DEADLINE


@pytest.mark.parametrize("calls", SIZES)
@pytest.mark.parametrize("kind", ["threaded", "tasked"])
def test_with_a_short_deadline_failures_tell_the_truth(request, kind, calls, faulty_kube, say):
    run = request.getfixturevalue(kind)
    with HeldUp() as held_up:
        report = run(lambda api: resilient(api, policy(SHORT)), judge, calls, *HOPELESS)
    shown(say, f"resilient, {kind}, deadline {SHORT:g} s", report, faulty_kube.log)
    assert report.lies == []
    assert report.stuck == 0
    assert report.outcomes.total() == calls
    assert {name.partition(" (")[0] for name in report.outcomes} == {"done", "not done", "unknown"}
    # A connection, a request and a read-back are three moments at which a busy machine may hold a call up.
    assert report.slowest < 2 * SHORT + 3 * held_up.longest


@pytest.mark.parametrize("calls", SIZES)
@pytest.mark.parametrize("kind", ["threaded", "tasked"])
def test_the_bare_client_beside_it(request, kind, calls, faulty_kube, bare_judge, say):
    """No promise of ours: what the figures above are to be compared with."""
    run = request.getfixturevalue(kind)
    report = run(lambda api: api, bare_judge, calls, ASKED)
    shown(say, f"bare client, {kind}", report, faulty_kube.log)
    assert report.stuck == 0
