"""Large output over a slow line: is any of it missing although the command reports success?

The benchmark creates another host (a network namespace with its own container engine and sshd), a gateway
on it, and limits the rate of its line with `tc`. In each run, a sandbox sends 100 MB of random data: as
stdout of `sandbox exec`, as its stderr, or as a file with `sandbox cp`. Needs root.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import measured

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.ssh_host import SshHost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.support.holdfast_cli import HoldfastCli

NAME = "bench-slow-line"
SANDBOX = "sender"
SIZE = 100_000_000
RATES = (100, 50)
KINDS = ("exec stdout", "exec stderr", "cp")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="4 runs of each kind instead of 40")
    parser.add_argument("--runs", type=int, help="number of runs of each kind and rate")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES, help="rates of the line in Mbit/s")
    parser.add_argument("--parallel", type=int, default=4, help="number of runs at the same time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, SshHost() as host:
        laptop = host.laptop(Path(folder))
        laptop.environment["HOLDFAST_WORKLOADS"] = "true"
        try:
            line = SlowLine(host, laptop, Path(folder))
            runs = options.runs or (4 if options.quick else 40)
            return measured.report(line.claims(options.rates, runs, options.parallel))
        finally:
            laptop.run("destroy", NAME, "--data", "--yes", NAME)
            for control in laptop.home.glob("state/ssh/*/ctl"):
                words = ["ssh", "-F", "none", "-o", f"ControlPath={control}", "-O", "exit", "--", "far"]
                subprocess.run(words, capture_output=True, check=False)


class SlowLine:
    """A gateway on another host with a sandbox that sends a file."""

    def __init__(self, host: SshHost, laptop: HoldfastCli, folder: Path) -> None:
        self.host, self.laptop, self.folder = host, laptop, folder
        laptop("up", NAME, "--remote", "far", timeout=1800)
        laptop("sandbox", "create", "-g", NAME, SANDBOX, timeout=900)
        self.in_sandbox("sh", "-c", f"head -c {SIZE} /dev/urandom > blob")
        self.digest = self.in_sandbox("sha256sum", "blob").split()[0]

    def in_sandbox(self, *words: str) -> str:
        return self.laptop("sandbox", "exec", "-n", "-g", NAME, SANDBOX, "--", *words, timeout=300)

    def claims(self, rates: Iterable[int], runs: int, parallel: int) -> Iterator[dict]:
        for rate in rates:
            self.limit_rate(rate)
            # The kinds take turns: a benchmark that is stopped has run each of them equally often.
            order = [kind for _ in range(runs) for kind in KINDS]
            with ThreadPoolExecutor(parallel) as threads:
                outcomes = list(threads.map(self.run, order, range(len(order))))
            for kind in KINDS:
                found = collections.Counter(
                    outcome for one, outcome in zip(order, outcomes, strict=True) if one == kind
                )
                yield measured.claim(
                    f"{kind}, {rate} Mbit/s: short although successful",
                    found["short"],
                    f"of {runs} runs of {SIZE // 1_000_000} MB",
                    at_most=0,
                    complete=found["complete"],
                    failed=found["failed"],
                )

    def limit_rate(self, megabits: int) -> None:
        device = f"{self.host.namespace}f"
        words = ["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{megabits}mbit"]
        subprocess.run(
            [*self.host.prefix, *words, "burst", "64kb", "latency", "100ms"], check=True, capture_output=True
        )

    def run(self, kind: str, number: int) -> str:
        """Return `complete`, `short` (or otherwise wrong), or `failed` if the command reports a failure."""
        target = self.folder / f"copy-{number}"
        command = {
            "exec stdout": ["exec", "-n", "-g", NAME, SANDBOX, "--", "cat", "blob"],
            "exec stderr": ["exec", "-n", "-g", NAME, SANDBOX, "--", "sh", "-c", "cat blob >&2"],
            "cp": ["cp", "-q", "-g", NAME, f"{SANDBOX}:blob", str(target)],
        }[kind]
        is_stderr = kind == "exec stderr"
        received = hashlib.sha256()
        with subprocess.Popen(
            self.laptop.argv("sandbox", *command), env=self.laptop.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if is_stderr else subprocess.PIPE,
            stderr=subprocess.PIPE if is_stderr else subprocess.DEVNULL,
        ) as process:  # fmt: skip
            output = process.stderr if is_stderr else process.stdout
            while chunk := output.read1(1 << 20):  # type: ignore[union-attr]
                received.update(chunk)
        if kind == "cp" and target.exists():
            received = hashlib.sha256(target.read_bytes())
            target.unlink()
        outcome = "failed" if process.returncode else "short"
        if not process.returncode and received.hexdigest() == self.digest:
            outcome = "complete"
        print(f"run {number}: {kind}: {outcome}", file=sys.stderr, flush=True)
        return outcome


if __name__ == "__main__":
    os.nice(10)
    sys.exit(main())
