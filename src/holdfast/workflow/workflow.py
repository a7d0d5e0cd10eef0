"""A workflow: ordered steps that can be run, resumed and previewed.

backup = Workflow("backup", [Dump(), Upload()])
backup.run(store=SQLiteStore("backup.db"), lock=FileLock("backup.lock"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import WorkflowError
from holdfast.workflow.graph import Graph
from holdfast.workflow.step import Step

if TYPE_CHECKING:
    import threading

    from holdfast.events import EventBus
    from holdfast.retry import Policy
    from holdfast.workflow.lock import Lock
    from holdfast.workflow.preview import Plan
    from holdfast.workflow.runner import RunResult
    from holdfast.workflow.store import Store

F = TypeVar("F", bound=Callable[..., Any])


class Workflow:
    """A named set of steps.

    Args:
        name: the scope of the checkpoints.
        steps: the steps, in any order that their `needs` allow.
        forget_on_success: delete the checkpoints of a successful run: the next run starts from scratch.
            A failed run is resumed.
        workers: how many independent steps run in parallel.
        probe_policy: how long to repeat a probe that returns `unknown`; 30 seconds by default.

    Raises:
        WorkflowError: a step or an argument is invalid.
    """

    def __init__(
        self,
        name: str,
        steps: Iterable[Step] = (),
        *,
        forget_on_success: bool = False,
        workers: int = 4,
        probe_policy: Policy | None = None,
    ) -> None:
        if not isinstance(name, str) or not name or not name.isprintable():
            raise WorkflowError(f"{name!r} is not a valid workflow name")
        if not isinstance(workers, int) or workers < 1:
            raise WorkflowError(f"workflow {name!r}: `workers` must be at least 1, not {workers!r}")
        if not isinstance(steps, Iterable):
            raise WorkflowError(f"workflow {name!r}: `steps` must be a list of steps, not {steps!r}")
        self.name = name
        self.forget_on_success = forget_on_success
        self.workers = workers
        self.probe_policy = probe_policy
        self._steps = list(steps)
        self._graph = Graph(self._steps) if self._steps else None

    @property
    def graph(self) -> Graph:
        """The steps and their order. Raises `WorkflowError` if the steps are inconsistent."""
        if self._graph is None:
            if not self._steps:
                raise WorkflowError(f"workflow {self.name!r} has no steps")
            self._graph = Graph(self._steps)
        return self._graph

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in execution order."""
        return tuple(self.graph)

    def add(self, step: Step) -> None:
        """Add a step; its references are checked when the workflow is used."""
        self._steps.append(step)
        self._graph = None

    def step(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """Decorate a function to add it as a step: `@workflow.step(needs=["fetch"], probe=is_saved)`."""

        def decorate(run: F) -> F:
            self.add(Step(name or run.__name__.replace("_", "-"), run=run, **options))
            return run

        return decorate

    def run(
        self,
        params: Any = None,
        *,
        store: Store | None = None,
        lock: Lock | None = None,
        bus: EventBus | None = None,
        command: str | None = None,
        subject: str = "",
        stop: threading.Event | None = None,
    ) -> RunResult:
        """Run the steps that are not done. After an error, run again to continue.

        Args:
            params: passed to the steps as `ctx.params`.
            store: keeps the checkpoints; in memory by default.
            lock: prevents parallel runs.
            bus: receives the events of the run.
            command: the command that users see in the run history; the workflow's name by default.
            subject: what the command acts on, for the run history.
            stop: stops the run when set, like the first Ctrl-C on the main thread.

        Raises:
            HoldfastError: the first error of a step, the store or the lock.
        """
        from holdfast.workflow.runner import Runner

        runner = Runner(
            self, params, store=store, lock=lock, bus=bus, command=command, subject=subject, stop=stop
        )
        return runner.run()

    def plan(self, params: Any = None, *, store: Store | None = None, bus: EventBus | None = None) -> Plan:
        """Return what a run would do now, and why; change nothing and take no lock.

        Probes and read-only steps (`repeat="always"`) are called.

        Args:
            params: passed to the steps as `ctx.params`.
            store: the checkpoints; only read.
            bus: receives the progress events of read-only steps.

        Raises:
            HoldfastError: the workflow is invalid, or the store cannot be read.
        """
        from holdfast.workflow.preview import preview

        return preview(self, params, store=store, bus=bus)
