"""The crash matrix: kills a workflow at every step and in every way, and asserts that it converges.

    def build(world: Path) -> Workflow: ...          # at the top of a module; effects go below `world`

    def test_it_survives(crash_matrix):
        crash_matrix(build)

Not here: pytest (`crash_fixture`).
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from holdfast.testing import crash_cases as cases
from holdfast.testing.crash_lab import Case, Lab
from holdfast.testing.crash_report import Finding, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from holdfast.engine import Workflow

    Build = Callable[[Path], Workflow]


TROUBLES = (
    "killed", "torn store", "disk full", "read-only store", "two runs at once", "changed input",
    "changed code", "clock jump",
)  # fmt: skip


def _known(troubles: Collection[str]) -> frozenset[str]:
    unknown = set(troubles) - set(TROUBLES)
    if unknown or isinstance(troubles, str):
        raise ValueError(f"troubles are some of {TROUBLES}, not {troubles!r}")
    return frozenset(troubles)


def _among(steps: list[str], wanted: Collection[str] | None) -> list[str]:
    unknown = set(wanted or ()) - set(steps)
    if unknown or isinstance(wanted, str):
        raise ValueError(f"steps are some of {steps}, not {wanted!r}")
    return steps if wanted is None else [step for step in steps if step in wanted]


def _json(what: str, value: Any) -> Any:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} are handed to children as JSON: {error}") from error
    return value


class CrashMatrix:
    """All the trouble that one workflow is put through.

    - `build(world)` makes the workflow; children import it, so it stands at the top of a module.
    - `params` are given to every run, `changed` to those that try a changed input; both as JSON has them.
    - `edited` builds the same workflow with other code; without it the same code is loaded anew.
    - `observe(world)` describes the world when all is done: every case must end as an untroubled run does
      (with a changed input: as one on the changed parameters).
    - `effects(world)` counts effects by step, where the world keeps count; none but those that may repeat
      may exceed one, not even with a changed input: leave out what has to happen again then.
    - `moments` is how many lines inside each step are tried, `troubles` which kinds of trouble, and `steps`
      where, if not in every step of a long workflow.
    """

    def __init__(  # noqa: PLR0913  one keyword for each part of the matrix
        self,
        build: Build,
        root: Path,
        *,
        params: Any = None,
        changed: Any = None,
        edited: Build | None = None,
        observe: Callable[[Path], Any] | None = None,
        effects: Callable[[Path], Mapping[str, int]] | None = None,
        moments: int = 3,
        troubles: Collection[str] = TROUBLES,
        steps: Collection[str] | None = None,
        seed: int = 1,
    ) -> None:
        self._lab = Lab(build, root / "runs", params=_json("params", params))
        self._edited = Lab(edited or build, root / "edited", params=params)
        self._changed = _json("changed", changed)
        self._observe = observe
        self._effects = effects
        self._moments = moments
        self._troubles = _known(troubles)
        self._seed = seed
        self._expected: Any = None
        self._expected_changed: Any = None
        self._took = 0.0
        self._lines: dict[str, int] = {}
        workflow = build(root / "nowhere")
        self._steps = [step.name for step in workflow.steps if step.repeat != "always"]
        self._troubled = _among(self._steps, steps)
        self._may_repeat = {step.name for step in workflow.steps if step.repeat is not None}
        self.report = Report(
            workflow.name, tuple(step.name for step in workflow.steps if step.repeat == "at-least-once")
        )

    def run(self) -> Report:
        """Everything but random moments."""
        with self._lab as lab, self._edited as edited:
            self._untroubled()
            steps = [step for step in self._troubled if step in self._lines]
            if not steps:
                raise AssertionError("no step of the workflow has anything to do: there is nothing to kill")
            told = {
                "killed": lambda: cases.kills(lab, self._troubled, self._lines, self._moments),
                "torn store": lambda: cases.torn_store(lab, steps, self._seed),
                "disk full": lambda: cases.full_disk(lab, steps),
                "read-only store": lambda: cases.read_only(lab, steps),
                "two runs at once": lambda: cases.two_at_once(lab, steps),
                "changed input": lambda: cases.changed_input(lab, steps, self._changed),
                "changed code": lambda: cases.changed_code(lab, edited, steps),
                "clock jump": lambda: cases.clock_jump(lab, steps),
            }
            for trouble in TROUBLES:
                if trouble in self._troubles:
                    self._judge(told[trouble]())
        return self.report

    def run_random(self, count: int) -> Report:
        """SIGKILL at random moments of a run."""
        with self._lab as lab:
            self._untroubled()
            self._judge(cases.random_kills(lab, count, self._took, self._seed))
        return self.report

    def _untroubled(self) -> None:
        """One run without trouble: it must work, and it says what the world looks like when all is done."""
        began = time.monotonic()
        self._expected = self._outcome()
        self._took = time.monotonic() - began
        if self._changed is not None and "changed input" in self._troubles:
            self._expected_changed = self._outcome(params=self._changed)
        counted = self._lab.case()
        counted.run(count=True)
        self._lines = counted.lines()

    def _outcome(self, **job: Any) -> Any:
        """The world after one run without trouble."""
        case = self._lab.case()
        code = case.run(**job)
        if code != 0:
            raise AssertionError(f"the workflow fails without any trouble: exit {code}\n{case.log()}")
        return self._observe(case.home / "world") if self._observe else None

    def _judge(self, told: Iterable[cases.Told] | Iterator[cases.Told]) -> None:
        for group, name, case, wrong in told:
            found = [*wrong]
            changed = group == "changed input"
            reached = not isinstance(wrong, cases.NotReached)
            if reached and not found:
                found += self._differences(case, self._expected_changed if changed else self._expected)
            twice, repeated = self._twice(case, reruns=changed)
            found += [f"the effect of {step} happened twice" for step in twice]
            self.report.findings.append(
                Finding(
                    group,
                    name,
                    tuple(case.codes),
                    tuple(found),
                    tuple(repeated),
                    case.log() if found else "",
                    reached,
                )
            )

    def _differences(self, case: Case, expected: Any) -> list[str]:
        if self._observe is None:
            return []
        try:
            seen = self._observe(case.home / "world")
        except Exception as error:  # noqa: BLE001  a world that cannot be described is a finding too
            return [f"the world cannot be described: {type(error).__name__}: {error}"]
        return [] if seen == expected else [f"the world is {seen!r}, not {expected!r}"]

    def _twice(self, case: Case, *, reruns: bool) -> tuple[list[str], list[str]]:
        """Steps whose effect happened twice though they can be resolved, and those that may repeat.

        Where steps have to run again, that they did says nothing: only the world's own count does.
        """
        counts = {step: times for step, times in case.effects().items() if step in self._steps and not reruns}
        world = case.home / "world"
        if self._effects is not None and any(world.iterdir()):
            for step, times in self._effects(world).items():
                counts[step] = max(times, counts.get(step, 0))
        more = [step for step, times in counts.items() if times > 1]
        return [s for s in more if s not in self._may_repeat], [s for s in more if s in self._may_repeat]
