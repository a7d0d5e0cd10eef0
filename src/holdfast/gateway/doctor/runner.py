"""Run all checks concurrently, apply fixes, and combine the results into one diagnosis."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from holdfast.errors import HoldfastError
from holdfast.events import StepFinished, StepProgress, StepStarted
from holdfast.gateway.doctor.checks import cluster, engine_host, gateway_container, local_state
from holdfast.gateway.doctor.facts import FactUnavailable, GatewayFacts, load_facts
from holdfast.gateway.doctor.findings import (
    CHECK_FAILED,
    Diagnosis,
    DoctorReport,
    Finding,
    Repair,
    check_subject,
    sort_findings,
    warning,
)

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.events import EventBus

Check: TypeAlias = Callable[[GatewayFacts], Iterable[Finding]]

CHECKS: dict[str, Check] = {
    "engine": engine_host.check_container_engine,
    "foreign objects": engine_host.check_foreign_objects,
    "orphans": engine_host.check_orphans,
    "container": gateway_container.check_container,
    "network": gateway_container.check_network,
    "volume": gateway_container.check_volume,
    "image": gateway_container.check_image,
    "ports": gateway_container.check_ports,
    "settings": gateway_container.check_settings,
    "upgrade": gateway_container.check_upgrade,
    "restart policy": gateway_container.check_restart_policy,
    "metadata": local_state.check_metadata,
    "kubeconfig": local_state.check_kubeconfig,
    "folders": local_state.check_folders,
    "store": local_state.check_store,
    "lock": local_state.check_lock,
    "tunnel": cluster.check_tunnel,
    "API": cluster.check_kubernetes_api,
    "gateway API": cluster.check_gateway_api,
    "node": cluster.check_node,
    "stale nodes": cluster.check_stale_nodes,
    "volumes": cluster.check_persistent_volumes,
    "pods": cluster.check_pods,
    "network policies": cluster.check_network_policies,
    "certificates": cluster.check_certificates,
    "client files": cluster.check_client_files,
    "disk": engine_host.check_disk,
    "clocks": engine_host.check_clocks,
    "kernel": engine_host.check_kernel_limits,
}

_STEP, _TITLE = "checks", "Checks"


_Outcome: TypeAlias = tuple[str, list[Finding], str]
"""The name of a check, its findings, and the reason why it was skipped."""


def diagnose(
    name: str | None, bus: EventBus, *, fix: bool = False, bundle_to: Path | None = None
) -> Diagnosis:
    """Check a gateway and report what is wrong with it.

    Args:
        name: The gateway; None for the active or only one.
        bus: Receives the progress of checks, fixes and bundle.
        fix: Repair what is safe to repair, then run all checks again.
        bundle_to: Write an archive for a bug report to this path.

    Raises:
        UsageError: The name or the bundle path is not valid; nothing was checked or changed.
        PermanentError: The bundle cannot be written.
    """
    from holdfast.gateway.doctor.bundle import check_bundle_path, write_bundle
    from holdfast.gateway.doctor.fixes import apply_fixes

    if bundle_to is not None:
        check_bundle_path(bundle_to)
    facts = load_facts(name)
    report = run_checks(facts, bus)
    before: DoctorReport | None = None
    repairs: tuple[Repair, ...] = ()
    if fix:
        actions = apply_fixes(facts, report, bus)
        # New facts: the first ones are cached and describe the state before the fixes.
        before, facts = report, load_facts(name)
        report = run_checks(facts, bus)
        repairs = verify_repairs(before, report, actions)
    bundled = write_bundle(bundle_to, facts, report, bus) if bundle_to is not None else ()
    bundle = str(bundle_to.absolute()) if bundle_to is not None else ""
    return Diagnosis(report=report, before=before, repairs=repairs, bundle=bundle, bundled=bundled)


def verify_repairs(
    before: DoctorReport, after: DoctorReport, actions: dict[Finding, str]
) -> tuple[Repair, ...]:
    """Report each action; a finding counts as repaired only if the second run does not report it."""
    remaining = {(finding.code, finding.subject) for finding in after.findings}
    return tuple(
        Repair(
            code=finding.code,
            subject=finding.subject,
            repaired=(finding.code, finding.subject) not in remaining,
            how=actions[finding],
        )
        for finding in before.findings
        if finding in actions
    )


def run_checks(
    facts: GatewayFacts,
    bus: EventBus,
    *,
    checks: dict[str, Check] | None = None,
    timeout: float | None = None,
) -> DoctorReport:
    """Run all checks at the same time and collect their findings.

    A check that raises or exceeds the common timeout becomes a `check-failed` finding.
    """
    timeout = facts.resolved.settings.timeouts.doctor if timeout is None else timeout
    checks = CHECKS if checks is None else checks
    started = time.monotonic()
    bus.emit(StepStarted(step=_STEP, title=_TITLE))
    outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
    for name, check in checks.items():
        # Daemon threads: a check that hangs in a system call must not keep the process from exiting.
        threading.Thread(target=_run_check, args=(facts, name, check, outcomes.put), daemon=True).start()
    findings, skipped, pending = list(facts.initial_findings), dict[str, str](), dict(checks)
    # The queue is the only connection to the threads: this thread alone collects findings and emits events.
    while pending:
        try:
            name, found, skip_reason = outcomes.get(timeout=max(0.0, started + timeout - time.monotonic()))
        except queue.Empty:
            break
        del pending[name]
        findings += found
        if skip_reason:
            skipped[name] = skip_reason
        bus.emit(StepProgress(step=_STEP, message=name, fraction=1 - len(pending) / len(checks)))
    # Threads of unfinished checks are abandoned; their late outcomes stay in the queue.
    findings += [_check_failure(name, f"did not finish within {timeout:g} s") for name in pending]
    seconds = time.monotonic() - started
    bus.emit(StepFinished(step=_STEP, title=_TITLE, seconds=seconds, note=f"{len(checks)} checks"))
    return DoctorReport(
        gateway=facts.name or "",
        findings=sort_findings(findings),
        checks=len(checks),
        seconds=round(seconds, 3),
        skipped={name: skipped[name] for name in checks if name in skipped},
    )


def _run_check(facts: GatewayFacts, name: str, check: Check, report: Callable[[_Outcome], None]) -> None:
    findings, skip_reason = list[Finding](), ""
    try:
        # `extend` keeps the findings that a check yielded before it raised.
        findings.extend(check(facts))
    except FactUnavailable as reason:
        skip_reason = str(reason)
    except HoldfastError as error:
        findings.append(_check_failure(name, f"failed: {error.message}", error.hint))
    except Exception as error:  # noqa: BLE001 (a defect in one check must not hide the findings of others)
        findings.append(_check_failure(name, f"failed: {type(error).__name__}: {error}"))
    report((name, findings, skip_reason))


def _check_failure(name: str, problem: str, hint: str = "") -> Finding:
    return warning(CHECK_FAILED, check_subject(name), f"The check {problem}.", fixed_by="person", repair=hint)
