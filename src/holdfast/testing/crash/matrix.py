"""The crash matrix: kill a workflow at every step and in every way, and check that it converges.

def build(world: Path) -> Workflow: ...          # at module level; effects are files below `world`

def test_it_survives(crash_matrix):
    crash_matrix(build)
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from holdfast.cli.output import format_table
from holdfast.testing.crash import cases
from holdfast.testing.crash.cases import SCENARIOS, CrashCase, CrashHarness

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from holdfast.workflow import Workflow

    BuildWorkflow = Callable[[Path], Workflow]


@dataclass(frozen=True)
class CrashFinding:
    """One case and its result."""

    scenario: str
    case: str
    # Exit codes of the runs, negative for a signal.
    exit_codes: tuple[int, ...]
    problems: tuple[str, ...] = ()
    # Steps that ran twice and are allowed to: idempotent or at-least-once.
    repeated: tuple[str, ...] = ()
    log: str = ""
    # Whether the fault happened: a step without work cannot be killed.
    reached: bool = True


@dataclass
class CrashReport:
    """All findings of one workflow."""

    workflow: str
    at_least_once: tuple[str, ...] = ()
    findings: list[CrashFinding] = field(default_factory=list)

    @property
    def failures(self) -> list[CrashFinding]:
        """The cases that have problems."""
        return [finding for finding in self.findings if finding.problems]

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("scenario", "case", "exit codes", "converged", "repeated effect", "allowed repeats")
        ]
        for scenario, findings in groupby(self.findings, key=lambda finding: finding.scenario):
            rows += [_table_row(scenario, finding) for finding in _fold_findings(findings)]
        lines = format_table(rows)
        tried = [finding for finding in self.findings if finding.reached]
        passed = len(tried) - len(self.failures)
        lines += [
            "",
            f"{self.workflow}: {passed} of {len(tried)} cases converged without a repeated effect",
        ]
        if len(tried) < len(self.findings):
            lines += [f"not reached: {len(self.findings) - len(tried)}"]
        if self.at_least_once:
            lines += [f"declared at-least-once: {', '.join(self.at_least_once)}"]
        return "\n".join(lines)

    def raise_for_failures(self) -> None:
        """Raise an AssertionError that describes every failure."""
        if self.failures:
            failures = [
                f"{finding.scenario}, {finding.case}: {'; '.join(finding.problems)}\n{_log_tail(finding.log)}"
                for finding in self.failures
            ]
            raise AssertionError(
                f"{len(failures)} of {len(self.findings)} crash cases failed\n\n" + "\n\n".join(failures)
            )


_MAX_CASE_WIDTH = 60


def _fold_findings(findings: Iterable[CrashFinding]) -> Iterable[CrashFinding]:
    """Join the successful cases of one step; failed cases stay separate."""
    for name, group in groupby(findings, lambda f: (f.case.partition(",")[0], bool(f.problems), f.reached)):
        same = list(group)
        if len(same) == 1 or same[0].problems:
            yield from same
            continue
        places = ", ".join(finding.case.partition(", ")[2] for finding in same)
        repeated = tuple(dict.fromkeys(step for finding in same for step in finding.repeated))
        runs = tuple(sorted({code for finding in same for code in finding.exit_codes}))
        case = f"{name[0]}, {places}" if len(places) <= _MAX_CASE_WIDTH else f"{name[0]}, {len(same)} moments"
        yield CrashFinding(same[0].scenario, case, runs, (), repeated, reached=same[0].reached)


def _table_row(scenario: str, finding: CrashFinding) -> tuple[str, ...]:
    if not finding.reached:
        return (scenario, finding.case, "", "not reached", "", "")
    twice = [problem for problem in finding.problems if "twice" in problem]
    converged = "yes" if len(twice) == len(finding.problems) else "NO"
    codes = " ".join("killed" if code == cases.KILLED_EXIT_CODE else str(code) for code in finding.exit_codes)
    return (scenario, finding.case, codes, converged, "YES" if twice else "no", ", ".join(finding.repeated))


def _log_tail(log: str, lines: int = 15) -> str:
    return "\n".join(f"    {line}" for line in log.splitlines()[-lines:])


def _require_known(what: str, wanted: Collection[str], known: Collection[str]) -> Collection[str]:
    if isinstance(wanted, str) or set(wanted) - set(known):
        raise ValueError(f"{what} must be among {tuple(known)}, not {wanted!r}")
    return wanted


def _require_json(what: str, value: Any) -> Any:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} must be JSON values: {error}") from error
    return value


class CrashMatrix:
    """All scenarios for one workflow.

    Args:
        build: Builds the workflow for a directory; children import it, so it must be at module level.
        root: Directory of the cases.
        params: Parameters of every run, as JSON values.
        changed_params: Parameters of the scenario "changed input", as JSON values.
        edited_build: Builds the same workflow with edited steps; by default the same code is loaded again.
        observe: Describes the directory after completion: every case must end like a run without faults.
        effects: Counts effects by step, if the directory keeps count. Only repeatable steps may exceed one.
        kill_points: Number of lines per step at which the process is killed.
        scenarios: Scenarios to run.
        steps: Steps to test; all by default.
        seed: Seed of random choices.
    """

    def __init__(  # noqa: PLR0913 (one keyword per part of the matrix)
        self,
        build: BuildWorkflow,
        root: Path,
        *,
        params: Any = None,
        changed_params: Any = None,
        edited_build: BuildWorkflow | None = None,
        observe: Callable[[Path], Any] | None = None,
        effects: Callable[[Path], Mapping[str, int]] | None = None,
        kill_points: int = 3,
        scenarios: Collection[str] = SCENARIOS,
        steps: Collection[str] | None = None,
        seed: int = 1,
    ) -> None:
        self.harness = CrashHarness(build, root / "runs", params=_require_json("params", params))
        self.edited_harness = CrashHarness(edited_build or build, root / "edited", params=params)
        self.changed_params = _require_json("changed_params", changed_params)
        self._observe = observe
        self._effects = effects
        self.kill_points = kill_points
        self._scenarios = _require_known("scenarios", scenarios, SCENARIOS)
        self.seed = seed
        self._expected: Any = None
        self._expected_changed: Any = None
        self.lines: dict[str, int] = {}
        workflow = build(root / "nowhere")
        self._all_steps = [step.name for step in workflow.steps if step.repeat != "always"]
        targets = self._all_steps if steps is None else _require_known("steps", steps, self._all_steps)
        self.target_steps = [step for step in self._all_steps if step in targets]
        self._repeatable = {step.name for step in workflow.steps if step.repeat is not None}
        self.report = CrashReport(
            workflow.name, tuple(step.name for step in workflow.steps if step.repeat == "at-least-once")
        )

    @property
    def steps(self) -> list[str]:
        """The steps to test that had work in the run without faults."""
        return [step for step in self.target_steps if step in self.lines]

    @property
    def middle_step(self) -> str:
        """The step that most scenarios kill."""
        return self.steps[len(self.steps) // 2]

    def run(self) -> CrashReport:
        """Run all scenarios except random kills."""
        with self.harness, self.edited_harness:
            self._run_baseline()
            if not self.steps:
                raise AssertionError("no step of the workflow has work to do: nothing can be killed")
            for scenario, case_results in SCENARIOS.items():
                if scenario in self._scenarios:
                    self._record_findings(scenario, case_results(self))
        return self.report

    def run_random(self, count: int) -> CrashReport:
        """Kill runs at random moments."""
        with self.harness:
            results = cases.random_kill_cases(self.harness, count, self._run_baseline(), self.seed)
            self._record_findings("killed at random", results)
        return self.report

    def _run_baseline(self) -> float:
        """Run without faults: records the expected state and the lines of each step; returns the seconds."""
        started = time.monotonic()
        self._expected = self._final_state()
        seconds = time.monotonic() - started
        if self.changed_params is not None and "changed input" in self._scenarios:
            self._expected_changed = self._final_state(params=self.changed_params)
        counted = self.harness.new_case()
        counted.run(count=True)
        self.lines = counted.line_counts()
        return seconds

    def _final_state(self, **job: Any) -> Any:
        """Return the observed state after a run without faults."""
        case = self.harness.new_case()
        code = case.run(**job)
        if code != 0:
            raise AssertionError(f"the workflow fails without faults: exit code {code}\n{case.log()}")
        return self._observe(case.home / "world") if self._observe else None

    def _record_findings(self, scenario: str, results: Iterable[cases.CaseResult]) -> None:
        changed = scenario == "changed input"
        for name, case, case_problems in results:
            reached = case_problems is not None
            problems = [*(case_problems or ())]
            if reached and not problems:
                problems += self._state_differences(
                    case, self._expected_changed if changed else self._expected
                )
            twice, repeated = self._repeated_effects(case, reruns=changed)
            problems += [f"the effect of {step} happened twice" for step in twice]
            self.report.findings.append(
                CrashFinding(
                    scenario,
                    name,
                    tuple(case.exit_codes),
                    tuple(problems),
                    tuple(repeated),
                    case.log() if problems else "",
                    reached,
                )
            )

    def _state_differences(self, case: CrashCase, expected: Any) -> list[str]:
        if self._observe is None:
            return []
        try:
            state = self._observe(case.home / "world")
        except Exception as error:  # noqa: BLE001 (a failing observer is a finding too)
            return [f"observe() failed: {type(error).__name__}: {error}"]
        return [] if state == expected else [f"the observed state is {state!r}, not {expected!r}"]

    def _repeated_effects(self, case: CrashCase, *, reruns: bool) -> tuple[list[str], list[str]]:
        """Return the steps with repeated effects: forbidden ones and allowed ones.

        If steps have to run again, only the counts of `effects` are compared.
        """
        counts = {
            step: times
            for step, times in case.effect_counts().items()
            if step in self._all_steps and not reruns
        }
        world = case.home / "world"
        if self._effects is not None and any(world.iterdir()):
            for step, times in self._effects(world).items():
                counts[step] = max(times, counts.get(step, 0))
        repeated = [step for step, times in counts.items() if times > 1]
        allowed = [step for step in repeated if step in self._repeatable]
        return [step for step in repeated if step not in allowed], allowed
