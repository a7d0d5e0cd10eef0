"""A workflow: an ordered set of steps that can be run, previewed, run again, and undone.

    backup = Workflow("backup", [Dump(), Upload()])
    backup.run(store=SQLiteStore("backup.db"), lock=FileLock("backup.lock"))

Not here: how a run goes (`runner`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.engine.graph import Graph
from holdfast.engine.step import Step
from holdfast.errors import WorkflowError

if TYPE_CHECKING:
    import threading

    from holdfast.engine.lock import Lock
    from holdfast.engine.preview import Plan
    from holdfast.engine.runner import RunResult
    from holdfast.engine.store import Store
    from holdfast.events import Bus
    from holdfast.retry import Policy

F = TypeVar("F", bound=Callable[..., Any])


class Workflow:
    """Steps under a name; the name is the scope of their checkpoints.

    `forget=True`: a run that finished is forgotten, and the next one does everything again (a restart); one
    that failed is gone on with all the same. `workers` run independent steps at the same time. `patience`
    is how long an unknown state is asked again.
    """

    def __init__(
        self,
        name: str,
        steps: Iterable[Step] = (),
        *,
        forget: bool = False,
        workers: int = 4,
        patience: Policy | None = None,
    ) -> None:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise WorkflowError(f"a workflow needs a name, and {name!r} is none")
        if not isinstance(workers, int) or workers < 1:
            raise WorkflowError(f"a workflow needs at least one worker, not {workers!r}")
        if not isinstance(steps, Iterable):
            raise WorkflowError(f"the steps of workflow {name!r} must be a list of steps, not {steps!r}")
        self.name = name
        self.forget = forget
        self.workers = workers
        self.patience = patience
        self._steps = list(steps)
        self._graph: Graph | None = None
        if self._steps:
            self._graph = Graph(self._steps)

    @property
    def graph(self) -> Graph:
        """The steps in their order; raises `WorkflowError` if they do not fit together."""
        if self._graph is None:
            if not self._steps:
                raise WorkflowError(f"workflow {self.name!r} has no steps")
            self._graph = Graph(self._steps)
        return self._graph

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(self.graph)

    def add(self, step: Step) -> None:
        """Add a step; how it fits is checked when the workflow is used."""
        self._steps.append(step)
        self._graph = None

    def step(self, name: str | None = None, **parts: Any) -> Callable[[F], F]:
        """Make a step of a function: `@workflow.step(needs=["fetch"], probe=is_there)`."""

        def decorate(run: F) -> F:
            self.add(Step(name or run.__name__.replace("_", "-"), run=run, **parts))
            return run

        return decorate

    def run(
        self,
        params: Any = None,
        *,
        store: Store | None = None,
        lock: Lock | None = None,
        bus: Bus | None = None,
        command: str | None = None,
        subject: str = "",
        stop: threading.Event | None = None,
    ) -> RunResult:
        """Run what is not done yet. Raises the first error; run it again and it goes on.

        On the main thread Ctrl-C stops it; from anywhere, setting `stop` does the same as the first Ctrl-C.
        """
        from holdfast.engine.runner import Runner

        runner = Runner(
            self, params, store=store, lock=lock, bus=bus, command=command, subject=subject, stop=stop
        )
        return runner.run()

    def plan(self, params: Any = None, *, store: Store | None = None, bus: Bus | None = None) -> Plan:
        """Say what a run would do now, and why; changes nothing and takes no lock."""
        from holdfast.engine.preview import preview

        return preview(self, params, store=store, bus=bus)

    def undo(
        self,
        params: Any = None,
        *,
        store: Store | None = None,
        lock: Lock | None = None,
        bus: Bus | None = None,
        command: str | None = None,
        subject: str = "",
        stop: threading.Event | None = None,
    ) -> RunResult:
        """Take back what the steps with an `undo` have done, last things first; resumable like a run."""
        from holdfast.engine.undo import undo

        return undo(
            self, params, store=store, lock=lock, bus=bus, command=command, subject=subject, stop=stop
        )
