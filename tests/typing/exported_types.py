"""Checked by mypy and pyright, never run: the exported types are the types of the public results."""

from collections.abc import Iterator
from typing import assert_type

from holdfast import Policy, Sandbox, Workflow
from holdfast.client import ExecResult
from holdfast.retry import Backoff, RetryContext, RetryDecorator, VirtualClock, constant, retry, testing_mode
from holdfast.testing.faults import FaultScript, RequestLog, RequestRecord, parse_script
from holdfast.workflow import JSON, MemoryStore, Plan, PlannedStep, ProbeResult, Store

assert_type(constant(1.0), Backoff)
assert_type(Policy().retry_context("x"), RetryContext)
assert_type(retry(Policy()), RetryDecorator)
with testing_mode() as clock:
    assert_type(clock, VirtualClock)

assert_type(parse_script(""), FaultScript)
assert_type(iter(RequestLog()), Iterator[RequestRecord])


def results(sandbox: Sandbox, workflow: Workflow, plan: Plan, probe: ProbeResult) -> None:
    assert_type(sandbox.exec("true"), ExecResult)
    assert_type(workflow.name, str)
    assert_type(iter(plan), Iterator[PlannedStep])
    assert_type(probe.result, JSON)


store: Store = MemoryStore()
