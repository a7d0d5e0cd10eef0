"""The cases of the crash matrix: kills at every step, and failures of the store and the machine.

Each case causes a failure, then repeats the same command until the workflow is complete. One helper process
(`child`) forks and kills the processes of all cases.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from holdfast.errors import LockedError
from holdfast.testing.crash.child import TRACEBACK_EXIT_CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.testing.crash.matrix import CrashMatrix
    from holdfast.workflow import Workflow

KILLED_EXIT_CODE = -9
_MAX_RUNS = 4


class CrashCase:
    """One case: a directory, the runs in it and their effects."""

    def __init__(self, harness: CrashHarness, home: Path, exit_codes: list[int] | None = None) -> None:
        self.home = home
        self.exit_codes = exit_codes if exit_codes is not None else []
        self._harness = harness
        (home / "world").mkdir(parents=True, exist_ok=True)

    def run(self, **job: Any) -> int:
        """Run the workflow in a child; returns the exit code, negative for a signal."""
        code = int(self._request(**job).get("code", 0))
        self.exit_codes.append(code)
        return code

    def run_until_stopped(self, step: str) -> int | None:
        """Start a child that stops before a step; returns its pid, or None if the step was not reached."""
        pid: int | None = self._request(stop_before=step).get("stopped")
        return pid

    def _request(self, **job: Any) -> dict[str, Any]:
        return self._harness.request(
            {"do": "run", "dir": str(self.home), "params": self._harness.params, **job}
        )

    def kill(self, pid: int) -> None:
        """Kill a stopped child and wait for its end."""
        self._harness.request({"do": "kill", "pid": pid})

    def run_to_completion(self, **job: Any) -> bool:
        """Run until a run succeeds; returns False after too many runs."""
        return any(self.run(**job) == 0 for _ in range(_MAX_RUNS))

    def log(self) -> str:
        """Return the output of all runs."""
        path = self.home / "run.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def effect_counts(self, what: str = "leave") -> Counter[str]:
        """Return how often the effect of each step completed (or started, with "enter")."""
        return Counter(name for kind, name in self._effects() if kind == what)

    def line_counts(self) -> dict[str, int]:
        """Return how many lines each step executed, from a run with `count=True`."""
        counts = ((kind.partition(":"), name) for kind, name in self._effects())
        return {name: int(number) for (kind, _, number), name in counts if kind == "lines"}

    def _effects(self) -> list[list[str]]:
        path = self.home / "effects"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split(" ", 1) for line in lines]


class CrashHarness:
    """Starts the helper process, sends it jobs, and creates the directories of cases."""

    def __init__(self, build: Callable[..., Workflow], root: Path, *, params: Any = None) -> None:
        self._file = _source_file(build)
        self.params = params
        self._build = build
        self._root = root
        self._count = 0
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        target = [self._build.__module__, self._file, self._build.__qualname__]
        # pytest has extended sys.path in this process only; the helper must import the test's module too.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "holdfast.testing.crash.child", *target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._child is not None:
            # Closes stdin, which ends the job loop of the helper.
            self._child.communicate()
            self._child = None

    def new_case(self) -> CrashCase:
        """Return a case with an empty directory."""
        self._count += 1
        return CrashCase(self, self._root / f"case-{self._count:04}")

    def request(self, job: dict[str, Any]) -> dict[str, Any]:
        """Send a job to the helper process and return its response."""
        child = self._child
        if child is None or child.stdin is None or child.stdout is None:
            raise RuntimeError("the helper process is not running")
        child.stdin.write(json.dumps(job) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        if not line:
            raise RuntimeError(f"the helper process ended with {child.wait()}")
        response: dict[str, Any] = json.loads(line)
        return response


def _source_file(build: Callable[..., Workflow]) -> str:
    """Return the file from which children load the function."""
    file = inspect.getsourcefile(build) if inspect.isfunction(build) else None
    if file is None or "<" in build.__qualname__:  # <locals> and <lambda> cannot be imported
        raise ValueError(f"{build!r} must be a function at the top of a module: children import it")
    return file


# Name, the case, and the problems so far; None if the fault did not happen, so that the case proves nothing.
CaseResult = tuple[str, CrashCase, list[str] | None]


def kill_cases(matrix: CrashMatrix) -> Iterator[CaseResult]:
    """SIGKILL before, inside and after every step, then run to completion."""
    for step in matrix.target_steps:
        if step not in matrix.lines:
            yield step, matrix.harness.new_case(), None
            continue
        lines = _spread_evenly(matrix.lines[step], matrix.kill_points)
        moments: list[dict[str, Any]] = [
            {"at": "before"}, *({"at": "inside", "line": line} for line in lines), {"at": "after"},
        ]  # fmt: skip
        for moment in moments:
            case = matrix.harness.new_case()
            label = f"{step}, line {moment['line']}" if "line" in moment else f"{step}, {moment['at']}"
            problems = _run_until_killed(case, step, **moment)
            # The number of lines may differ between runs, but there is always a first one.
            if problems and moment.get("line", 1) > 1 and case.exit_codes[-1] == 0:
                yield label, case, None
            else:
                yield label, case, problems + _run_to_completion(case)


def random_kill_cases(harness: CrashHarness, count: int, seconds: float, seed: int) -> Iterator[CaseResult]:
    """SIGKILL at random moments, several in a row, then run to completion."""
    rng = random.Random(seed)  # noqa: S311  a script, not a secret
    for number in range(count):
        case = harness.new_case()
        for _ in range(rng.randint(1, 3)):
            killed = case.run(kill_after=rng.uniform(0, seconds)) < 0
            # Warm runs are faster: adjust the moments so that most of them hit a run.
            seconds *= 1.03 if killed else 0.9
        yield f"random moments, {number + 1}", case, _run_to_completion(case)


def torn_store_cases(matrix: CrashMatrix) -> Iterator[CaseResult]:
    """Truncate a file of the store, or flip a bit, after a kill."""
    rng = random.Random(matrix.seed)  # noqa: S311  a script, not a secret
    for name, how in (
        ("state.db", "cut short"),
        ("state.db", "a bit flipped"),
        ("state.db-wal", "cut short"),
        ("state.db-wal", "a bit flipped"),
        ("state.db", "emptied"),
    ):
        case = matrix.harness.new_case()
        problems = _run_until_killed(case, matrix.middle_step)
        path = case.home / name
        reached = path.exists() and path.stat().st_size > 0
        if reached:
            _corrupt_file(path, how, rng)
        problems += _run_to_completion(case)
        yield f"{name} {how}", case, problems if problems or reached else None


def full_disk_cases(matrix: CrashMatrix) -> Iterator[CaseResult]:
    """Limit file sizes while the store is created and while it is written."""
    jobs: list[tuple[str, dict[str, Any]]] = [
        (f"at {limit:,} bytes", {"limit": limit}) for limit in (1, 8_192, 24_576)
    ]
    jobs += [
        (f"in {step}", {"full_in": step}) for step in dict.fromkeys((matrix.steps[0], matrix.middle_step))
    ]
    for name, job in jobs:
        case = matrix.harness.new_case()
        code = case.run(**job)
        problems = ["a traceback"] if code == TRACEBACK_EXIT_CODE else []
        problems += _run_to_completion(case)
        yield name, case, problems if problems or code != 0 else None


def read_only_cases(matrix: CrashMatrix) -> Iterator[CaseResult]:
    """Make the store read-only: no step may run then."""
    for what in ("file", "directory"):
        case = matrix.harness.new_case()
        problems = _run_until_killed(case, matrix.middle_step, at="before")
        begun = case.effect_counts("enter")
        _set_modes(case.home, what, 0o400, 0o500)
        code = case.run(unprivileged=True)
        _set_modes(case.home, what, 0o600, 0o700)
        if code in {0, TRACEBACK_EXIT_CODE}:
            problems += [f"exit code {code} instead of an error that names the store"]
        if case.effect_counts("enter") != begun:
            problems += ["an effect without a store"]
        yield what, case, problems + _run_to_completion(case)


def concurrent_run_cases(matrix: CrashMatrix) -> Iterator[CaseResult]:
    """Start a second run during the first, then kill the first and continue."""
    case = matrix.harness.new_case()
    # A stopped process keeps its lock: the kernel releases it only when the process ends.
    pid = case.run_until_stopped(matrix.steps[0])
    problems = []
    if pid is None:
        problems += ["the first run never reached its first step"]
    else:
        begun = case.effect_counts("enter")
        if case.run() != LockedError.exit_code:
            problems += [f"the second run ended with {case.exit_codes[-1]}, not {LockedError.exit_code}"]
        if str(pid) not in case.log():
            problems += ["the second run did not name the holder of the lock"]
        if case.effect_counts("enter") != begun:
            problems += ["the second run had an effect"]
        case.kill(pid)
    yield "the holder killed", case, problems + _run_to_completion(case)


def changed_input_cases(matrix: CrashMatrix) -> Iterator[CaseResult]:
    """Continue with changed parameters, after a kill and after completion."""
    if matrix.changed_params is None:
        yield "no other parameters were given", matrix.harness.new_case(), None
        return
    for label, step in (
        ("after a kill", matrix.middle_step),
        ("after a kill at the end", matrix.steps[-1]),
        ("after a finished run", ""),
    ):
        case = matrix.harness.new_case()
        problems = _run_until_killed(case, step) if step else _run_to_completion(case)
        yield label, case, problems + _run_to_completion(case, params=matrix.changed_params)


def clock_jump_cases(matrix: CrashMatrix) -> Iterator[CaseResult]:
    """Continue after a kill with the clock set back, and far ahead."""
    for label, jump in (("a day back", -86_400), ("ten years on", 315_360_000)):
        case = matrix.harness.new_case()
        problems = _run_until_killed(case, matrix.middle_step)
        yield label, case, problems + _run_to_completion(case, clock=jump)


def changed_code_cases(matrix: CrashMatrix) -> Iterator[CaseResult]:
    """Continue after a kill with edited steps."""
    case = matrix.harness.new_case()
    problems = _run_until_killed(case, matrix.middle_step)
    moved = CrashCase(matrix.edited_harness, case.home, case.exit_codes)
    yield "after a kill", moved, problems + _run_to_completion(moved)


SCENARIOS: dict[str, Callable[[CrashMatrix], Iterator[CaseResult]]] = {
    "killed": kill_cases,
    "torn store": torn_store_cases,
    "disk full": full_disk_cases,
    "read-only store": read_only_cases,
    "concurrent runs": concurrent_run_cases,
    "changed input": changed_input_cases,
    "changed code": changed_code_cases,
    "clock jump": clock_jump_cases,
}


def _run_until_killed(case: CrashCase, step: str, at: str = "after", **moment: Any) -> list[str]:
    """Run until the kill; any other end is a problem, because nothing was tested."""
    code = case.run(kill={"step": step, "at": at, **moment})
    return [] if code == KILLED_EXIT_CODE else [f"{step}: not killed; the run ended with {code}"]


def _run_to_completion(case: CrashCase, **job: Any) -> list[str]:
    if case.run_to_completion(**job):
        return ["a traceback"] if TRACEBACK_EXIT_CODE in case.exit_codes else []
    return [f"not done after {len(case.exit_codes)} runs"]


def _spread_evenly(count: int, wanted: int) -> list[int]:
    """Return up to `wanted` of the numbers 1 … count, including the first and the last."""
    if count <= wanted:
        return list(range(1, count + 1))
    return sorted({1 + round(i * (count - 1) / (wanted - 1)) for i in range(wanted)}) if wanted > 1 else [1]


def _corrupt_file(path: Path, how: str, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if how == "a bit flipped":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    else:
        del data[0 if how == "emptied" else rng.randrange(len(data)) :]
    path.write_bytes(data)


def _set_modes(home: Path, what: str, file: int, directory: int) -> None:
    for path in home.glob("state.db*"):
        path.chmod(file)
    if what == "directory":
        home.chmod(directory)
