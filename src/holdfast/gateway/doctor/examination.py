"""Runs all checks at the same time and gathers what they found; a check that fails itself is a finding too.

Not here: what is looked at (checks/) and what is done about it (repair.py).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from holdfast.errors import HoldfastError
from holdfast.events import StepFinished, StepProgress, StepStarted
from holdfast.gateway.doctor.case import Case, Unavailable
from holdfast.gateway.doctor.checks import (
    certificates,
    cluster,
    container,
    engine,
    files,
    host,
    pods,
    store,
    ways,
)
from holdfast.gateway.doctor.findings import CHECK_FAILED, Finding, Report, ordered, subject_of, warning

if TYPE_CHECKING:
    from holdfast.events import Bus

Check: TypeAlias = Callable[[Case], Iterable[Finding]]

CHECKS: dict[str, Check] = {
    "engine": engine.engine,
    "foreign objects": engine.foreign,
    "orphans": engine.orphans,
    "container": container.container,
    "network": container.network,
    "volume": container.volume,
    "image": container.image,
    "ports": container.port,
    "settings": container.settings,
    "upgrade": container.upgrade,
    "restart policy": container.restarts,
    "metadata": files.metadata,
    "kubeconfig": files.kubeconfig,
    "folders": files.folders,
    "store": store.store,
    "lock": store.lock,
    "tunnel": ways.tunnel,
    "API": cluster.api,
    "gateway API": ways.gateway_api,
    "node": cluster.node,
    "stale nodes": cluster.stale_nodes,
    "volumes": cluster.volumes,
    "pods": pods.pods,
    "network policies": pods.policies,
    "certificates": certificates.certificates,
    "client files": certificates.client_files,
    "disk": host.disk,
    "clocks": host.clock,
    "kernel": host.kernel,
}

_STEP, _TITLE = "examine", "Checks"


class _Ended(NamedTuple):
    name: str
    findings: list[Finding]
    skipped: str


def examine(
    case: Case, bus: Bus, *, checks: dict[str, Check] | None = None, longest: float | None = None
) -> Report:
    """Look at everything that can be looked at; never raises because of what it finds.

    A check that has no answer in the time for all of them is told as such and left behind.
    """
    longest = case.resolved.settings.timeouts.doctor if longest is None else longest
    chosen = CHECKS if checks is None else checks
    began = time.monotonic()
    bus.emit(StepStarted(step=_STEP, title=_TITLE))
    answers: queue.SimpleQueue[_Ended] = queue.SimpleQueue()
    for name, check in chosen.items():
        # Daemons: a check that hangs in a system call must not keep the command from ending.
        threading.Thread(target=lambda n=name, c=check: answers.put(_look(case, n, c)), daemon=True).start()
    findings, skipped, waiting = list(case.known), dict[str, str](), dict(chosen)
    while waiting:
        left = began + longest - time.monotonic()
        try:
            ended = answers.get(timeout=max(0.0, left))
        except queue.Empty:
            break
        del waiting[ended.name]
        findings += ended.findings
        if ended.skipped:
            skipped[ended.name] = ended.skipped
        done = len(chosen) - len(waiting)
        bus.emit(StepProgress(step=_STEP, message=ended.name, fraction=done / len(chosen)))
    findings += [_failed(name, f"had no answer within {longest:g} s") for name in waiting]
    seconds = time.monotonic() - began
    bus.emit(StepFinished(step=_STEP, title=_TITLE, seconds=seconds, note=f"{len(chosen)} looked at"))
    order = [name for name in chosen if name in skipped]
    return Report(
        gateway=case.name or "",
        findings=ordered(findings),
        checks=len(chosen),
        seconds=round(seconds, 3),
        skipped={name: skipped[name] for name in order},
    )


def _look(case: Case, name: str, check: Check) -> _Ended:
    found: list[Finding] = []
    try:
        found.extend(check(case))
    except Unavailable as reason:
        return _Ended(name, found, str(reason))
    except HoldfastError as error:
        found.append(_failed(name, f"could not look: {error.message}", error.hint))
    except Exception as error:  # noqa: BLE001 (whatever a check trips over is told, never a traceback)
        found.append(_failed(name, f"could not look: {type(error).__name__}: {error}"))
    return _Ended(name, found, "")


def _failed(name: str, why: str, hint: str = "") -> Finding:
    return warning(CHECK_FAILED, subject_of(name), f"The check {why}.", mend="person", repair=hint)
