"""The `holdfast` command as a user runs it: a process of its own with a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

OTHER_HOSTNAME_PREFIX = ("unshare", "--uts", "sh", "-c", 'hostname renamed-since && exec "$@"', "sh")
"""In front of a command: this machine under another host name, for that command alone."""


class HoldfastCli:
    """The command line with one HOLDFAST_HOME; `prefix` puts a program such as nsenter in front."""

    def __init__(self, home: Path, *, prefix: tuple[str, ...] = (), **environment: str) -> None:
        self.home = home
        self.prefix = prefix
        self.environment = {**os.environ, "HOLDFAST_HOME": str(home), **environment}

    def argv(self, *words: str) -> list[str]:
        return [*self.prefix, str(Path(sys.executable).parent / "holdfast"), *words]

    def run(self, *words: str, timeout: float = 300, **options) -> subprocess.CompletedProcess[str]:
        """Run to the end, whatever the exit code."""
        return subprocess.run(
            self.argv(*words), env=self.environment, capture_output=True, text=True, timeout=timeout,
            check=False, stdin=subprocess.DEVNULL, **options,
        )  # fmt: skip

    def __call__(self, *words: str, timeout: float = 300) -> str:
        """Run and return stdout; anything but success fails the test with what was printed."""
        ended = self.run(*words, timeout=timeout)
        assert ended.returncode == 0, (
            f"holdfast {' '.join(words)}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
        )
        return ended.stdout

    def json(self, *words: str) -> dict:
        return json.loads(self(*words, "--json"))

    def events(self, *words: str) -> list[dict]:
        """The JSON lines of progress that a command wrote."""
        ended = self.run(*words, "--json")
        assert ended.returncode == 0, ended.stderr
        return [json.loads(line) for line in ended.stderr.splitlines()]

    def start(self, *words: str, **options) -> subprocess.Popen[str]:
        """Start without waiting."""
        return subprocess.Popen(
            self.argv(*words),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
