"""The bench of the crash matrix: one directory per case, one helper process that runs and kills the children.

Not here: the cases (`crash_cases`) and the verdict over them (`crash_report`).
"""

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

    from holdfast.engine import Workflow


class Case:
    """One story: a directory, the runs in it, and what they did."""

    def __init__(self, lab: Lab, home: Path, codes: list[int] | None = None) -> None:
        self.home = home
        self.codes = codes if codes is not None else []
        self._lab = lab
        (home / "world").mkdir(parents=True, exist_ok=True)

    def carried_on_in(self, lab: Lab) -> Case:
        """The same story, told on with other code."""
        return Case(lab, self.home, self.codes)

    def run(self, **job: Any) -> int:
        """Run the workflow in a child; the exit code, negative for a signal."""
        answer = self._lab.ask({"do": "run", "dir": str(self.home), "params": self._lab.params, **job})
        code = int(answer.get("code", 0))
        self.codes.append(code)
        return code

    def run_until_stopped(self, step: str) -> int | None:
        """Run a child that stops itself before a step; its pid, or None if it never got there."""
        job = {"do": "run", "dir": str(self.home), "params": self._lab.params, "stop_before": step}
        pid = self._lab.ask(job).get("stopped")
        return None if pid is None else int(pid)

    def kill(self, pid: int) -> None:
        self._lab.ask({"do": "kill", "pid": pid})

    def run_to_the_end(self, **job: Any) -> bool:
        """Run until a run succeeds; False if that takes more runs than it should."""
        return any(self.run(**job) == 0 for _ in range(self._lab.most_runs))

    def log(self) -> str:
        path = self.home / "run.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def effects(self, what: str = "leave") -> Counter[str]:
        """How often the effect of each step was completed (or begun, with "enter")."""
        path = self.home / "effects"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(name for kind, _, name in (line.partition(" ") for line in lines) if kind == what)

    def lines(self) -> dict[str, int]:
        """How many lines each step ran, from a run that counted them."""
        found: dict[str, int] = {}
        for line in (self.home / "effects").read_text().splitlines():
            kind, _, name = line.partition(" ")
            if kind.startswith("lines:"):
                found[name] = int(kind.partition(":")[2])
        return found


class Lab:
    """Starts the helper process, hands it jobs, and keeps the directories apart."""

    def __init__(
        self, build: Callable[..., Workflow], root: Path, *, params: Any = None, most_runs: int = 4
    ) -> None:
        self._file = _file_of(build)
        self.params = params
        self.most_runs = most_runs
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
                "holdfast.testing.crash_child",
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

    def case(self) -> Case:
        self._count += 1
        return Case(self, self._root / f"case-{self._count:04}")

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        child = self._child
        if child is None or child.stdin is None or child.stdout is None:
            raise RuntimeError("the helper process is not running")
        child.stdin.write(json.dumps(job) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        if not line:
            raise RuntimeError(f"the helper process ended with {child.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _file_of(build: Callable[..., Workflow]) -> str:
    """The file that children load the function from."""
    file = inspect.getsourcefile(build) if inspect.isfunction(build) else None
    if file is None or "<" in build.__qualname__:  # <locals> and <lambda> have no name in their module
        raise ValueError(f"{build!r} must be a function at the top of a module: children import it")
    return file
