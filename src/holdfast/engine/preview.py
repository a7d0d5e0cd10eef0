"""What a run would do, and why, without doing it: the same questions and the same table as a run.

Steps that only look (`repeat="always"`) do run, so that those after them can be judged. No lock is taken, an
unknown state is not waited for, and a store is only read. Not here: how a plan is printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

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
    unsure: bool = False
    """nobody can tell now whether it would run"""


class Plan(msgspec.Struct, frozen=True):
    """What a run would do, step by step."""

    workflow: str
    steps: tuple[PlannedStep, ...]

    @property
    def changes(self) -> bool:
        """Whether a run may change anything: a step would run, or nobody can tell now whether it would."""
        return any(step.action == "run" or step.unsure for step in self.steps)

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
        self._unknown: set[str] = set()
        """steps whose state nobody can tell"""
        self._lost: list[str] = []
        """steps that are done, and whose result nobody kept"""
        self._readers: dict[str, str] = {}
        """for the result of a step, the first that asks for it in vain"""

    def plan(self, name: str) -> Plan:
        planned = {step: self._look(step) for step in self._session.graph.order}
        for lost in self._lost:
            self._for_its_result(lost, planned)
        return Plan(name, tuple(planned.values()))

    def _look(self, name: str) -> PlannedStep:
        step = self._session.graph.steps[name]
        try:
            action, reason = self._judge(name)
        except NotYetError as missing:
            action, reason = self._waits_for(name, str(missing.args[0]))
            self._readers.setdefault(str(missing.args[0]), name)
        if action == "run":
            self._running[name] = reason
            for read in step.reads:
                self._readers.setdefault(read, name)
        elif action == "verify" and step.repeat != "always":
            self._unsure.add(name)
        return PlannedStep(
            step=name,
            title=label(step),
            action=action,
            reason=self._session.vault.redact(reason),
            touches=tuple(step.touches) if action != "skip" else (),
            at_least_once=step.repeat == "at-least-once",
            unsure=name in self._unknown,
        )

    def _for_its_result(self, name: str, planned: dict[str, PlannedStep]) -> None:
        """A step that is done may be run again for its result; where that may not be, its reader stops."""
        step, reader = self._session.graph.steps[name], self._readers.get(name)
        after = any(name in self._session.graph.ancestors(other) for other in self._running)
        if step.repeat is None:
            if reader is None and after:
                reason = f"{planned[name].reason}; what it returned is not known"
                planned[name] = replace(planned[name], reason=reason)
            elif reader is not None:
                reason = (
                    f"cannot be done: the result of {name!r} is not known, and its probe does not bring it"
                )
                planned[reader] = replace(planned[reader], action="verify", reason=reason, unsure=True)
            return
        touches = tuple(step.touches)
        if reader is not None:
            reason = f"its result is not known, and {reader!r} reads it"
            planned[name] = replace(planned[name], action="run", reason=reason, touches=touches)
        elif after:
            reason = f"{planned[name].reason}; run again if its result is read, which is not known"
            planned[name] = replace(planned[name], action="verify", reason=reason, touches=touches)

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
            self._unknown.add(name)
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
        if self._session.graph.steps[name].repeat == "always":
            self._unsure.add(name)
            return "verify", f"looks after {missing}"
        if name in self._examiner.records:
            return "verify", f"decided after {missing}, whose result it reads"
        return "run", f"not done yet; comes after {missing}"

    def _keep_result(self, task: Task) -> None:
        record, verdict = task.record, task.context.verdict
        if verdict is not None and verdict.result is not None:
            self._session.results[task.step.name] = pack(task.step.name, verdict.result, self._session.vault)
        elif record is not None and not (record.adopted and record.result == NOTHING):
            self._session.results[task.step.name] = record.result
        else:
            self._lost.append(task.step.name)

    def _first_running_need(self, name: str) -> str | None:
        needs = self._session.graph.needs[name]
        return next((need for need in needs if need in self._running or need in self._unsure), None)
