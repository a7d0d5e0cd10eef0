"""A sandbox with known files, the processes of its node, and a table of the failures that it survived.

All checks use `holdfast sandbox …` and kubectl, as a user does.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.eventually import eventually

from holdfast.containers import run_in_container
from holdfast.retry import Policy, constant
from holdfast.testing.apiserver.processes import node_binary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.gateway import TestGateway
    from tests.support.private_container_engine import PrivateContainerEngine

SANDBOX_IMAGE = "holdfast/sandbox:0.1.0"
WAIT_SECONDS = 120.0
EVENTUALLY = Policy(attempts=None, deadline=WAIT_SECONDS, backoff=constant(0.2), retry_on=AssertionError)

WRITE_TREE_PROGRAM = r"""
import os, random
numbers = random.Random(11)
os.chdir("/sandbox")
for one in range(300):
    folder = f"folder {one % 12}/Ordner-ü-{one % 5}/深い"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/file {one}", "wb") as file:
        file.write(numbers.randbytes(numbers.choice((0, 1, 100, 4096, 30_000))))
    os.chmod(file.name, numbers.choice((0o400, 0o600, 0o644, 0o755, 0o2750, 0o4711)))
for one in range(3):
    with open(f"big {one}", "wb") as file:
        file.write(numbers.randbytes(5_000_000 + one))
with open("sparse", "wb") as file:
    file.truncate(300_000_000)
open("line\nbreak", "w").close()
open(".hidden", "w").close()
open(("ü" * 127), "w").close()
os.mkdir("empty", 0o700)
os.mkdir("sticky")
os.chmod("sticky", 0o1777)
os.mkfifo("pipe")
os.symlink("folder 1", "to a folder")
os.symlink("/nowhere/at/all", "to nothing")
os.symlink("loop", "loop")
os.link("big 0", "twin of big 0")
"""

SNAPSHOT_PROGRAM = r"""
import hashlib, json, os, stat, sys

def picture(path):
    seen = os.lstat(path)
    what = ""
    if stat.S_ISLNK(seen.st_mode):
        what = os.readlink(path)
    elif stat.S_ISREG(seen.st_mode):
        with open(path, "rb") as file:
            what = hashlib.file_digest(file, "sha256").hexdigest()
    links = 0 if stat.S_ISDIR(seen.st_mode) else seen.st_nlink
    times = 0 if stat.S_ISDIR(seen.st_mode) else seen.st_mtime_ns
    return [stat.filemode(seen.st_mode), seen.st_uid, seen.st_gid, seen.st_size, times, links, what]

for name in sys.argv[1:]:
    with open(f"/sandbox/{name}", "xb") as file:
        file.write(os.urandom(100_000))
found = {}
for folder, folders, files in os.walk("/sandbox"):
    for name in [*folders, *files]:
        path = os.path.join(folder, name)
        found[os.path.relpath(path, "/sandbox")] = picture(path)
print(json.dumps(found))
"""


class WorkspaceSandbox:
    """A sandbox with some hundred entries of all kinds in its workspace; every one of them is remembered."""

    def __init__(self, gateway: TestGateway, engine: PrivateContainerEngine, name: str = "keep") -> None:
        self.gateway, self.engine, self.name = gateway, engine, name
        self.expected: dict[str, list] = {}

    def write_tree(self) -> None:
        """Write the tree."""
        self._python(WRITE_TREE_PROGRAM)
        self.expected = self.snapshot()

    def add_file(self, name: str) -> None:
        """Add a file without a sync; the earlier files are unchanged."""
        seen = self.snapshot(name)
        assert {path: entry for path, entry in seen.items() if path != name} == self.expected
        self.expected = seen

    def snapshot(self, *new: str) -> dict[str, list]:
        """Every entry with its kind, mode, owner, size, time, number of names, and checksum or goal."""
        return json.loads(self._python(SNAPSHOT_PROGRAM, *new))

    def sandbox_command(self, *words: str) -> str:
        """`holdfast sandbox VERB NAME …` on this gateway."""
        verb, *rest = words
        return self.gateway.holdfast("sandbox", verb, self.name, "--gateway", self.gateway.name, *rest)

    def wait_ready(self) -> None:
        self.sandbox_command("wait", "--timeout", str(WAIT_SECONDS))

    def pod(self) -> dict:
        return self.gateway.get("pod", self.name)

    def wait_pod(self, until: Callable[[dict], bool], *, act: Callable[[], object] = lambda: None) -> dict:
        """Watch its pod, one after another, until a function of it holds; `act` when the watch has begun."""
        return KubectlWatch(self.gateway, "pods", self.name, until, act).wait()

    def _python(self, program: str, *words: str) -> str:
        argv = self.gateway.holdfast.argv(
            "sandbox", "exec", self.name, "--gateway", self.gateway.name, "--", "python3", "-", *words
        )
        ended = subprocess.run(
            argv, env=self.gateway.holdfast.environment, input=program, capture_output=True, text=True,
            timeout=WAIT_SECONDS, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


def is_ready(pod: dict) -> bool:
    """Whether a pod is there to stay and ready."""
    rows = (pod.get("status") or {}).get("conditions") or ()
    ready = any(row["type"] == "Ready" and row["status"] == "True" for row in rows)
    return ready and "deletionTimestamp" not in pod["metadata"]


def container_id(pod: dict) -> str:
    """Which container runs in a pod; another one after each start."""
    (row,) = (pod.get("status") or {}).get("containerStatuses") or ({},)
    return row.get("containerID", "") if "running" in row.get("state", {}) else ""


class KubectlWatch:
    """Sees all objects of one name until a function of one holds; one that is cut is begun again."""

    def __init__(
        self,
        gateway: TestGateway,
        kind: str,
        name: str,
        until: Callable[[dict], bool],
        act: Callable[[], object],
    ) -> None:
        self._gateway, self._kind, self._name = gateway, kind, name
        self._predicate, self._on_start = until, act
        self._deadline = time.monotonic() + WAIT_SECONDS

    def wait(self) -> dict:
        return EVENTUALLY.call(self._once)

    def _once(self) -> dict:
        seen: dict = {}
        running = subprocess.Popen(self._argv(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            for seen in _json_documents(running):
                act, self._on_start = self._on_start, lambda: None
                act()
                if self._predicate(seen):
                    return seen
            said = running.stderr.read() if running.stderr else ""
        finally:
            running.kill()
            running.communicate()
        raise AssertionError(f"{self._kind} {self._name} did not get there: {seen.get('status')} {said}")

    def _argv(self) -> list[str]:
        path = self._gateway.holdfast.home / "config" / "gateways" / self._gateway.name / "kubeconfig"
        words = [*self._gateway.holdfast.prefix, str(node_binary()), "kubectl", "--kubeconfig", str(path)]
        words += ["get", self._kind, "--field-selector", f"metadata.name={self._name}", "--watch"]
        return [*words, "-o", "json", f"--request-timeout={max(1, int(self._deadline - time.monotonic()))}s"]


def _json_documents(running: subprocess.Popen[str]) -> Iterator[dict]:
    """kubectl writes each object over many lines; a brace at the beginning of a line ends it."""
    lines: list[str] = []
    for line in running.stdout or ():
        lines.append(line)
        if line.rstrip() == "}":
            yield json.loads("".join(lines))
            lines = []


def pids_in_node(engine: PrivateContainerEngine, container: str, words: str) -> set[int]:
    """The processes inside a node whose command line begins with these words."""
    script = (
        "for one in /proc/[0-9]*; do"
        ' case "$(tr "\\0" " " 2>/dev/null < $one/cmdline)" in "$1"*) echo ${one#/proc/};; esac; done'
    )
    told = run_in_container(engine.connect(), container, ["sh", "-c", script, "sh", words])
    assert told.exit_code == 0, told.output
    return {int(pid) for pid in told.output.split()}


@contextmanager
def kill_process_in_node(engine: PrivateContainerEngine, container: str, words: str) -> Iterator[None]:
    """SIGKILL the one living process of these words; when the block is left another one is in its place."""
    # An engine under load can lose the output of a command.
    (before,) = eventually(lambda: pids_in_node(engine, container, words), seconds=30)
    killed = run_in_container(engine.connect(), container, ["sh", "-c", f"kill -9 {before}"])
    assert killed.exit_code == 0, killed.output

    def assert_replaced() -> None:
        now = pids_in_node(engine, container, words)
        assert len(now) == 1, now
        assert before not in now

    yield
    EVENTUALLY.call(assert_replaced)


def wait_node_healthy(engine: PrivateContainerEngine, container: str) -> None:
    """Until every component of the node is up again."""

    def assert_healthy() -> None:
        told = run_in_container(engine.connect(), container, ["holdfast-node", "health"])
        assert told.exit_code == 0, told.output

    EVENTUALLY.call(assert_healthy)


@dataclass
class FaultTable:
    """What was done, how often, how often nothing was lost, and how long it took."""

    durations: dict[str, list[float | None]] = field(default_factory=dict)

    def start(self, harm: str) -> None:
        self.durations.setdefault(harm, []).append(None)

    def record_success(self, harm: str, seconds: float) -> None:
        self.durations[harm][-1] = seconds

    def lines(self) -> list[str]:
        rows = [("harm", "times", "intact", "until ready (s)")]
        for harm, tries in self.durations.items():
            good = [each for each in tries if each is not None]
            told = " ".join("-" if each is None else f"{each:.1f}" for each in tries)
            rows.append((harm, str(len(tries)), str(len(good)), told))
        return [f"{harm:<34} {times:>5} {good:>6}  {took}" for harm, times, good, took in rows]


class PausedSeeding:
    """The first filling of one sandbox's workspace, held still in the middle of its copy."""

    def __init__(self, sandbox: WorkspaceSandbox) -> None:
        self.sandbox = sandbox

    def pause_after(self, files: int) -> int:
        """Stop the copy once so many files are there; how many there are then."""
        held = self._in_node(
            'until [ "$(find $1/.seeding.* -type f 2>/dev/null | wc -l)" -ge "$2" ]; do sleep 0.002; done;'
            " for one in /proc/[0-9]*; do"
            ' case "$(tr "\\0" " " 2>/dev/null < $one/cmdline)" in'
            ' "cp -a /sandbox/. .seeding."*) kill -STOP ${one#/proc/};; esac; done;'
            " [ ! -e $1/data ] || exit 1; find $1/.seeding.* -type f | wc -l",
            str(files),
        )
        return int(held)

    def kill_container(self) -> None:
        """SIGKILL of the copy's whole container: its first process is the script."""
        self._in_node(
            "for one in /proc/[0-9]*; do"
            ' case "$(tr "\\0\\n" "  " 2>/dev/null < $one/cmdline)" in'
            ' "/bin/sh -c "*" seed-workspace /sandbox "*) kill -9 ${one#/proc/} && killed=yes;; esac; done;'
            ' [ "$killed" = yes ]'
        )

    def _in_node(self, script: str, *words: str) -> str:
        """Run a script in the node; `$1` is the folder of the claim, as a pattern."""
        folder = f"/var/lib/holdfast/local-path/*_workspace-{self.sandbox.name}"
        argv = ["timeout", str(int(WAIT_SECONDS)), "sh", "-c", script, "sh", folder, *words]
        told = run_in_container(self.sandbox.engine.connect(), self.sandbox.gateway.container, argv)
        assert told.exit_code == 0, (script, told.output)
        return told.output
