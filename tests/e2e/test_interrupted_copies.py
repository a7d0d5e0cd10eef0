"""`sandbox cp`, killed at random moments and repeated: equal trees, no nesting, no leftovers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import suppress

import pytest
from tests.support.eventually import eventually
from tests.support.holdfast_cli import HoldfastCli
from tests.support.source_gateway import source_sandboxes

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

IMAGE = "holdfast/sandbox:0.1.0"
MAX_INTERRUPTIONS = 3
# Type, permissions, target and content of each entry. The permissions of a link have no meaning.
DESCRIBE_TREE = """
cd "$1" || exit
find . -mindepth 1 ! -type l -printf '%y %m %P\\n' | sort
find . -type l -printf '%y %P %l\\n' | sort
find . -type f -exec sha256sum {} + | sort -k 2
"""


@pytest.fixture(scope="module")
def holdfast(tmp_path_factory):
    return HoldfastCli(tmp_path_factory.mktemp("node"), HOLDFAST_WORKLOADS="false")


@pytest.fixture(scope="module")
def sandbox(new_gateway, tmp_path_factory):
    """The command line, with a gateway that has the sandbox `a`."""
    node = new_gateway("copies")
    node.up("--push-image", IMAGE)
    with source_sandboxes(node, "boxes", tmp_path_factory.mktemp("sandbox")) as gateway:
        gateway.holdfast("sandbox", "create", "a", "--image", IMAGE, "--no-bootstrap")
        yield gateway.holdfast


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """64 MB in one large and many small files."""
    top = tmp_path_factory.mktemp("source") / "tree"
    for number in range(300):
        folder = top / f"folder {number % 7}" / f"ü-{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file {number}").write_bytes(os.urandom(number * 300))
    (top / "large").write_bytes(os.urandom(50 << 20))
    (top / "link").symlink_to("large")
    (top / "run").write_text("#!/bin/sh\n")
    (top / "run").chmod(0o755)
    return top


class Direction:
    """One direction of copies, and what both sides contain."""

    def __init__(self, sandbox, name, tree, local):
        self.sandbox, self.name, self.tree, self.local = sandbox, name, tree, local

    def argv(self, number):
        """The command of copy `number`; each has a directory of its own."""
        if self.name == "upload":
            return self.sandbox.argv("sandbox", "cp", str(self.tree), f"a:/sandbox/up-{number}/copy")
        return self.sandbox.argv("sandbox", "cp", "a:/sandbox/tree", str(self.local / f"{number}" / "copy"))

    def prepare(self, number):
        (self.local / f"{number}").mkdir(exist_ok=True)
        self.in_sandbox("mkdir", "-p", f"/sandbox/up-{number}")

    def content(self, number):
        """The directory of copy `number`, as its only entries and the description of the copy."""
        script = f'ls -A "$1" && set -- "$1/copy" && {DESCRIBE_TREE}'
        if self.name == "upload":
            return self.in_sandbox("sh", "-c", script, "describe", f"/sandbox/up-{number}")
        return run_checked("sh", "-c", script, "describe", str(self.local / f"{number}"))

    def remove(self, number):
        run_checked("rm", "-rf", str(self.local / f"{number}"))
        self.in_sandbox("rm", "-rf", f"/sandbox/up-{number}")

    def in_sandbox(self, *words):
        return self.sandbox("sandbox", "exec", "-n", "a", "--", *words)


def run_checked(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture(params=["upload", "download"])
def direction(request, sandbox, tree, tmp_path):
    made = Direction(sandbox, request.param, tree, tmp_path)
    sandbox("sandbox", "cp", str(tree), "a:/sandbox/tree")
    return made


class FileDigests:
    """Which of the files that a copy has under their final names differ from the source."""

    SCRIPT = 'cd "$1" 2>/dev/null && find . -type f ! -path "*/.holdfast-*" -exec sha256sum {} + || true'

    def __init__(self, tree):
        self._expected = set(run_checked("sh", "-c", self.SCRIPT, "digests", str(tree)).splitlines())

    def partial(self, direction, number):
        if direction.name == "upload":
            words = ("sh", "-c", self.SCRIPT, "digests", f"/sandbox/up-{number}/copy")
            found = direction.in_sandbox(*words)
        else:
            target = str(direction.local / f"{number}" / "copy")
            found = run_checked("sh", "-c", self.SCRIPT, "digests", target)
        return set(found.splitlines()) - self._expected


def interrupt(process, delay, number):
    """Send a signal to a command after a time; return whether it was still running."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(delay)
        return False
    process.send_signal(number)
    process.wait(60)
    return True


def test_repeated_copy_is_not_nested(direction, tree):
    """The last moment at which a command can be killed is after its work."""
    direction.prepare(0)
    for _ in range(2):
        subprocess.run(direction.argv(0), env=direction.sandbox.environment, check=True, capture_output=True)
    expected = run_checked("sh", "-c", DESCRIBE_TREE, "describe", str(tree))
    assert direction.content(0) == f"copy\n{expected}"
    direction.remove(0)


class FileCopy:
    """A copy onto an existing file: 40 MB of `b` onto 40 MB of `a`."""

    size = 40 << 20

    def __init__(self, sandbox, direction, folder):
        self.sandbox, self.direction, self.local = sandbox, direction, folder / "file"
        self.remote = "/sandbox/replaced"
        self.commands = {
            "upload": [str(self.local), f"a:{self.remote}"],
            "download": [f"a:{self.remote}", str(self.local)],
        }

    def write(self, side, letter):
        script = f'head -c {self.size} /dev/zero | tr "\\0" {letter} > "$1"'
        if side == "local":
            run_checked("sh", "-c", script, "write", str(self.local))
        else:
            self.sandbox("sandbox", "exec", "-n", "a", "--", "sh", "-c", script, "write", self.remote)

    def content(self):
        """The letters of the target, and the size of all of them."""
        script = 'fold -w 1048576 "$1" | sort | uniq -c | cut -c 1-9'
        if self.direction == "download":
            return run_checked("sh", "-c", script, "read", str(self.local)).split()
        words = ("sandbox", "exec", "-n", "a", "--", "sh", "-c", script, "read", self.remote)
        return self.sandbox(*words).split()

    def start(self):
        return subprocess.Popen(
            self.sandbox.argv("sandbox", "cp", *self.commands[self.direction]),
            env=self.sandbox.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.mark.parametrize("direction", ["upload", "download"])
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_copy_onto_a_file_leaves_the_old_or_the_new_content(sandbox, direction, kills, tmp_path):
    copy = FileCopy(sandbox, direction, tmp_path)
    source, target = ("local", "remote") if direction == "upload" else ("remote", "local")
    copy.write(source, "b")
    copy.write(target, "a")
    whole = {letter: ["40", letter] for letter in "ab"}
    started = time.monotonic()
    copy.start().wait()
    duration = time.monotonic() - started
    assert copy.content()[1].startswith("b")
    for number in range(kills):
        copy.write(target, "a")
        while not interrupt(copy.start(), random.uniform(0.3, 0.95) * duration, signal.SIGKILL):
            copy.write(target, "a")
        count, letters = copy.content()
        assert [count, letters[0]] in whole.values(), f"kill {number}"


@pytest.mark.slow
def test_copy_converges_after_random_interruptions(direction, tree):
    seed = random.randrange(1 << 32)
    numbers = random.Random(seed)
    expected = run_checked("sh", "-c", DESCRIBE_TREE, "describe", str(tree))
    started = time.monotonic()
    direction.prepare("whole")
    subprocess.run(
        direction.argv("whole"), env=direction.sandbox.environment, check=True, capture_output=True
    )
    duration = time.monotonic() - started
    direction.remove("whole")
    interruptions, digests = 0, FileDigests(tree)
    for number in range(20):
        direction.prepare(number)
        wanted = interruptions + numbers.randint(1, MAX_INTERRUPTIONS)
        while interruptions < wanted:
            command = subprocess.Popen(
                direction.argv(number), env=direction.sandbox.environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            # Twice as often in the last third: the end of a copy has the most states.
            moment = numbers.choice((numbers.uniform(0, 1), numbers.uniform(0.66, 1.1))) * duration
            interruptions += interrupt(command, moment, numbers.choice((signal.SIGKILL, signal.SIGINT)))
            assert digests.partial(direction, number) == set(), f"copy {number}, seed {seed}"
        subprocess.run(
            direction.argv(number), env=direction.sandbox.environment, check=True, capture_output=True
        )
        # The script of a killed upload removes its own files a moment later.
        eventually(lambda n=number: direction.content(n).startswith("copy\nd "), seconds=30)
        assert direction.content(number) == f"copy\n{expected}", f"copy {number}, seed {seed}"
        direction.remove(number)
