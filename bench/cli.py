"""How long the command line takes to start, as multiples of `python -c pass` in the same run.

Prints one JSON object a line; exits 0 when every target is met. Bytecode is compiled before measuring, as an
installation has it.
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measured

CLAIMS = [("holdfast --help", ["--help"], 6.0), ("holdfast list", ["list"], 8.0)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 5 if parser.parse_args().quick else 25
    source = Path(__file__).resolve().parents[1] / "src"
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HOLDFAST_HOME": folder, "PYTHONPATH": str(source)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        compileall.compile_dir(source, quiet=1)
        return measured.report(claims(environment, rounds))


def claims(environment: dict[str, str], rounds: int):
    script = str(Path(sys.executable).parent / "holdfast")
    commands = {"pass": [sys.executable, "-c", "pass"]}
    commands |= {name: [sys.executable, script, *words] for name, words, _ in CLAIMS}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, argv in commands.items():
            began = time.perf_counter()
            subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - began)
    floor = statistics.median(times["pass"])
    for name, _, target in CLAIMS:
        value = statistics.median(times[name])
        yield measured.claim(
            name, value * 1000, "ms", baseline=("python -c pass", floor * 1000), at_most=target,
            range=[round(min(times[name]) * 1000, 1), round(max(times[name]) * 1000, 1)],
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
