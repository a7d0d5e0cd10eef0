"""Safe repairs for `doctor --fix`: the plan of `up`, file modes, and moving damaged files away.

No fix deletes anything. Whether a fix worked is decided by the next run of the checks (runner.py).
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import home
from holdfast.errors import HoldfastError
from holdfast.gateway import commands
from holdfast.gateway.doctor.checks import read_store
from holdfast.gateway.doctor.facts import FactUnavailable, GatewayFacts
from holdfast.gateway.doctor.findings import CHECK_FAILED, check_subject
from holdfast.gateway.reconnect import ensure_tunnel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.events import Event, EventBus
    from holdfast.gateway.doctor.findings import DoctorReport, Finding

_EXPECTED_MODES = {"kubeconfig-mode": 0o600, "store-mode": 0o600, "folder-mode": 0o700}
# With one of these findings, `up` would fail, create an empty volume, or do more than a repair.
_CODES_BLOCKING_UP = (
    "settings-bad", "volume-missing", "image-differs", "upgrade-unfinished", "port-taken", "foreign-object",
    "lock-held",
)  # fmt: skip
# The checks that report those codes. If one of them did not run, `up` is not known to be safe.
_CHECKS_GUARDING_UP = ("volume", "image", "settings", "upgrade", "ports", "foreign objects", "lock")
_DEFERRED_TO_UP = "left to `up`"


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
