"""Takes a workflow back: the same steps in reverse, each one's effect undone and its record dropped.

It is a workflow itself, so it is probed, recorded and resumed like any other. What a step returned is kept
with the record of its undo, for the probes of others read it to the very end. Steps without an `undo` are
left as they are. Not here: undoing by itself. A failure undoes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine.context import Context
from holdfast.engine.damage import DamageTeller
from holdfast.engine.lock import Holder, Lock, NoLock
from holdfast.engine.record import NOTHING, pack
from holdfast.engine.step import Step, has, label
from holdfast.engine.store import MemoryStore
from holdfast.engine.verdict import Verdict, absent, done
from holdfast.errors import ResultError, WorkflowError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.engine.context import Session
    from holdfast.engine.graph import Graph
    from holdfast.engine.record import Record
    from holdfast.engine.runner import RunResult
    from holdfast.engine.store import Store
    from holdfast.engine.workflow import Workflow
    from holdfast.events import StoreDamaged


class _Undo(Step):
    """The reverse of one step; its probe is the step's own, read the other way round."""

    def __init__(self, step: Step, needs: tuple[str, ...], kept: _Kept) -> None:
        super().__init__(f"undo-{step.name}", title=f"Undo: {label(step)}", needs=needs, policy=step.policy)
        self.forgets = step.name
        self.touches = step.touches
        self._step = step
        self._result = msgspec.json.decode(kept.results.get(step.name, NOTHING))
        self._recorded = step.name in kept.recorded
        if not has(step, "probe"):
            self.repeat = "safe"

    def probe(self, ctx: Context) -> Verdict:
        if not has(self._step, "probe"):
            return absent() if self._recorded else done("taken back already", result=self._result)
        try:
            verdict = self._step.probe(ctx)
        except _NotKnownError as error:
            if self._recorded:
                raise
            return done(f"nothing to undo: it is not recorded, and {error}")
        if verdict.state == "done":
            self._result = verdict.result if self._result is None else self._result
            return absent(verdict.reason)
        if verdict.state == "absent":
            return done(verdict.reason or "not there", result=self._result)
        return verdict

    def run(self, ctx: Context) -> Any:
        self._step.undo(ctx, self._result)
        return self._result


class _NotKnownError(ResultError):
    """A result is asked for that is neither recorded nor to be seen."""


class _Kept:
    """What the steps of a workflow returned: as recorded, else as their probes see it."""

    def __init__(self, graph: Graph, records: Mapping[str, Record]) -> None:
        self._graph = graph
        self.recorded = {name for name in graph.order if name in records}
        self.undone = {name for name in graph.order if _is_done(records.get(f"undo-{name}"))}
        self.results: dict[str, msgspec.Raw] = {}
        for name in graph.order:
            for record in (records.get(name), records.get(f"undo-{name}")):
                if record is not None and record.result != NOTHING:
                    self.results.setdefault(name, record.result)

    def __call__(self, session: Session, name: str) -> msgspec.Raw:
        step = self._graph.steps.get(name)
        if step is None:
            raise WorkflowError(f"there is no step {name!r} whose result could be read")
        if name not in self.results and has(step, "probe"):
            seen = step.probe(Context(session, step)).result
            if seen is not None:
                self.results[name] = pack(name, seen, session.vault)
        if name not in self.results and name not in self.recorded:
            raise _NotKnownError(f"the result of {name!r} is not known")
        return self.results.get(name, NOTHING)


class _Held:
    """A lock that is held already: the run inside checks it, and says when it has let go."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self.free = True

    def acquire(self, holder: Holder) -> None:  # noqa: ARG002  told when it was taken
        self.free = False

    def check(self) -> None:
        self._lock.check()

    def holder(self) -> Holder | None:
        return self._lock.holder()

    def release(self) -> None:
        self.free = True


def undo(workflow: Workflow, params: Any, *, store: Store | None, lock: Lock | None, **how: Any) -> RunResult:
    """Build the reverse of a workflow from its records, and run it, all under one lock."""
    from holdfast.engine.runner import Runner

    store, lock = store or MemoryStore(), lock or NoLock()
    command = how.pop("command") or f"undo {workflow.name}"
    lock.acquire(Holder.me(command))
    held = _Held(lock)
    try:
        told: list[StoreDamaged] = []
        damage = DamageTeller(how["bus"], workflow.graph.order, told)
        kept = _Kept(workflow.graph, _records(workflow, store, damage))
        reverse = _reverse(workflow, kept)
        return Runner(
            reverse, params, store=store, lock=held, command=command, lookup=kept, damage=told, **how
        ).run()
    finally:
        if held.free:
            lock.release()


def _records(workflow: Workflow, store: Store, damage: DamageTeller) -> dict[str, Record]:
    """What is recorded; damage is told."""
    records: dict[str, Record] = {}
    try:
        store.open(damage)
        records = store.load(workflow.name)
    finally:
        store.close()
        damage.loaded(records)
    return records


def _is_done(record: Record | None) -> bool:
    return record is not None and record.state == "done"


def _reverse(workflow: Workflow, kept: _Kept) -> Workflow:
    from holdfast.engine.workflow import Workflow as Reverse

    if not any(has(step, "undo") for step in workflow.graph):
        raise WorkflowError(f"nothing of {workflow.name!r} can be undone: none of its steps has an `undo`")
    for name in workflow.graph.order:
        if f"undo-{name}" in workflow.graph.steps:
            raise WorkflowError(f"a step is called 'undo-{name}', as is the undo of {name!r}")
    steps = _reversed(workflow.graph, kept)
    if not steps:
        raise WorkflowError(
            f"there is nothing to undo: no step of {workflow.name!r} that has an `undo` is recorded as begun"
        )
    return Reverse(workflow.name, steps, forget=True, workers=workflow.workers, patience=workflow.patience)


def _reversed(graph: Graph, kept: _Kept) -> list[Step]:
    """One undo for each step that has one and may have been done; it waits for those of all later steps."""
    known = kept.recorded | kept.undone
    wanted = [
        name
        for name in graph.order
        if has(graph.steps[name], "undo") and (name in known or has(graph.steps[name], "probe"))
    ]
    later = {name: [other for other in wanted if name in graph.ancestors(other)] for name in wanted}
    return [
        _Undo(graph.steps[name], tuple(f"undo-{other}" for other in later[name]), kept) for name in wanted
    ]
