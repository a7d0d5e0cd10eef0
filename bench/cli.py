"""Start-up time of the command line against a baseline measured in the same run.

`--help` and `list` are compared with `python -c pass`. `sandbox exec NAME -- true` is compared with
`kubectl exec` in the same pod, on a gateway that the benchmark creates. Completions of the names of gateways,
sandboxes, runs and images are measured in bash, zsh and fish on a terminal, from the Tab key to the completed
name, and have an absolute limit. The benchmark fails if kubectl or a shell is missing.
Prints one JSON object per line; exits 0 when every target is met. Bytecode is compiled before measuring, as
in an installation.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measured

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.pseudo_terminal import ProgramOnTerminal

from holdfast.remote import connect
from holdfast.sandbox.from_request import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCAL_COMMANDS = [("holdfast --help", ["--help"], 6.0), ("holdfast list", ["list"], 8.0)]
EXEC_TARGET = 2.5
# A user waits for a completion at the Tab key.
COMPLETION_TARGET_MS = 150
SHELLS = ("bash", "zsh", "fish")
PROMPT = "ready$ "
# A shell that prints nothing for this time has echoed what was typed.
QUIET_SECONDS = 0.2
# An API or an engine that answers too late completes nothing.
MAX_TABS = 5
GATEWAY = f"bench-cli-{uuid.uuid4().hex[:6]}"
IMAGE = f"{GATEWAY}-image:1"
SCRIPT = str(Path(sys.executable).parent / "holdfast")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Measure fewer rounds.")
    options = parser.parse_args()
    source = Path(__file__).resolve().parents[1] / "src"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(source, quiet=1)
    return measured.report(all_claims(environment, 5 if options.quick else 25))


def all_claims(environment: dict[str, str], rounds: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        local = {**environment, "HOLDFAST_HOME": directory}
        yield from local_claims(local, rounds)
        with temporary_gateway(local) as kubeconfig, temporary_sandbox(local) as name:
            yield from completion_claims(local, name, rounds)
            pod = ["kubectl", "--kubeconfig", kubeconfig, "exec", name, "-c", "sandbox", "--", "true"]
            commands = {
                "kubectl exec": pod,
                "exec": [sys.executable, SCRIPT, "sandbox", "exec", name, "--", "true"],
            }
            times = measure(commands, local, rounds)
            baseline = ("kubectl exec", times["kubectl exec"])
            yield claim("holdfast sandbox exec", times["exec"], baseline, EXEC_TARGET)


def local_claims(environment: dict[str, str], rounds: int) -> Iterator[dict[str, Any]]:
    commands = {"pass": [sys.executable, "-c", "pass"]}
    commands |= {name: [sys.executable, SCRIPT, *args] for name, args, _ in LOCAL_COMMANDS}
    times = measure(commands, environment, rounds)
    for name, _, target in LOCAL_COMMANDS:
        yield claim(name, times[name], ("python -c pass", times["pass"]), target)


def completion_claims(environment: dict[str, str], sandbox: str, rounds: int) -> Iterator[dict[str, Any]]:
    """The time from the Tab key to the completed word, in each shell on a terminal."""
    runs = subprocess.run(
        [sys.executable, SCRIPT, "runs", "--json"], env=environment, check=True, capture_output=True
    )
    run = json.loads(runs.stdout)[0]["id"]
    lines = {"status": GATEWAY, "sandbox get": sandbox, "runs show": run, "image push": IMAGE}
    for shell in SHELLS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            terminal = shell_with_completion(shell, {**environment, "HOME": home, "TERM": "vt100"})
            for command, name in lines.items():
                # The last four characters are completed: no other name has the same beginning.
                times = [
                    press_tab(terminal, f"holdfast {command} {name[:-4]}", name[-4:]) for _ in range(rounds)
                ]
                yield measured.claim(
                    f"{shell}: completion of `{command}`", statistics.median(times) * 1000, "ms",
                    at_most=COMPLETION_TARGET_MS,
                    range=[round(min(times) * 1000, 1), round(max(times) * 1000, 1)],
                )  # fmt: skip
            terminal.type("exit\r")
            terminal.wait_exit_code()


def shell_with_completion(shell: str, environment: dict[str, str]) -> ProgramOnTerminal:
    """Start a shell that has loaded the completion script."""
    program = shutil.which(shell)
    if program is None:
        sys.exit(f"{shell}: not installed; completion is measured in {', '.join(SHELLS)}")
    path = f"{Path(SCRIPT).parent}:{environment['PATH']}"
    environment = {**environment, "PATH": path, "ZDOTDIR": environment["HOME"], "PS1": PROMPT}
    argv = [sys.executable, SCRIPT, "completion", "show", shell]
    script = Path(environment["HOME"]) / "completion"
    script.write_bytes(subprocess.run(argv, env=environment, check=True, capture_output=True).stdout)
    load, options = f"source {script}\n", ["-i"]
    if shell == "bash":
        startup, options = (
            Path(environment["HOME"]) / "rc",
            ["--noprofile", "--rcfile", f"{environment['HOME']}/rc", "-i"],
        )
        load += f"PS1='{PROMPT}'\n"
    elif shell == "zsh":
        startup, options = Path(environment["HOME"]) / ".zshrc", ["-d", "-i"]
        load = f"autoload -Uz compinit && compinit -u\n{load}PS1='{PROMPT}'\n"
    else:
        startup = Path(environment["HOME"]) / ".config" / "fish" / "config.fish"
        load += f"function fish_prompt; echo -n '{PROMPT}'; end\nset -g fish_greeting\n"
        load += "set -g fish_autosuggestion_enabled 0\n"
    startup.parent.mkdir(parents=True, exist_ok=True)
    startup.write_text(load)
    terminal = ProgramOnTerminal([program, *options], environment, 200)
    terminal.wait_for(re.escape(PROMPT.strip()).encode())
    return terminal


def press_tab(terminal: ProgramOnTerminal, typed: str, rest: str) -> float:
    """Type a line, press Tab, and return the seconds until its last word is complete."""
    terminal.type(typed)
    while select.select([terminal.fd], [], [], QUIET_SECONDS)[0]:  # the shell echoes the line
        os.read(terminal.fd, 65536)
    terminal.output = b""
    started = time.perf_counter()
    for _ in range(MAX_TABS):
        terminal.type("\t")
        with suppress(AssertionError):
            terminal.wait_for(re.escape(rest).encode(), seconds=1)
            break
    else:
        sys.exit(f"completion of `{typed}` found no name")
    seconds = time.perf_counter() - started
    terminal.type("\x15\r")  # delete the line
    terminal.wait_for(re.escape(PROMPT.strip()).encode())
    return seconds


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


@contextmanager
def temporary_gateway(environment: dict[str, str]) -> Iterator[str]:
    """Create a gateway, and yield the path of its kubeconfig."""
    if shutil.which("kubectl") is None:
        sys.exit("kubectl: not installed; `sandbox exec` is compared with it")
    holdfast, engine = [sys.executable, SCRIPT], connect()
    engine.client.tag(DEFAULT_IMAGE, *IMAGE.split(":"))
    try:
        up = [*holdfast, "up", GATEWAY, "--push-image", DEFAULT_IMAGE]
        subprocess.run(up, env=environment, check=True, stdout=sys.stderr)
        path = subprocess.run(
            [*holdfast, "kubeconfig", GATEWAY, "--path"],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        yield path.stdout.strip()
    finally:
        destroy = [*holdfast, "destroy", GATEWAY, "--data", "--yes", GATEWAY]
        subprocess.run(destroy, env=environment, check=False, stdout=sys.stderr)
        engine.client.remove_image(IMAGE, noprune=True)


@contextmanager
def temporary_sandbox(environment: dict[str, str]) -> Iterator[str]:
    name = f"bench-cli-{uuid.uuid4().hex[:8]}"
    sandbox = [sys.executable, SCRIPT, "sandbox"]
    try:
        subprocess.run(
            [*sandbox, "create", name, "--no-workspace"],
            env=environment, check=True, capture_output=True,
        )  # fmt: skip
        yield name
    finally:
        subprocess.run(
            [*sandbox, "delete", name, "--yes", "--ignore-missing"],
            env=environment, check=False, capture_output=True,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
