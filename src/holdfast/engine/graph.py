"""The shape of a workflow: valid names, an order, who comes before whom.

Everything that is wrong with it is one `WorkflowError`, raised before any effect.
Not here: running it (`runner`).
"""

from __future__ import annotations

import heapq
import inspect
import typing
from collections.abc import Iterable, Iterator, Sequence

from holdfast.engine.step import REPEATS, Step, deep_needs, has
from holdfast.errors import WorkflowError

LONGEST_NAME = 200


class Graph:
    """Steps in an order that respects their needs, and as given otherwise."""

    def __init__(self, steps: Iterable[Step]) -> None:
        given = list(steps)
        self.steps: dict[str, Step] = {}
        for step in given:
            _check_step(step)
            if step.name in self.steps:
                raise WorkflowError(
                    f"two steps are called {step.name!r}",
                    hint="A name is a checkpoint key: give each its own.",
                )
            self.steps[step.name] = step
        # By name: the order in which needs are written down is no part of a fingerprint.
        self.needs: dict[str, tuple[str, ...]] = {
            name: tuple(sorted(deep_needs(step))) for name, step in self.steps.items()
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
        self.order: tuple[str, ...] = tuple(self._sorted())
        self._check_readers()
        self.quick = frozenset(name for name, step in self.steps.items() if _decided_by_record(step))
        self.probed = frozenset(
            name for name, step in self.steps.items() if has(step, "probe") or has(step, "resolve")
        )
        self.restored = frozenset(name for name, step in self.steps.items() if has(step, "restore"))
        self.blind = frozenset(name for name, step in self.steps.items() if not has(step, "inputs"))
        self._ancestors: dict[str, frozenset[str]] = {}

    def __iter__(self) -> Iterator[Step]:
        return (self.steps[name] for name in self.order)

    def __len__(self) -> int:
        return len(self.order)

    def ancestors(self, name: str) -> frozenset[str]:
        """All steps that are done before this one begins."""
        known = self._ancestors.get(name)
        if known is None:
            seen: set[str] = set()
            stack = list(self.needs[name])
            while stack:
                one = stack.pop()
                if one not in seen:
                    seen.add(one)
                    stack.extend(self.needs[one])
            known = self._ancestors[name] = frozenset(seen)
        return known

    def _check_references(self) -> None:
        for name, needs in self.needs.items():
            for need in needs:
                if need not in self.steps:
                    raise WorkflowError(
                        f"step {name!r} needs {need!r}, and there is no such step",
                        hint=f"The steps are: {_listed(self.steps)}.",
                    )

    def _check_readers(self) -> None:
        for read, readers in self.readers.items():
            if _returns_nothing(self.steps[read]):
                raise WorkflowError(
                    f"step {read!r} returns nothing, but {_listed(readers)} reads its result",
                    hint="Return what they need, or drop it from `reads`.",
                )

    def _sorted(self) -> Iterator[str]:
        """Kahn's order, by the place in which the steps were given."""
        names = list(self.steps)
        place = {name: i for i, name in enumerate(names)}
        waiting = {name: len(needs) for name, needs in self.needs.items()}
        ready = [place[name] for name, count in waiting.items() if count == 0]
        left = len(names)
        while ready:
            name = names[heapq.heappop(ready)]
            left -= 1
            yield name
            for other in self.dependants[name]:
                waiting[other] -= 1
                if waiting[other] == 0:
                    heapq.heappush(ready, place[other])
        if left:
            raise WorkflowError(
                f"the steps wait for each other in a circle: {' → '.join(self._circle(waiting))}",
                hint="Take one of these needs away.",
            )

    def _circle(self, waiting: dict[str, int]) -> list[str]:
        """One of the circles, as a path that ends where it began."""
        stuck = {name for name, count in waiting.items() if count > 0}
        name = next(need for start in stuck for need in self.needs[start] if need in stuck)
        path: list[str] = []
        while name not in path:
            path.append(name)
            name = next(need for need in self.needs[name] if need in stuck)
        return [*path[path.index(name) :], name]


def _check_step(step: object) -> None:
    if not isinstance(step, Step):
        raise WorkflowError(
            f"{step!r} is not a Step", hint="Give instances: EnsureNetwork(), not EnsureNetwork."
        )
    name = step.name
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise WorkflowError(f"{type(step).__name__} has no usable name: {name!r}")
    for field in ("needs", "reads", "touches"):
        value = getattr(step, field)
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise WorkflowError(f"`{field}` of step {name!r} must be a list or tuple of names, not {value!r}")
        for each in value:
            if not isinstance(each, str):
                raise WorkflowError(f"`{field}` of step {name!r} must hold names, not {each!r}")
    if not has(step, "run"):
        raise WorkflowError(f"step {name!r} has nothing to run")
    _check_parts(step)
    if step.repeat is not None and step.repeat not in REPEATS:
        raise WorkflowError(f"`repeat` of step {name!r} is {step.repeat!r}; it is one of {_listed(REPEATS)}")
    if step.repeat is None and not has(step, "probe"):
        raise WorkflowError(
            f"step {name!r} has no probe and does not say what a second time means",
            hint='Write a probe, or say repeat="safe", "always" or "at-least-once".',
        )


def _check_parts(step: Step) -> None:
    for part in ("run", "probe", "inputs", "restore", "resolve", "undo"):
        if not callable(getattr(step, part)):
            raise WorkflowError(
                f"`{part}` of step {step.name!r} must be a function, not {step.__dict__[part]!r}"
            )
    if inspect.iscoroutinefunction(step.run):
        raise WorkflowError(
            f"`run` of step {step.name!r} is asynchronous, and steps are not",
            hint="Run it inside: asyncio.run(…). Independent steps run on threads, at the same time.",
        )
    if step.policy is not None and not hasattr(step.policy, "with_"):
        raise WorkflowError(
            f"`policy` of step {step.name!r} must be a holdfast.retry.Policy, not {step.policy!r}"
        )


def _decided_by_record(step: Step) -> bool:
    """Whether a record alone decides over a step, with nothing to ask and nothing to put back."""
    return step.repeat != "always" and not any(has(step, part) for part in ("probe", "restore", "resolve"))


def _returns_nothing(step: Step) -> bool:
    hint = getattr(step.run, "__annotations__", {}).get("return", typing.Any)
    return hint is None or hint == "None"


def _listed(names: Iterable[str]) -> str:
    all_of_them = [repr(name) for name in names]
    shown = ", ".join(all_of_them[:8])
    return shown if len(all_of_them) <= 8 else f"{shown}, …"  # noqa: PLR2004  enough to recognise a typo
