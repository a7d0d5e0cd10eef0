"""Directories and processes of crash cases: one helper process forks and kills the children."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.workflow import Workflow


class CrashCase:
    """One case: a directory, the runs in it and their effects."""

    def __init__(self, harness: CrashHarness, home: Path, exit_codes: list[int] | None = None) -> None:
        self.home = home
        self.exit_codes = exit_codes if exit_codes is not None else []
        self._harness = harness
        (home / "world").mkdir(parents=True, exist_ok=True)

    def continue_with(self, harness: CrashHarness) -> CrashCase:
        """Continue the case with the code of another harness."""
        return CrashCase(harness, self.home, self.exit_codes)

    def run(self, **job: Any) -> int:
        """Run the workflow in a child; returns the exit code, negative for a signal."""
        response = self._harness.request(
            {"do": "run", "dir": str(self.home), "params": self._harness.params, **job}
        )
        code = int(response.get("code", 0))
        self.exit_codes.append(code)
        return code

    def run_until_stopped(self, step: str) -> int | None:
        """Start a child that stops before a step; returns its pid, or None if the step was not reached."""
        job = {"do": "run", "dir": str(self.home), "params": self._harness.params, "stop_before": step}
        pid = self._harness.request(job).get("stopped")
        return None if pid is None else int(pid)

    def kill(self, pid: int) -> None:
        self._harness.request({"do": "kill", "pid": pid})

    def run_to_completion(self, **job: Any) -> bool:
        """Run until a run succeeds; returns False after too many runs."""
        return any(self.run(**job) == 0 for _ in range(self._harness.max_runs))

    def log(self) -> str:
        path = self.home / "run.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def effect_counts(self, what: str = "leave") -> Counter[str]:
        """Return how often the effect of each step completed (or started, with "enter")."""
        path = self.home / "effects"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(name for kind, _, name in (line.partition(" ") for line in lines) if kind == what)

    def line_counts(self) -> dict[str, int]:
        """Return how many lines each step executed, from a run with `count=True`."""
        counts: dict[str, int] = {}
        for line in (self.home / "effects").read_text().splitlines():
            kind, _, name = line.partition(" ")
            if kind.startswith("lines:"):
                counts[name] = int(kind.partition(":")[2])
        return counts


class CrashHarness:
    """Starts the helper process, sends it jobs, and creates the directories of cases."""

    def __init__(
        self, build: Callable[..., Workflow], root: Path, *, params: Any = None, max_runs: int = 4
    ) -> None:
        self._file = _source_file(build)
        self.params = params
        self.max_runs = max_runs
        self._build = build
        self._root = root
        self._count = 0
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        build = self._build
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "holdfast.testing.crash.child",
                build.__module__,
                self._file,
                build.__qualname__,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._child is not None:
            self._child.communicate()
            self._child = None

    def new_case(self) -> CrashCase:
        self._count += 1
        return CrashCase(self, self._root / f"case-{self._count:04}")

    def request(self, job: dict[str, Any]) -> dict[str, Any]:
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
