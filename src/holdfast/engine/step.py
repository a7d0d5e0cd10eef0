"""A step: one effect, and the questions around it.

Write a class for each kind of step, or make one from functions: `Step("fetch", run=fetch, repeat="safe")`.
Not here: when a step runs (`decide`), and in which order (`graph`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast.engine.verdict import Verdict, unknown

if TYPE_CHECKING:
    from holdfast.engine.context import Context
    from holdfast.retry import Policy

Repeat: TypeAlias = Literal["safe", "always", "at-least-once"]
REPEATS = ("safe", "always", "at-least-once")


class Step:
    """One effect that looks before it acts.

    `name` is the checkpoint key. `needs` come first; what `ctx.result()` reads must be among them (or
    theirs). `reads` may name those whose result this step cannot do without: then it is checked before
    anything runs. Without a probe, `repeat` says what a second time means: "safe", "always" (only looks;
    runs every time, also in a preview) or "at-least-once" (after a crash it may happen twice, and is shown
    as such). Raise `version` to have a step run again after its code changed; `touches` names the data it
    changes.
    """

    name: str = ""
    title: str = ""
    needs: Sequence[str] = ()
    reads: Sequence[str] = ()
    version: int = 1
    repeat: Repeat | None = None
    policy: Policy | None = None
    touches: Sequence[str] = ()

    def __init__(  # noqa: PLR0913  one keyword for each part of a step
        self,
        name: str | None = None,
        *,
        run: Callable[[Context], Any] | None = None,
        probe: Callable[[Context], Verdict] | None = None,
        inputs: Callable[[Context], Mapping[str, Any]] | Mapping[str, Any] | None = None,
        restore: Callable[[Context, Any], None] | None = None,
        resolve: Callable[[Context], Verdict] | None = None,
        undo: Callable[[Context, Any], None] | None = None,
        title: str | None = None,
        needs: Sequence[str] | None = None,
        reads: Sequence[str] | None = None,
        version: int | None = None,
        repeat: Repeat | None = None,
        policy: Policy | None = None,
        touches: Sequence[str] | None = None,
    ) -> None:
        fixed = dict(inputs) if isinstance(inputs, Mapping) else None
        asked = (lambda _ctx: fixed) if fixed is not None else inputs
        given: dict[str, object] = {
            "name": name, "run": run, "probe": probe, "inputs": asked, "restore": restore, "resolve": resolve,
            "undo": undo, "title": title, "needs": needs, "reads": reads, "version": version,
            "repeat": repeat, "policy": policy, "touches": touches,
        }  # fmt: skip
        self.__dict__.update({key: value for key, value in given.items() if value is not None})

    def inputs(self, ctx: Context) -> Mapping[str, Any]:  # noqa: ARG002
        """What this step reads from the outside, and nothing else; values are JSON or `Secret`."""
        return {}

    def probe(self, ctx: Context) -> Verdict:  # noqa: ARG002
        """Ask the world whether the effect is there. No effect of its own."""
        return unknown("this step has no probe")

    def run(self, ctx: Context) -> Any:  # noqa: ARG002
        """Have the effect, and return what later steps need (JSON, at most 1 MiB, no secret)."""
        return None

    def restore(self, ctx: Context, result: Any) -> None:
        """Put back in memory what later steps use, when this one is skipped.

        `result` is None where nobody kept it: the probe found the effect there and brought none along.
        """

    def resolve(self, ctx: Context) -> Verdict:
        """Say what became of this step after a process died in it; by default its probe does."""
        return self.probe(ctx)

    def undo(self, ctx: Context, result: Any) -> None:
        """Take the effect back. Only called when somebody asks for it."""

    def __repr__(self) -> str:
        return f"<step {self.name or type(self).__name__}>"


def has(step: Step, part: str) -> bool:
    """Whether the author wrote that part (`probe`, `run`, `undo`, …) of a step."""
    return part in step.__dict__ or getattr(type(step), part) is not getattr(Step, part)


def label(step: Step) -> str:
    """The words for people: the title, or else the name."""
    return step.title or step.name


def deep_needs(step: Step) -> tuple[str, ...]:
    """Everything that has to come first: `needs`, and `reads` too."""
    return tuple(dict.fromkeys((*step.needs, *step.reads))) if step.reads else tuple(step.needs)
