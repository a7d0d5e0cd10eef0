"""Start-up time of the command line against a baseline measured in the same run.

`--help` and `list` are compared with `python -c pass`. `sandbox exec NAME -- true` is compared with
`kubectl exec` in the same pod; it needs kubectl and a gateway that is up, and is left out otherwise.
Completions of the names of gateways, sandboxes, runs and images have an absolute limit; each finds a name.
Prints one JSON object per line; exits 0 when every target is met. Bytecode is compiled before measuring, as
in an installation.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measured

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCAL_COMMANDS = [("holdfast --help", ["--help"], 6.0), ("holdfast list", ["list"], 8.0)]
EXEC_TARGET = 2.5
# A user waits for a completion at the Tab key.
COMPLETION_TARGET_MS = 150
SCRIPT = str(Path(sys.executable).parent / "holdfast")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Measure fewer rounds.")
    parser.add_argument(
        "--gateway", metavar="NAME", help="Gateway for `sandbox exec`; the active one by default."
    )
    options = parser.parse_args()
    source = Path(__file__).resolve().parents[1] / "src"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(source, quiet=1)
    return measured.report(all_claims(environment, 5 if options.quick else 25, options.gateway))


def all_claims(environment: dict[str, str], rounds: int, gateway: str | None) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        local = {**environment, "HOLDFAST_HOME": directory}
        yield from local_claims(local, rounds)
    kubeconfig = kubeconfig_path(environment, gateway)
    if kubeconfig is None:
        print("no gateway or no kubectl: `sandbox exec` is not measured", file=sys.stderr)
        return
    option = f"--gateway {gateway} " if gateway else ""
    for line in ("status ", "runs show ", "image push "):
        yield completion_claim(line, environment, rounds)
    gateway_option = ["--gateway", gateway] if gateway else []
    with temporary_sandbox(environment, gateway_option) as name:
        commands = {
            "kubectl exec": [
                "kubectl",
                "--kubeconfig",
                kubeconfig,
                "exec",
                name,
                "-c",
                "sandbox",
                "--",
                "true",
            ],
            "exec": [sys.executable, SCRIPT, "sandbox", "exec", *gateway_option, name, "--", "true"],
        }
        yield completion_claim(f"sandbox get {option}", environment, rounds)
        times = measure(commands, environment, rounds)
    yield claim("holdfast sandbox exec", times["exec"], ("kubectl exec", times["kubectl exec"]), EXEC_TARGET)


def local_claims(environment: dict[str, str], rounds: int) -> Iterator[dict[str, Any]]:
    commands = {"pass": [sys.executable, "-c", "pass"]}
    commands |= {name: [sys.executable, SCRIPT, *args] for name, args, _ in LOCAL_COMMANDS}
    times = measure(commands, environment, rounds)
    for name, _, target in LOCAL_COMMANDS:
        yield claim(name, times[name], ("python -c pass", times["pass"]), target)


def completion_claim(line: str, environment: dict[str, str], rounds: int) -> dict[str, Any]:
    """The time to complete the last word of a command line."""
    variables = {
        "_HOLDFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": f"holdfast {line}",
        "COMP_CWORD": str(len(line.split()) + 1),
    }
    environment, argv = {**environment, **variables}, [sys.executable, SCRIPT]
    if not subprocess.run(argv, env=environment, check=True, capture_output=True).stdout.strip():
        sys.exit(f"completion of `{line}` found no name")
    times = measure({line: argv}, environment, rounds)[line]
    milliseconds = statistics.median(times) * 1000
    return measured.claim(f"completion of `{line}`", milliseconds, "ms", at_most=COMPLETION_TARGET_MS)


def measure(
    commands: dict[str, list[str]], environment: dict[str, str], rounds: int
) -> dict[str, list[float]]:
    """Run the commands in turn, so that load on the machine affects all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, argv in commands.items():
            started = time.perf_counter()
            subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - started)
    return times


def claim(name: str, times: list[float], baseline: tuple[str, list[float]], target: float) -> dict[str, Any]:
    return measured.claim(
        name,
        statistics.median(times) * 1000,
        "ms",
        baseline=(baseline[0], statistics.median(baseline[1]) * 1000),
        at_most=target,
        range=[round(min(times) * 1000, 1), round(max(times) * 1000, 1)],
    )


def kubeconfig_path(environment: dict[str, str], gateway: str | None) -> str | None:
    """The kubeconfig of a gateway that answers, or None."""
    argv = [sys.executable, SCRIPT, "kubeconfig", "--path", *([gateway] if gateway else [])]
    result = subprocess.run(argv, env=environment, check=False, capture_output=True, text=True)
    path = result.stdout.strip()
    if result.returncode or shutil.which("kubectl") is None:
        return None
    check = ["kubectl", "--kubeconfig", path, "--request-timeout=5s", "get", "--raw", "/readyz"]
    return path if subprocess.run(check, check=False, capture_output=True).returncode == 0 else None


@contextmanager
def temporary_sandbox(environment: dict[str, str], gateway_option: list[str]) -> Iterator[str]:
    name = f"bench-cli-{uuid.uuid4().hex[:8]}"
    sandbox = [sys.executable, SCRIPT, "sandbox"]
    try:
        subprocess.run(
            [*sandbox, "create", *gateway_option, name, "--no-workspace"],
            env=environment, check=True, capture_output=True,
        )  # fmt: skip
        yield name
    finally:
        subprocess.run(
            [*sandbox, "delete", *gateway_option, name, "--yes", "--ignore-missing"],
            env=environment, check=False, capture_output=True,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
