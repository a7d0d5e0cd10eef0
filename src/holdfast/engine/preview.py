"""What a run would do, and why, without doing it: the same questions and the same table as a run.

Steps that only look (`repeat="always"`) do run, so that those after them can be judged. No lock is taken, an
unknown state is not waited for, and a store is only read. Not here: how a plan is printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.engine.context import NotYetError, Session
from holdfast.engine.examine import Examiner, Task, cannot_tell
from holdfast.engine.lock import NoLock
from holdfast.engine.record import NOTHING, pack
from holdfast.engine.step import label
from holdfast.engine.store import MemoryStore, Store
from holdfast.events import Bus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.engine.workflow import Workflow


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of one step."""

    step: str
    title: str
    action: Literal["skip", "verify", "run"]
    reason: str
    touches: tuple[str, ...] = ()
    at_least_once: bool = False


class Plan(msgspec.Struct, frozen=True):
    """What a run would do, step by step."""

    workflow: str
    steps: tuple[PlannedStep, ...]

    @property
    def changes(self) -> bool:
        """Whether a run would change anything, as far as that can be told."""
        return any(step.action == "run" for step in self.steps)

    def __iter__(self) -> Iterator[PlannedStep]:
        return iter(self.steps)

    def __str__(self) -> str:
        width = max((len(step.step) for step in self.steps), default=0)
        return "\n".join(f"{one.action:6} {one.step:{width}}  {one.reason}" for one in self.steps)


def preview(workflow: Workflow, params: Any, *, store: Store | None, bus: Bus | None) -> Plan:
    """Look at every step in order."""
    store = _to_look(store)
    store.open(lambda _event: None)
    try:
        records = store.load(workflow.name)
        key = store.key
    finally:
        store.close()
    session = Session(workflow.graph, params, bus or Bus(), NoLock(), "preview")
    session.previewing = True
    return _Preview(Examiner(session, records, key)).plan(workflow.name)


def _to_look(store: Store | None) -> Store:
    """A store that may be opened without leaving a trace; a file that is not there yet is an empty one."""
    if store is None:
        return MemoryStore()
    from holdfast.engine.sqlite import SQLiteStore

    if isinstance(store, SQLiteStore):
        return SQLiteStore(store.path, readonly=True) if store.path.exists() else MemoryStore()
    return store


class _Preview:
    """Walks the steps and remembers which of them would run."""

    def __init__(self, examiner: Examiner) -> None:
        self._examiner = examiner
        self._session = examiner.session
        self._running: dict[str, str] = {}
        self._unsure: set[str] = set()

    def plan(self, name: str) -> Plan:
        return Plan(name, tuple(self._look(step) for step in self._session.graph.order))

    def _look(self, name: str) -> PlannedStep:
        step = self._session.graph.steps[name]
        try:
            action, reason = self._judge(name)
        except NotYetError as missing:
            action, reason = self._waits_for(name, str(missing.args[0]))
        if action == "run":
            self._running[name] = reason
        elif action == "verify" and step.repeat != "always":
            self._unsure.add(name)
        return PlannedStep(
            step=name,
            title=label(step),
            action=action,
            reason=self._session.vault.redact(reason),
            touches=tuple(step.touches) if action != "skip" else (),
            at_least_once=step.repeat == "at-least-once",
        )

    def _judge(self, name: str) -> tuple[Literal["skip", "verify", "run"], str]:
        task = self._examiner.prepare(name)
        waits = self._first_running_need(name)
        if task.step.repeat == "always" and waits is not None:
            self._unsure.add(name)
            return "verify", f"looks after {waits}"
        if task.step.repeat == "always":
            task.context.attempt = 1
            self._session.results[name] = pack(name, task.step.run(task.context), self._session.vault)
            return "verify", "looks every time"
        try:
            verdict = self._examiner.ask(task)
        except NotYetError:
            raise
        except Exception as error:  # noqa: BLE001  a preview tells what it cannot see
            verdict = cannot_tell(error)
        decision = self._examiner.decide(task, verdict)
        if decision.action == "wait":
            return "verify", decision.reason if waits is None else f"decided after {waits}"
        if decision.action == "run":
            return self._waits_for_readings(task) or ("run", decision.reason)
        self._keep_result(task)
        if waits is not None:
            return "verify", f"decided after {waits}: {decision.reason}"
        return "skip", decision.reason

    def _waits_for_readings(self, task: Task) -> tuple[Literal["verify"], str] | None:
        """A step that differs only in a result that is yet to come cannot be judged now."""
        record = task.record
        if record is None or record.fingerprint != task.fingerprint:
            return None
        coming = [name for name in record.reads or () if name in self._running or name in self._unsure]
        return ("verify", f"decided after {coming[0]}, whose result it reads") if coming else None

    def _waits_for(self, name: str, missing: str) -> tuple[Literal["verify", "run"], str]:
        self._examiner.fingerprints.setdefault(name, "?")
        if name in self._examiner.records:
            return "verify", f"decided after {missing}, whose result it reads"
        return "run", f"not done yet; comes after {missing}"

    def _keep_result(self, task: Task) -> None:
        record, verdict = task.record, task.context.verdict
        if verdict is not None and verdict.result is not None:
            self._session.results[task.step.name] = pack(task.step.name, verdict.result, self._session.vault)
        elif record is not None and not (record.adopted and record.result == NOTHING):
            self._session.results[task.step.name] = record.result

    def _first_running_need(self, name: str) -> str | None:
        needs = self._session.graph.needs[name]
        return next((need for need in needs if need in self._running or need in self._unsure), None)
