"""Run all checks concurrently, apply fixes, and combine the results into one diagnosis.

The fixes of `doctor --fix` are the plan of `up`, file modes, and moving damaged files away. No fix deletes
anything. Whether a fix worked is decided by the next run of the checks.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from holdfast import home
from holdfast.errors import HoldfastError
from holdfast.events import StepFinished, StepProgress, StepStarted
from holdfast.gateway.doctor.checks import cluster, engine_host, gateway_container, local_state, read_store
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
    from collections.abc import Iterator

    from holdfast.events import Event, EventBus

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
_EXPECTED_MODES = {"kubeconfig-mode": 0o600, "store-mode": 0o600, "folder-mode": 0o700}
# With one of these findings, `up` would fail, create an empty volume, or do more than a repair.
_CODES_BLOCKING_UP = (
    "settings-bad", "volume-missing", "image-differs", "upgrade-unfinished", "port-taken", "foreign-object",
    "lock-held",
)  # fmt: skip
# The checks that report those codes. If one of them did not run, `up` is not known to be safe.
_CHECKS_GUARDING_UP = ("volume", "image", "settings", "upgrade", "ports", "foreign objects", "lock")
_DEFERRED_TO_UP = "left to `up`"

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


def apply_fixes(facts: GatewayFacts, report: DoctorReport, bus: EventBus) -> dict[Finding, str]:
    """Apply every safe fix.

    Returns:
        For each finding the action taken, or the reason why there was none.
    """
    actions = {
        finding: "not repaired by --fix; see its repair"
        for finding in report.findings
        if finding.fixed_by in ("command", "person")
    }
    deferred: dict[Finding, str] = {}
    # Files first: `up` reads the metadata, and would fail on a damaged file.
    for finding in report.findings:
        if finding.fixed_by == "fix":
            action = _try_fix(facts, finding, bus)
            (deferred if action.endswith(_DEFERRED_TO_UP) else actions)[finding] = action
    if deferred:
        result = _run_up(facts, report, bus)
        for finding, action in deferred.items():
            actions[finding] = action.removesuffix(_DEFERRED_TO_UP) + result
    return actions


def _try_fix(facts: GatewayFacts, finding: Finding, bus: EventBus) -> str:
    try:
        if finding.code in _EXPECTED_MODES:
            mode = _EXPECTED_MODES[finding.code]
            Path(finding.subject).chmod(mode)
            return f"set its mode to {mode:04o}"
        fix = _FIXES.get(finding.code)
        return fix(facts, bus) if fix is not None else _DEFERRED_TO_UP
    except HoldfastError as error:
        return f"{error.message} [{error.code}]"
    except FactUnavailable:
        # Without the container, the node's kubeconfig cannot be read; `up` creates both.
        return _DEFERRED_TO_UP
    except OSError as error:
        return f"{error.strerror or error}"


def _quarantine_store(facts: GatewayFacts, bus: EventBus) -> str:
    """Open the store as a run does: it renames a damaged file and starts with an empty store."""
    from holdfast.events import StoreDamaged
    from holdfast.workflow.store import describe_damage

    damage: list[str] = []

    def record_damage(event: Event) -> None:
        if isinstance(event, StoreDamaged):
            damage.append(describe_damage(event))
        bus.emit(event)

    with _exclusive_lock(facts):
        read_store(facts, record_damage)
    return "; ".join(damage) or "opened without errors"


def _quarantine_metadata(facts: GatewayFacts, _bus: EventBus) -> str:
    path = facts.gateway.files.metadata
    # `rename` replaces an existing file silently: the random suffix protects an earlier damaged file.
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    with _exclusive_lock(facts):
        path.rename(path.with_name(f"{path.name}.damaged-{stamp}-{os.urandom(2).hex()}"))
    return f"renamed the damaged file; {_DEFERRED_TO_UP}"


def _write_kubeconfig(facts: GatewayFacts, _bus: EventBus) -> str:
    # Before the lock is taken: the node may answer slowly, and other commands fail while the lock is held.
    content = facts.expected_kubeconfig
    with _exclusive_lock(facts):
        home.write_atomic(facts.gateway.files.kubeconfig, content)
    return "written from the node's kubeconfig"


def _reopen_tunnel(facts: GatewayFacts, _bus: EventBus) -> str:
    from holdfast.gateway.reconnect import ensure_tunnel

    # Without the gateway's lock: the tunnel has its own, and another command may be running.
    ensure_tunnel(facts.gateway)
    return "reopened"


_FIXES: dict[str, Callable[[GatewayFacts, EventBus], str]] = {
    **dict.fromkeys(
        ("kubeconfig-missing", "kubeconfig-damaged", "kubeconfig-outdated", "certificates-expiring",
         "api-refused"),
        _write_kubeconfig,
    ),
    "tunnel-down": _reopen_tunnel,
    "store-damaged": _quarantine_store,
    "metadata-damaged": _quarantine_metadata,
}  # fmt: skip


def _run_up(facts: GatewayFacts, report: DoctorReport, bus: EventBus) -> str:
    """Run the plan of `up`, unless it would do more than repair."""
    blockers = [code for code in _CODES_BLOCKING_UP if code in report.codes]
    if "settings-differ" in report.codes and facts.container is not None and facts.container.is_running:
        blockers.append("settings-differ")
    if blockers:
        return f"`up` was not run because of {', '.join(blockers)}"
    unchecked = unchecked_blockers(report)
    if unchecked:
        return f"`up` was not run because these checks did not run: {', '.join(unchecked)}"
    from holdfast.gateway import commands

    try:
        result = commands.up(facts.gateway.name, bus, resolved=facts.resolved)
    except HoldfastError as error:
        return f"`up` failed: {error.message} [{error.code}]"
    return f"`up` was run: {', '.join(result.changed) or 'no changes were necessary'}"


def unchecked_blockers(report: DoctorReport) -> list[str]:
    """The checks that have to pass before `up` may run, and that were skipped or failed."""
    failed = {finding.subject for finding in report.findings if finding.code == CHECK_FAILED}
    return [name for name in _CHECKS_GUARDING_UP if name in report.skipped or check_subject(name) in failed]


@contextmanager
def _exclusive_lock(facts: GatewayFacts) -> Iterator[None]:
    """Hold the gateway's lock; raises `LockedError` if another command holds it."""
    from holdfast.workflow import LockHolder

    lock = facts.gateway.host.lock(facts.gateway.name)
    lock.acquire(LockHolder.current_process("doctor --fix"))
    try:
        yield
    finally:
        lock.release()
