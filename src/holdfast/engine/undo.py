"""Takes a workflow back: the same steps in reverse, each one's effect undone and its record dropped.

It is a workflow itself, so it is probed, recorded and resumed like any other. Steps without an `undo` are
left as they are. Not here: undoing by itself. A failure undoes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine.step import Step, has, label
from holdfast.engine.store import MemoryStore
from holdfast.engine.verdict import Verdict, absent, done
from holdfast.errors import WorkflowError

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


def undo(workflow: Workflow, params: Any, *, store: Store | None, **how: Any) -> RunResult:
    """Build the reverse of a workflow from its records, and run it."""
    from holdfast.engine.runner import Runner
    from holdfast.engine.workflow import Workflow as Reverse

    store = store or MemoryStore()
    store.open(lambda _event: None)
    try:
        records = store.load(workflow.name)
    finally:
        store.close()
    results = {name: record.result for name, record in records.items()}
    steps = _reversed(workflow.graph, set(records), results)
    if not steps:
        raise WorkflowError(
            f"nothing of {workflow.name!r} can be undone: no step that was done has an `undo`"
        )
    reverse = Reverse(workflow.name, steps, forget=True, workers=workflow.workers, patience=workflow.patience)
    command = how.pop("command") or f"undo {workflow.name}"
    return Runner(reverse, params, store=store, command=command, given=results, **how).run()


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
