"""Takes a workflow back: the same steps in reverse, each one's effect undone and its record dropped.

It is a workflow itself, so it is probed, recorded and resumed like any other. Steps without an `undo` are
left as they are. Not here: undoing by itself. A failure undoes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine.damage import DamageTeller
from holdfast.engine.lock import Holder, Lock, NoLock
from holdfast.engine.step import Step, has, label
from holdfast.engine.store import MemoryStore
from holdfast.engine.verdict import Verdict, absent, done
from holdfast.errors import WorkflowError
from holdfast.events import Bus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.engine.context import Context
    from holdfast.engine.graph import Graph
    from holdfast.engine.runner import RunResult
    from holdfast.engine.store import Store
    from holdfast.engine.workflow import Workflow


class _Undo(Step):
    """The reverse of one step; its probe is the step's own, read the other way round."""

    def __init__(self, step: Step, needs: tuple[str, ...], result: Any) -> None:
        super().__init__(f"undo-{step.name}", title=f"Undo: {label(step)}", needs=needs, policy=step.policy)
        self.forgets = step.name
        self.touches = step.touches
        self._step = step
        self._result = result
        if not has(step, "probe"):
            self.repeat = "safe"

    def probe(self, ctx: Context) -> Verdict:
        if not has(self._step, "probe"):
            return absent()
        verdict = self._step.probe(ctx)
        if verdict.state == "done":
            return absent(verdict.reason)
        return done(verdict.reason or "not there") if verdict.state == "absent" else verdict

    def run(self, ctx: Context) -> None:
        self._step.undo(ctx, self._result)


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
        results = _results(workflow, store, how["bus"] or Bus())
        reverse = _reverse(workflow, results)
        return Runner(reverse, params, store=store, lock=held, command=command, given=results, **how).run()
    finally:
        if held.free:
            lock.release()


def _results(workflow: Workflow, store: Store, bus: Bus) -> dict[str, msgspec.Raw]:
    """What the recorded steps returned; damage is told."""
    damage, records = DamageTeller(bus, workflow.graph.order), {}
    try:
        store.open(damage)
        records = store.load(workflow.name)
    finally:
        store.close()
        damage.loaded(records)
    return {name: record.result for name, record in records.items()}


def _reverse(workflow: Workflow, results: Mapping[str, msgspec.Raw]) -> Workflow:
    from holdfast.engine.workflow import Workflow as Reverse

    steps = _reversed(workflow.graph, set(results), results)
    if not steps:
        raise WorkflowError(
            f"nothing of {workflow.name!r} can be undone: no step that was done has an `undo`"
        )
    return Reverse(workflow.name, steps, forget=True, workers=workflow.workers, patience=workflow.patience)


def _reversed(graph: Graph, recorded: set[str], results: Mapping[str, msgspec.Raw]) -> list[Step]:
    """One undo for each step that has one and may have been done; it waits for those of all later steps."""
    wanted = [
        name
        for name in graph.order
        if has(graph.steps[name], "undo") and (name in recorded or has(graph.steps[name], "probe"))
    ]
    later = {name: [other for other in wanted if name in graph.ancestors(other)] for name in wanted}
    return [
        _Undo(
            graph.steps[name],
            tuple(f"undo-{other}" for other in later[name]),
            msgspec.json.decode(results[name]) if name in results else None,
        )
        for name in wanted
    ]
