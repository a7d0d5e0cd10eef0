"""A workflow: ordered steps that can be run, resumed and previewed.

backup = Workflow("backup")

@backup.step(probe=is_dumped)
def dump(database: str) -> str: ...

backup.run({"database": "shop"}, store=SQLiteStore("backup.db"), lock=FileLock("backup.lock"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import WorkflowError
from holdfast.workflow.graph import Graph

if TYPE_CHECKING:
    import threading

    from holdfast.events import EventBus
    from holdfast.retry import Policy
    from holdfast.workflow.lock import Lock
    from holdfast.workflow.preview import Plan
    from holdfast.workflow.runner import RunResult
    from holdfast.workflow.step import ProbeResult, Repeat, Step
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

    def step(  # noqa: PLR0913 (one keyword for each attribute and hook)
        self,
        name: str | None = None,
        *,
        probe: Callable[..., ProbeResult] | None = None,
        inputs: Callable[..., Mapping[str, Any]] | Mapping[str, Any] | None = None,
        restore: Callable[..., None] | None = None,
        title: str | None = None,
        needs: Sequence[str | Callable[..., Any]] = (),
        reads: Sequence[str | Callable[..., Any]] = (),
        version: int | None = None,
        repeat: Repeat | None = None,
        policy: Policy | None = None,
        touches: Sequence[str] | None = None,
        forgets: str | None = None,
    ) -> Callable[[F], F]:
        """Decorate a function to add it as a step: `@workflow.step(probe=is_saved)`.

        Its parameters, and those of the hooks, are found by name: `ctx` is the `StepContext`, a default of
        `result_of(other)` is the result of that step, and any other name is a parameter of the run, or a
        value of `bind`. The parameters of the run are inputs of the step.

        Args:
            name: key of the checkpoint; the name of the function with dashes by default.
            probe: observes whether the effect exists; returns `done`, `absent`, `partial` or `unknown`.
            inputs: further values that the step reads from outside.
            restore: restores in memory what later steps use; its parameter `result` is that of this step.
            title: name for users.
            needs: steps that must be done first, as functions or names.
            reads: like `needs`, for results that the functions read with `ctx.result`.
            version: increase it to run the step again after a change of its code.
            repeat: what a second run means for a step without probe; see `Step`.
            policy: how the function is retried.
            touches: data that the step changes, for users.
            forgets: an earlier step whose checkpoint is deleted when this one is done.

        Returns:
            A decorator that returns the function unchanged: it can still be called directly.
        """
        from holdfast.workflow.function_step import FunctionStep, mark_as_step

        if callable(name):
            raise WorkflowError(
                f"{name!r}: `Workflow.step` is used without arguments",
                hint='Write `@workflow.step(probe=...)`, or `@workflow.step(repeat="safe")`.',
            )
        options = {
            "probe": probe, "inputs": inputs, "restore": restore, "title": title, "needs": needs,
            "reads": reads, "version": version, "repeat": repeat, "policy": policy, "touches": touches,
            "forgets": forgets,
        }  # fmt: skip

        def decorate(run: F) -> F:
            step = FunctionStep(run, name, **options)  # type: ignore[arg-type]
            mark_as_step(run, step.name)
            self.add(step)
            return run

        return decorate

    def bind(self, **values: Any) -> Workflow:
        """Return the workflow with fixed values for parameters of its functions.

        Unlike the parameters of a run, these values are not inputs: a change does not run a step again. Use
        them for directories and clients.
        """
        from holdfast.workflow.function_step import FunctionStep

        steps = [step.bind(values) if isinstance(step, FunctionStep) else step for step in self._steps]
        return Workflow(
            self.name,
            steps,
            forget_on_success=self.forget_on_success,
            workers=self.workers,
            probe_policy=self.probe_policy,
        )

    def check_parameters(self, params: Any) -> None:
        """Check that the run has all parameters that the functions of the steps require.

        Raises:
            WorkflowError: a parameter is missing.
        """
        from holdfast.workflow.function_step import FunctionStep

        for step in self._steps:
            for name in step.missing_parameters(params) if isinstance(step, FunctionStep) else ():
                raise WorkflowError(
                    f"step {step.name!r} has the parameter {name!r}, which the run does not have",
                    hint=f"Pass it to `run`, fix it with `bind({name}=...)`, or give it a default.",
                )

    def run(
        self,
        params: Any = None,
        *,
        store: Store | None = None,
        lock: Lock | None = None,
        bus: EventBus | None = None,
        command: str | None = None,
        subject: str = "",
        parameters: Mapping[str, object] | None = None,
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
            parameters: what the command was called with, for the run history. A `Secret` is stored by its
                reference; pass secrets in no other way.
            stop: stops the run when set, like the first Ctrl-C on the main thread.

        Raises:
            HoldfastError: the first error of a step, the store or the lock.
        """
        from holdfast.workflow.runner import Runner

        self.check_parameters(params)
        runner = Runner(
            self, params, store=store, lock=lock, bus=bus, command=command, subject=subject,
            parameters=parameters or {}, stop=stop,
        )  # fmt: skip
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

        self.check_parameters(params)
        return preview(self, params, store=store, bus=bus)
