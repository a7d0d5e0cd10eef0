"""The `holdfast` command as a user runs it: a separate process with a separate HOLDFAST_HOME."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

OTHER_HOSTNAME_PREFIX = ("unshare", "--uts", "sh", "-c", 'hostname renamed-since && exec "$@"', "sh")
"""Prefix that runs one command under another host name."""


class HoldfastCli:
    """The command line with one HOLDFAST_HOME; `prefix` puts a program such as nsenter in front."""

    def __init__(self, home: Path, *, prefix: tuple[str, ...] = (), **environment: str) -> None:
        self.home = home
        self.prefix = prefix
        self.environment = {**os.environ, "HOLDFAST_HOME": str(home), **environment}
        if "HOLDFAST_GATEWAY" not in environment:
            self.environment.pop("HOLDFAST_GATEWAY", None)

    def with_environment(self, **environment: str) -> HoldfastCli:
        """Return the same command line with more environment variables."""
        return HoldfastCli(self.home, prefix=self.prefix, **{**self.environment, **environment})

    def argv(self, *words: str) -> list[str]:
        return [*self.prefix, str(Path(sys.executable).parent / "holdfast"), *words]

    def run(self, *words: str, timeout: float = 300, **options) -> subprocess.CompletedProcess[str]:
        """Run the command; return any exit code."""
        return subprocess.run(
            self.argv(*words), env=self.environment, capture_output=True, text=True, timeout=timeout,
            check=False, stdin=subprocess.DEVNULL, **options,
        )  # fmt: skip

    def __call__(self, *words: str, timeout: float = 300) -> str:
        """Run the command and return stdout; a failure fails the test with the output."""
        ended = self.run(*words, timeout=timeout)
        assert ended.returncode == 0, (
            f"holdfast {' '.join(words)}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
        )
        return ended.stdout

    def json(self, *words: str) -> dict:
        return json.loads(self(*words, "--json"))

    def events(self, *words: str) -> list[dict]:
        """Return the JSON progress events of a command."""
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
