"""The preview: what a run would do and why, with the same inspection and decision table as a run.

Read-only steps (`repeat="always"`) do run, because later steps depend on them. A preview takes no lock, does
not wait for unknown states, and only reads the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from holdfast.events import EventBus
from holdfast.workflow.inspector import StepInspector, StepTask
from holdfast.workflow.lock import NoLock
from holdfast.workflow.step import ResultNotAvailableError, RunContext, display_title, unknown
from holdfast.workflow.store import MemoryStore, Store, encode_result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.workflow.workflow import Workflow


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would do with one step."""

    step: str
    title: str
    action: Literal["skip", "verify", "run"]
    reason: str
    touches: tuple[str, ...] = ()
    at_least_once: bool = False
    # Whether the step would run cannot be known now.
    unsure: bool = False


class Plan(msgspec.Struct, frozen=True):
    """What a run would do, step by step, in execution order."""

    workflow: str
    steps: tuple[PlannedStep, ...]

    @property
    def has_changes(self) -> bool:
        """Whether a run would change anything, or might."""
        return any(step.action == "run" or step.unsure for step in self.steps)

    def __iter__(self) -> Iterator[PlannedStep]:
        return iter(self.steps)

    def __str__(self) -> str:
        width = max((len(step.step) for step in self.steps), default=0)
        return "\n".join(f"{step.action:6} {step.step:{width}}  {step.reason}" for step in self.steps)


def preview(workflow: Workflow, params: Any, *, store: Store | None, bus: EventBus | None) -> Plan:
    """Return what a run would do now; see `Workflow.plan`."""
    store = _readonly_store(store)
    store.open(lambda _event: None)
    try:
        records = store.load(workflow.name)
        key = store.key
    finally:
        store.close()
    run_context = RunContext(workflow.graph, params, bus or EventBus(), NoLock(), "preview")
    run_context.is_preview = True
    return _PlanBuilder(StepInspector(run_context, records, key)).build(workflow.name)


def _readonly_store(store: Store | None) -> Store:
    """Return a store that can be opened without changing it; a missing file counts as an empty store."""
    if store is None:
        return MemoryStore()
    from holdfast.workflow.store import SQLiteStore

    if isinstance(store, SQLiteStore):
        return SQLiteStore(store.path, readonly=True) if store.path.exists() else MemoryStore()
    return store


class _PlanBuilder:
    """Inspects the steps in order and remembers which of them would run."""

    def __init__(self, inspector: StepInspector) -> None:
        self._inspector = inspector
        self._run_context = inspector.run_context
        self._steps_to_run: dict[str, str] = {}
        self._undecided: set[str] = set()
        self._unknown_state: set[str] = set()
        # Steps that are done, but whose result is unknown.
        self._missing_results: list[str] = []
        # For each unavailable result, the first step that reads it.
        self._readers: dict[str, str] = {}

    def build(self, name: str) -> Plan:
        planned = {step: self._plan_step(step) for step in self._run_context.graph.order}
        for missing in self._missing_results:
            self._plan_missing_result(missing, planned)
        return Plan(name, tuple(planned.values()))

    def _plan_step(self, name: str) -> PlannedStep:
        step = self._run_context.graph.steps[name]
        try:
            action, reason = self._decide(name)
        except ResultNotAvailableError as missing:
            action, reason = self._plan_without_result(name, str(missing.args[0]))
            self._readers.setdefault(str(missing.args[0]), name)
        if action == "run":
            self._steps_to_run[name] = reason
            for read in step.reads:
                self._readers.setdefault(read, name)
        elif action == "verify" and step.repeat != "always":
            self._undecided.add(name)
        return PlannedStep(
            step=name,
            title=display_title(step),
            action=action,
            reason=self._run_context.redactor.redact(reason),
            touches=tuple(step.touches) if action != "skip" else (),
            at_least_once=step.repeat == "at-least-once",
            unsure=name in self._unknown_state,
        )

    def _plan_missing_result(self, name: str, planned: dict[str, PlannedStep]) -> None:
        """Plan to run a done step again for its result; if `repeat` forbids that, its reader fails."""
        step, reader = self._run_context.graph.steps[name], self._readers.get(name)
        is_needed = any(name in self._run_context.graph.ancestors(other) for other in self._steps_to_run)
        if step.repeat is None:
            if reader is None and is_needed:
                reason = f"{planned[name].reason}; its result is not recorded"
                planned[name] = replace(planned[name], reason=reason)
            elif reader is not None:
                reason = (
                    f"would fail: the result of {name!r} is not recorded, and its probe does not return it"
                )
                planned[reader] = replace(planned[reader], action="verify", reason=reason, unsure=True)
            return
        touches = tuple(step.touches)
        if reader is not None:
            reason = f"its result is not recorded, and {reader!r} needs it"
            planned[name] = replace(planned[name], action="run", reason=reason, touches=touches)
        elif is_needed:
            reason = f"{planned[name].reason}; runs again if its result is needed"
            planned[name] = replace(planned[name], action="verify", reason=reason, touches=touches)

    def _decide(self, name: str) -> tuple[Literal["skip", "verify", "run"], str]:
        task = self._inspector.prepare(name)
        pending = self._first_pending_need(name)
        if task.step.repeat == "always" and pending is not None:
            self._undecided.add(name)
            return "verify", f"runs after {self._title(pending)} (read-only)"
        if task.step.repeat == "always":
            task.context.attempt = 1
            self._run_context.redactor.store_result(name, encode_result(name, task.step.run(task.context)))
            return "verify", "runs every time (read-only)"
        try:
            probe_result = self._inspector.probe(task)
        except ResultNotAvailableError:
            raise
        except Exception as error:  # noqa: BLE001  shown as unknown state
            probe_result = unknown(str(error).split("\n", 1)[0] or type(error).__name__)
        decision = self._inspector.decide(task, probe_result)
        if decision.action == "wait":
            self._unknown_state.add(name)
            return "verify", decision.reason if pending is None else f"depends on {self._title(pending)}"
        if decision.action == "run":
            return self._verify_after_reads(task) or ("run", decision.reason)
        self._keep_result(task, adopted=decision.action == "adopt")
        if pending is not None:
            return "verify", f"{decision.reason}; depends on {self._title(pending)}"
        return "skip", decision.reason

    def _verify_after_reads(self, task: StepTask) -> tuple[Literal["verify"], str] | None:
        """Return `verify` if the step differs only in a result that the run has yet to produce."""
        record = task.record
        if record is None or record.fingerprint != task.fingerprint:
            return None
        changing = [
            name for name in record.reads or () if name in self._steps_to_run or name in self._undecided
        ]
        return ("verify", f"depends on {self._title(changing[0])}") if changing else None

    def _plan_without_result(self, name: str, missing: str) -> tuple[Literal["verify", "run"], str]:
        self._inspector.fingerprints.setdefault(name, "?")
        if self._run_context.graph.steps[name].repeat == "always":
            self._undecided.add(name)
            return "verify", f"runs after {self._title(missing)} (read-only)"
        if name in self._inspector.records:
            return "verify", f"depends on {self._title(missing)}"
        return "run", f"not done yet; runs after {self._title(missing)}"

    def _keep_result(self, task: StepTask, *, adopted: bool) -> None:
        raw = self._inspector.known_result(task, adopted=adopted)
        if raw is None:
            self._missing_results.append(task.step.name)
        else:
            self._run_context.redactor.store_result(task.step.name, raw)

    def _title(self, name: str) -> str:
        return display_title(self._run_context.graph.steps[name])

    def _first_pending_need(self, name: str) -> str | None:
        needs = self._run_context.graph.needs[name]
        return next((need for need in needs if need in self._steps_to_run or need in self._undecided), None)
