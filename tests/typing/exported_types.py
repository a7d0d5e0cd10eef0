"""Checked by mypy and pyright, never run: the exported types are the types of the public results."""

from collections.abc import Iterator
from typing import Unpack, assert_type

from holdfast import Gateway, Policy, Sandbox, Workflow
from holdfast.api import FailedPodPolicy, WorkspaceOptions
from holdfast.client import (
    CommandState,
    ExecOutput,
    ExecResult,
    ExecSession,
    FileType,
    PortForward,
    RemotePath,
    Signal,
)
from holdfast.gateway import (
    DoctorReport,
    Finding,
    FixedBy,
    GatewayOptions,
    GatewayPlan,
    GatewayState,
    Repair,
    SettingChange,
    Severity,
)
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


def sandbox_types(sandbox: Sandbox, path: RemotePath, signal: Signal) -> None:
    options: WorkspaceOptions = {"size": "5Gi"}
    policy: FailedPodPolicy = "Keep"
    assert_type(sandbox.create(workspace=options, failed_pods=policy).failed_pods, FailedPodPolicy)
    assert_type(sandbox.files.stat(path).type, FileType)
    assert_type(sandbox.command("id").get().state, CommandState)
    sandbox.command("id").kill(signal)
    with sandbox.session("sh") as session, sandbox.forward(80) as forward:
        assert_type(session, ExecSession)
        assert_type(iter(session), Iterator[ExecOutput])
        assert_type(forward, PortForward)


def gateway_types(gateway: Gateway, plan: GatewayPlan, **options: Unpack[GatewayOptions]) -> None:
    gateway.up(**options)
    assert_type(plan.settings, tuple[SettingChange, ...])
    assert_type(gateway.status().state, GatewayState)
    diagnosis = gateway.doctor()
    assert_type(diagnosis.report, DoctorReport)
    assert_type(diagnosis.repairs, tuple[Repair, ...])
    assert_type(diagnosis.report.findings, tuple[Finding, ...])
    assert_type(diagnosis.report.findings[0].severity, Severity)
    assert_type(diagnosis.report.findings[0].fixed_by, FixedBy)
