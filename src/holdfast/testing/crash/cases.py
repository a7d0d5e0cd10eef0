"""The cases of the crash matrix: kills at every step, and failures of the store and the machine.

Each case causes a failure, then repeats the same command until the workflow is complete.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from holdfast.testing.crash.child import TRACEBACK_EXIT_CODE
from holdfast.testing.crash.harness import CrashCase, CrashHarness

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

LOCKED_EXIT_CODE = 4
KILLED_EXIT_CODE = -9
CaseResult = tuple[str, str, CrashCase, list[str]]
"""scenario, case name, the case, problems so far"""


class NotReached(list[str]):
    """No problem, but the fault did not happen either."""


def kill_cases(
    harness: CrashHarness, steps: Sequence[str], lines: dict[str, int], kill_points: int
) -> Iterator[CaseResult]:
    """SIGKILL before, inside and after every step, then run to completion.

    A step without an entry in `lines` had no work in the baseline run and cannot be killed.
    """
    for step in steps:
        if step not in lines:
            yield "killed", step, harness.new_case(), NotReached()
            continue
        places: list[dict[str, Any]] = [{"at": "before"}]
        places += [{"at": "inside", "line": line} for line in _spread_evenly(lines.get(step, 0), kill_points)]
        places += [{"at": "after"}]
        for moment in places:
            case = harness.new_case()
            label = f"line {moment['line']}" if moment["at"] == "inside" else str(moment["at"])
            problems = _run_until_killed(case, step, **moment)
            # The number of lines may differ between runs, but there is always a first one.
            if problems and moment.get("line", 1) > 1 and case.exit_codes[-1] == 0:
                yield "killed", f"{step}, {label}", case, NotReached()
                continue
            yield "killed", f"{step}, {label}", case, problems + _run_to_completion(case)


def random_kill_cases(harness: CrashHarness, count: int, seconds: float, seed: int) -> Iterator[CaseResult]:
    """SIGKILL at random moments, several in a row, then run to completion."""
    rng = random.Random(seed)  # noqa: S311  a script, not a secret
    for number in range(count):
        case = harness.new_case()
        for _ in range(rng.randint(1, 3)):
            killed = case.run(kill_after=rng.uniform(0, seconds)) < 0
            # Warm runs are faster: adjust the moments so that most of them hit a run.
            seconds *= 1.03 if killed else 0.9
        yield "killed at random", f"random moments, {number + 1}", case, _run_to_completion(case)


def torn_store_cases(harness: CrashHarness, steps: Sequence[str], seed: int) -> Iterator[CaseResult]:
    """Truncate a file of the store, or flip a bit, after a kill."""
    rng = random.Random(seed)  # noqa: S311  a script, not a secret
    middle = steps[len(steps) // 2]
    for suffix, flip in (("", False), ("", True), ("-wal", False), ("-wal", True), ("", None)):
        case = harness.new_case()
        problems = _run_until_killed(case, middle, at="after")
        path = case.home / f"state.db{suffix}"
        how = "emptied" if flip is None else "a bit flipped" if flip else "cut short"
        reached = path.exists() and path.stat().st_size > 0
        if reached:
            _corrupt_file(path, flip, rng)
        yield _case_result(
            "torn store",
            f"state.db{suffix} {how}",
            case,
            problems + _run_to_completion(case),
            reached=reached,
        )


def full_disk_cases(harness: CrashHarness, steps: Sequence[str]) -> Iterator[CaseResult]:
    """Limit file sizes while the store is created and while it is written."""
    for limit in (1, 8_192, 24_576):
        yield _limited_disk_case(harness.new_case(), f"at {limit:,} bytes", limit=limit)
    for step in dict.fromkeys((steps[0], steps[len(steps) // 2])):
        yield _limited_disk_case(harness.new_case(), f"in {step}", full_in=step)


def _limited_disk_case(case: CrashCase, name: str, **job: Any) -> CaseResult:
    code = case.run(**job)
    problems = ["a traceback"] if code == TRACEBACK_EXIT_CODE else []
    return _case_result("disk full", name, case, problems + _run_to_completion(case), reached=code != 0)


def _case_result(group: str, name: str, case: CrashCase, problems: list[str], *, reached: bool) -> CaseResult:
    """A successful case whose fault did not happen proves nothing and does not count."""
    return group, name, case, problems if problems or reached else NotReached()


def read_only_cases(harness: CrashHarness, steps: Sequence[str]) -> Iterator[CaseResult]:
    """Make the store read-only: no step may run then."""
    for what in ("file", "directory"):
        case = harness.new_case()
        problems = _run_until_killed(case, steps[len(steps) // 2], at="before")
        begun = case.effect_counts("enter")
        _set_modes(case.home, what, 0o400, 0o500)
        code = case.run(unprivileged=True)
        _set_modes(case.home, what, 0o600, 0o700)
        problems += (
            [] if code not in {0, TRACEBACK_EXIT_CODE} else [f"exit {code} in moment of a clear refusal"]
        )
        if case.effect_counts("enter") != begun:
            problems += ["an effect without a store"]
        yield "read-only store", what, case, problems + _run_to_completion(case)


def concurrent_run_cases(harness: CrashHarness, steps: Sequence[str]) -> Iterator[CaseResult]:
    """Start a second run during the first, then kill the first and continue."""
    case = harness.new_case()
    pid = case.run_until_stopped(steps[0])
    problems = []
    if pid is None:
        problems += ["the first run never reached its first step"]
    else:
        begun = case.effect_counts("enter")
        if case.run() != LOCKED_EXIT_CODE:
            problems += [f"the second run ended with {case.exit_codes[-1]}, not {LOCKED_EXIT_CODE}"]
        if str(pid) not in case.log():
            problems += ["the second run did not say who holds the lock"]
        if case.effect_counts("enter") != begun:
            problems += ["the second run had an effect"]
        case.kill(pid)
    yield "two runs at once", "the holder killed", case, problems + _run_to_completion(case)


def changed_input_cases(
    harness: CrashHarness, steps: Sequence[str], changed_params: Any
) -> Iterator[CaseResult]:
    """Continue with changed parameters, after a kill and after completion."""
    group = "changed input"
    if changed_params is None:
        yield group, "no other parameters were given", harness.new_case(), NotReached()
        return
    for label, step in (("after a kill", steps[len(steps) // 2]), ("after a kill at the end", steps[-1])):
        case = harness.new_case()
        problems = _run_until_killed(case, step, at="after")
        yield group, label, case, problems + _run_to_completion(case, params=changed_params)
    case = harness.new_case()
    problems = _run_to_completion(case)
    yield group, "after a finished run", case, problems + _run_to_completion(case, params=changed_params)


def clock_jump_cases(harness: CrashHarness, steps: Sequence[str]) -> Iterator[CaseResult]:
    """Continue after a kill with the clock set back, and far ahead."""
    middle = steps[len(steps) // 2]
    for label, jump in (("a day back", -86_400), ("ten years on", 315_360_000)):
        case = harness.new_case()
        problems = _run_until_killed(case, middle, at="after")
        yield "clock jump", label, case, problems + _run_to_completion(case, clock=jump)


def changed_code_cases(
    before: CrashHarness, after: CrashHarness, steps: Sequence[str]
) -> Iterator[CaseResult]:
    """Continue after a kill with edited steps."""
    case = before.new_case()
    problems = _run_until_killed(case, steps[len(steps) // 2], at="after")
    moved = case.continue_with(after)
    yield "changed code", "after a kill", moved, problems + _run_to_completion(moved)


def _run_until_killed(case: CrashCase, step: str, **moment: Any) -> list[str]:
    """Run until the kill; any other end is a problem, because nothing was tested."""
    code = case.run(kill={"step": step, **moment})
    return [] if code == KILLED_EXIT_CODE else [f"it was not killed in {step}: the run ended with {code}"]


def _run_to_completion(case: CrashCase, **job: Any) -> list[str]:
    if case.run_to_completion(**job):
        return ["a traceback"] if TRACEBACK_EXIT_CODE in case.exit_codes else []
    return [f"not done after {len(case.exit_codes)} runs"]


def _spread_evenly(count: int, wanted: int) -> list[int]:
    """Return up to `wanted` of the numbers 1 … count, including the first and the last."""
    if count <= wanted:
        return list(range(1, count + 1))
    return sorted({1 + round(i * (count - 1) / (wanted - 1)) for i in range(wanted)}) if wanted > 1 else [1]


def _corrupt_file(path: Path, flip: bool | None, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if flip is None or not data:
        data.clear()
    elif flip:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    else:
        del data[rng.randrange(len(data)) :]
    path.write_bytes(data)


def _set_modes(home: Path, what: str, file: int, directory: int) -> None:
    for path in home.glob("state.db*"):
        path.chmod(file)
    if what == "directory":
        home.chmod(directory)
