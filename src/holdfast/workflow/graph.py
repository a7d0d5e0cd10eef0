"""The graph of a workflow: checks the steps and computes their order.

Every mistake in a workflow is a `WorkflowError` that is raised before any effect.
"""

from __future__ import annotations

import graphlib
import heapq
import inspect
import typing
from collections.abc import Iterable, Iterator, Sequence

from holdfast.errors import WorkflowError
from holdfast.workflow.step import REPEAT_VALUES, Step, has_hook, required_steps

MAX_NAME_LENGTH = 200


class Graph:
    """Steps in topological order; independent steps keep the order in which they were passed."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.steps: dict[str, Step] = {}
        for step in steps:
            _check_step(step)
            if step.name in self.steps:
                raise WorkflowError(
                    f"two steps are called {step.name!r}",
                    hint="Give each step its own name: the name is the checkpoint key.",
                )
            self.steps[step.name] = step
        # Sorted: the order of `needs` must not change the fingerprint.
        self.needs: dict[str, tuple[str, ...]] = {
            name: tuple(sorted(required_steps(step))) for name, step in self.steps.items()
        }
        self._check_references()
        self.dependants: dict[str, list[str]] = {name: [] for name in self.steps}
        for name, needs in self.needs.items():
            for need in needs:
                self.dependants[need].append(name)
        self.readers: dict[str, list[str]] = {}
        for name, step in self.steps.items():
            for read in step.reads:
                self.readers.setdefault(read, []).append(name)
        self.order: tuple[str, ...] = tuple(self._topological_order())
        self._check_readers()
        self.record_only = frozenset(name for name, step in self.steps.items() if _is_decided_by_record(step))
        self.without_inputs = frozenset(
            name for name, step in self.steps.items() if not has_hook(step, "inputs")
        )
        self._ancestors: dict[str, frozenset[str]] = {}

    def __iter__(self) -> Iterator[Step]:
        return (self.steps[name] for name in self.order)

    def __len__(self) -> int:
        return len(self.order)

    def ancestors(self, name: str) -> frozenset[str]:
        """Return all steps that are done before this one starts."""
        if name not in self._ancestors:
            seen: set[str] = set()
            stack = list(self.needs[name])
            while stack:
                need = stack.pop()
                if need not in seen:
                    seen.add(need)
                    stack.extend(self.needs[need])
            self._ancestors[name] = frozenset(seen)
        return self._ancestors[name]

    def _check_references(self) -> None:
        for name, needs in self.needs.items():
            forgets = self.steps[name].forgets
            references = [*(("needs", need) for need in needs), *([("forgets", forgets)] if forgets else ())]
            for verb, other in references:
                if not isinstance(other, str) or other not in self.steps:
                    raise WorkflowError(
                        f"step {name!r} {verb} {other!r}, which does not exist",
                        hint=f"The steps are: {_format_names(self.steps)}.",
                    )

    def _check_readers(self) -> None:
        for read, readers in self.readers.items():
            if _is_annotated_none(self.steps[read]):
                raise WorkflowError(
                    f"step {read!r} returns nothing, but {_format_names(readers)} reads its result",
                    hint="Return the value that they need, or remove the step from `reads`.",
                )

    def _topological_order(self) -> Iterator[str]:
        """Yield the names by Kahn's algorithm; among ready steps, the one passed first."""
        names = list(self.steps)
        position = {name: i for i, name in enumerate(names)}
        waiting = {name: len(needs) for name, needs in self.needs.items()}
        ready = [position[name] for name, count in waiting.items() if count == 0]
        while ready:
            name = names[heapq.heappop(ready)]
            yield name
            for dependant in self.dependants[name]:
                waiting[dependant] -= 1
                if waiting[dependant] == 0:
                    heapq.heappush(ready, position[dependant])
        if any(waiting.values()):
            self._raise_cycle_error()

    def _raise_cycle_error(self) -> None:
        try:
            graphlib.TopologicalSorter(self.needs).prepare()
        except graphlib.CycleError as error:
            cycle = reversed(error.args[1])  # from a step to what it needs, and back to that step
            raise WorkflowError(
                f"the steps depend on each other in a cycle: {' → '.join(cycle)}",
                hint="Remove one of these dependencies.",
            ) from None


def _check_step(step: object) -> None:
    if not isinstance(step, Step):
        raise WorkflowError(
            f"{step!r} is not a Step", hint="Pass instances: EnsureNetwork(), not EnsureNetwork."
        )
    name = step.name
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise WorkflowError(f"{type(step).__name__} has no valid name: {name!r}")
    for field in ("needs", "reads", "touches"):
        value = getattr(step, field)
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise WorkflowError(f"`{field}` of step {name!r} must be a list or tuple of names, not {value!r}")
        for item in value:
            if not isinstance(item, str):
                raise WorkflowError(f"`{field}` of step {name!r} must contain names, not {item!r}")
    if not has_hook(step, "run"):
        raise WorkflowError(f"step {name!r} has no `run`")
    _check_hooks(step)
    if step.repeat is not None and step.repeat not in REPEAT_VALUES:
        raise WorkflowError(
            f"`repeat` of step {name!r} must be one of {_format_names(REPEAT_VALUES)}, not {step.repeat!r}"
        )
    if step.repeat is None and not has_hook(step, "probe"):
        raise WorkflowError(
            f"step {name!r} has neither a probe nor `repeat`",
            hint='Add a probe, or set repeat="safe", "always" or "at-least-once".',
        )


def _check_hooks(step: Step) -> None:
    for hook in ("run", "probe", "inputs", "restore"):
        if not callable(getattr(step, hook)):
            raise WorkflowError(
                f"`{hook}` of step {step.name!r} must be a function, not {step.__dict__[hook]!r}"
            )
    if inspect.iscoroutinefunction(step.run):
        raise WorkflowError(
            f"`run` of step {step.name!r} is a coroutine function; steps are synchronous",
            hint="Call asyncio.run(...) inside `run`. Independent steps run in parallel on threads.",
        )
    if step.policy is not None:
        from holdfast.retry import Policy

        if not isinstance(step.policy, Policy):
            raise WorkflowError(
                f"`policy` of step {step.name!r} must be a holdfast.retry.Policy, not {step.policy!r}"
            )


def _is_decided_by_record(step: Step) -> bool:
    """Report whether the record alone decides, because the step has no probe and no `restore`."""
    return step.repeat != "always" and not has_hook(step, "probe") and not has_hook(step, "restore")


def _is_annotated_none(step: Step) -> bool:
    hint = getattr(step.run, "__annotations__", {}).get("return", typing.Any)
    return hint is None or hint == "None"


def _format_names(names: Iterable[str]) -> str:
    quoted = [repr(name) for name in names]
    return ", ".join([*quoted[:8], *(["…"] if len(quoted) > 8 else [])])  # noqa: PLR2004
