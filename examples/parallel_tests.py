"""Run the tests of a project in 10 sandboxes concurrently, each with another hash seed.

Tests that depend on the order of a set fail with some seeds only. Each run has its own sandbox, so that runs
do not share files, ports or processes.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from holdfast import Gateway
from holdfast.client import AsyncSandboxes

PROJECT = Path(__file__).parent / "flaky_project"
TEST_COMMAND = ("python3", "-m", "unittest", "-q")


@dataclass(frozen=True)
class TestRun:
    """The result of the tests with one seed."""

    __test__ = False  # for pytest

    seed: int
    exit_code: int
    output: str


async def run_tests(sandboxes: AsyncSandboxes, project: Path, seed: int) -> TestRun:
    """Run the tests in a new sandbox, which is deleted afterwards."""
    async with sandboxes.temporary(memory="256Mi", prefix=f"seed-{seed}") as sandbox:
        await sandbox.upload(project, "project")
        seed_variable = {"PYTHONHASHSEED": str(seed)}
        result = await sandbox.exec(*TEST_COMMAND, env=seed_variable, cwd="/sandbox/project", timeout=120)
        return TestRun(seed, result.exit_code, result.stderr.decode(errors="replace"))


async def run_all(gateway: str | None, project: Path, count: int) -> list[TestRun]:
    """Run the tests with the seeds 0 to `count - 1`. All sandboxes exist at the same time."""
    async with Gateway(gateway).sandboxes() as sandboxes:
        return await asyncio.gather(*(run_tests(sandboxes, project, seed) for seed in range(count)))


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a test suite in several sandboxes.")
    parser.add_argument("project", nargs="?", type=Path, default=PROJECT)
    parser.add_argument("--count", type=int, default=10, help="number of sandboxes")
    parser.add_argument("--gateway", help="name of the gateway")
    options = parser.parse_args()
    runs = asyncio.run(run_all(options.gateway, options.project, options.count))
    for run in runs:
        print(f"seed {run.seed}: {'passed' if run.exit_code == 0 else 'failed'}")
    failures = [run for run in runs if run.exit_code != 0]
    print(f"{len(runs) - len(failures)} of {len(runs)} runs passed")
    if failures:
        print(f"\nseed {failures[0].seed}:\n{failures[0].output.rstrip()}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
