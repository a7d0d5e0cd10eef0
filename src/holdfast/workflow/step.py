"""Steps and probe results.

Subclass `Step` for each kind of step, or create one from functions:
`Step("fetch", run=fetch, repeat="safe")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from holdfast.retry import Policy
    from holdfast.workflow.run_context import StepContext


# A value that can be stored; tuples are read back as lists.
JSON: TypeAlias = dict[str, Any] | list[Any] | str | int | float | bool | None


class ProbeResult(msgspec.Struct, frozen=True):
    """What a probe observed; create it with `done`, `absent`, `partial` or `unknown`."""

    state: Literal["done", "absent", "partial", "unknown"]
    reason: str = ""
    result: JSON = None


def done(reason: str = "", *, result: JSON = None) -> ProbeResult:
    """The effect exists completely; `result` is what `run` would have returned, if the probe knows it."""
    return ProbeResult("done", reason, result)


def absent(reason: str = "") -> ProbeResult:
    """The effect does not exist."""
    return ProbeResult("absent", reason)


def partial(reason: str = "") -> ProbeResult:
    """The effect exists in part, or differs from the inputs; `run` repairs it."""
    return ProbeResult("partial", reason)


def unknown(reason: str = "") -> ProbeResult:
    """The state cannot be observed now, for example because a server does not respond."""
    return ProbeResult("unknown", reason)


Repeat: TypeAlias = Literal["safe", "always", "at-least-once"]
REPEAT_VALUES = ("safe", "always", "at-least-once")


class Step:
    """One effect, with a probe that observes whether the effect exists.

    Attributes:
        name: key of the checkpoint.
        title: name for users; `name` by default.
        needs: steps that must be done first.
        reads: like `needs`, for steps whose result this step requires; checked before the workflow starts.
        version: increase it to run the step again after a change of its code.
        repeat: what a second run means for a step without probe. "safe": harmless. "always": read-only, runs
            every time, also in a preview. "at-least-once": may happen twice after a crash.
        policy: how `run` is retried.
        touches: data that the step changes, for users.
        forgets: an earlier step whose checkpoint is deleted in the commit that records this one as done.
    """

    name: str = ""
    title: str = ""
    needs: Sequence[str] = ()
    reads: Sequence[str] = ()
    version: int = 1
    repeat: Repeat | None = None
    policy: Policy | None = None
    touches: Sequence[str] = ()
    forgets: str = ""

    def __init__(  # noqa: PLR0913  one keyword for each attribute and hook
        self,
        name: str | None = None,
        *,
        run: Callable[[StepContext], Any] | None = None,
        probe: Callable[[StepContext], ProbeResult] | None = None,
        inputs: Callable[[StepContext], Mapping[str, Any]] | Mapping[str, Any] | None = None,
        restore: Callable[[StepContext, Any], None] | None = None,
        resolve: Callable[[StepContext], ProbeResult] | None = None,
        title: str | None = None,
        needs: Sequence[str] | None = None,
        reads: Sequence[str] | None = None,
        version: int | None = None,
        repeat: Repeat | None = None,
        policy: Policy | None = None,
        touches: Sequence[str] | None = None,
    ) -> None:
        constant_inputs = dict(inputs) if isinstance(inputs, Mapping) else None
        overrides: dict[str, object] = {
            "name": name, "run": run, "probe": probe, "restore": restore, "resolve": resolve, "title": title,
            "inputs": inputs if constant_inputs is None else lambda _ctx: constant_inputs, "needs": needs,
            "reads": reads, "version": version, "repeat": repeat, "policy": policy, "touches": touches,
        }  # fmt: skip
        self.__dict__.update({key: value for key, value in overrides.items() if value is not None})

    def inputs(self, ctx: StepContext) -> Mapping[str, Any]:  # noqa: ARG002
        """Return everything the step reads from outside the workflow; values are JSON or `Secret`."""
        return {}

    def probe(self, ctx: StepContext) -> ProbeResult:  # noqa: ARG002
        """Observe whether the effect exists; must not change anything."""
        return unknown("this step has no probe")

    def run(self, ctx: StepContext) -> Any:  # noqa: ARG002
        """Create the effect; return what later steps need (JSON, at most 1 MiB, no secret)."""
        return None

    def restore(self, ctx: StepContext, result: Any) -> None:
        """Restore in memory what later steps use, when this step is skipped.

        `result` is None if it is not known: the probe found the effect and returned no result.
        """

    def resolve(self, ctx: StepContext) -> ProbeResult:
        """Observe the state after a process died in this step; by default, call `probe`."""
        return self.probe(ctx)

    def __repr__(self) -> str:
        return f"<step {self.name or type(self).__name__}>"


def has_hook(step: Step, hook: str) -> bool:
    """Report whether a step implements a hook (`probe`, `run`, `restore`, ...)."""
    return hook in step.__dict__ or getattr(type(step), hook) is not getattr(Step, hook)


def display_title(step: Step) -> str:
    return step.title or step.name


def required_steps(step: Step) -> tuple[str, ...]:
    """Return the steps that must be done first: `needs` and `reads`."""
    return tuple(dict.fromkeys((*step.needs, *step.reads))) if step.reads else tuple(step.needs)
