"""Safe repairs: what `up` does anyway, files put right, a damaged store set aside. Nothing is ever deleted.

Whether a repair helped is not said here: the examination afterwards does. Not here: what is wrong (checks/).
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
from holdfast.gateway.doctor.case import Case, Unavailable
from holdfast.gateway.doctor.checks.store import SCOPES
from holdfast.gateway.doctor.findings import CHECK_FAILED, subject_of
from holdfast.gateway.remote import reach
from holdfast.gateway.spec import active_name, set_active

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.events import Bus, Event
    from holdfast.gateway.doctor.findings import Finding, Report

_MODES = {"kubeconfig-mode": 0o600, "store-mode": 0o600, "folder-mode": 0o700}
_KUBECONFIG = {"kubeconfig-missing", "kubeconfig-damaged", "kubeconfig-outdated"}
_NEVER_UP = ("settings-bad", "volume-missing", "image-differs", "upgrade-unfinished", "port-taken",
             "foreign-object", "lock-held")  # fmt: skip
"""With one of these about, `up` would fail, begin with an empty volume, or do more than a repair."""
_FIND_THEM = ("volume", "image", "settings", "upgrade", "ports", "foreign objects", "lock")
"""The checks that find those: where one could not look, nobody knows that there is nothing of the kind."""


def mend(case: Case, report: Report, bus: Bus) -> dict[Finding, str]:
    """Do what is safe about each finding, and say of each what was done or why nothing was."""
    told: dict[Finding, str] = {}
    wanted = [finding for finding in report.findings if finding.mend == "fix"]
    for finding in wanted:
        action = _ACTIONS.get(finding.code)
        if action is not None:
            told[finding] = _tried(action, case, finding, bus)
    rest = {finding: said for finding in wanted if (said := told.get(finding, _BY_UP)).endswith(_BY_UP)}
    if rest:
        done = _up(case, report, bus)
        told |= {finding: said.removesuffix(_BY_UP) + done for finding, said in rest.items()}
    for finding in report.findings:
        if finding.mend in ("command", "person"):
            told[finding] = "not for --fix: see its repair"
    return told


def _tried(action: Callable[[Case, Finding, Bus], str], case: Case, finding: Finding, bus: Bus) -> str:
    try:
        return action(case, finding, bus)
    except HoldfastError as error:
        return f"{error.message} [{error.code}]"
    except Unavailable:
        return _BY_UP
    except OSError as error:
        return f"{error.strerror or error}"


def _set_mode(case: Case, finding: Finding, bus: Bus) -> str:
    del case, bus
    mode = _MODES[finding.code]
    Path(finding.subject).chmod(mode)
    return f"set its mode to {mode:04o}"


def _set_store_aside(case: Case, finding: Finding, bus: Bus) -> str:
    """Open it as a run does: what is damaged is moved away, and what can be believed is kept."""
    from holdfast.engine import SQLiteStore
    from holdfast.engine.damage import words
    from holdfast.events import StoreDamaged

    del finding
    aside: list[str] = []

    def tell(event: Event) -> None:
        if isinstance(event, StoreDamaged):
            aside.append(words(event))
        bus.emit(event)

    with _alone(case):
        store = SQLiteStore(case.work.files.state)
        try:
            store.open(tell)
            for scope in SCOPES:
                store.load(scope)
            store.runs()
        finally:
            store.close()
    return "; ".join(aside) or "opened, and found to be well"


def _set_metadata_aside(case: Case, finding: Finding, bus: Bus) -> str:
    del finding, bus
    path = case.work.files.metadata
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    with _alone(case):
        path.rename(path.with_name(f"{path.name}.damaged-{stamp}-{os.urandom(2).hex()}"))
    return f"set aside; {_BY_UP}"


def _write_kubeconfig(case: Case, finding: Finding, bus: Bus) -> str:
    del finding, bus
    path, wanted = case.work.files.kubeconfig, case.wanted_kubeconfig
    with _alone(case):
        home.write_atomic(path, wanted)
    return "written from the node's own"


def _open_tunnel(case: Case, finding: Finding, bus: Bus) -> str:
    del finding, bus
    reach(case.work)
    return "opened again"


def _up(case: Case, report: Report, bus: Bus) -> str:
    """Run the plan of `up`, unless that would do more than mend."""
    blocked = [code for code in _NEVER_UP if code in report.codes]
    if "settings-differ" in report.codes and case.container is not None and case.container.running:
        blocked.append("settings-differ")
    if blocked:
        return f"left alone because of {', '.join(blocked)}"
    blind = blind_spots(report)
    if blind:
        return f"left alone because these could not be looked at: {', '.join(blind)}"
    before = _active()
    try:
        result = commands.up(case.work.name, bus, resolved=case.resolved)
    except HoldfastError as error:
        return f"`up` was run and failed: {error.message} [{error.code}]"
    finally:
        if before is not None and _active() != before:
            set_active(before)  # mending a gateway is no reason to make it the active one
    return f"`up` was run: {', '.join(result.changed) or 'nothing had to be changed'}"


def blind_spots(report: Report) -> list[str]:
    """The checks without which nobody knows whether `up` would only mend."""
    failed = {finding.subject for finding in report.findings if finding.code == CHECK_FAILED}
    return [name for name in _FIND_THEM if name in report.skipped or subject_of(name) in failed]


def _active() -> str | None:
    try:
        return active_name()
    except HoldfastError:
        return None


@contextmanager
def _alone(case: Case) -> Iterator[None]:
    """Nobody else works on the gateway meanwhile; raises who does."""
    from holdfast.engine import Holder

    lock = case.work.place.lock(case.work.name)
    lock.acquire(Holder.me("doctor --fix"))
    try:
        yield
    finally:
        lock.release()


_BY_UP = "left to `up`"
_ACTIONS: dict[str, Callable[[Case, Finding, Bus], str]] = {
    **dict.fromkeys(_MODES, _set_mode),
    **dict.fromkeys(_KUBECONFIG, _write_kubeconfig),
    "certificates-expiring": _write_kubeconfig,
    "api-refused": _write_kubeconfig,
    "tunnel-down": _open_tunnel,
    "store-damaged": _set_store_aside,
    "metadata-damaged": _set_metadata_aside,
}
