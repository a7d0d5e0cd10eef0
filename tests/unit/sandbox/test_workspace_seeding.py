"""Filling a workspace from an image, by the very script that runs in pods, killed at many moments."""

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

import pytest

from holdfast.sandbox.workspace import DATA_DIR, SEED_SCRIPT

SHELLS = [
    pytest.param(words, marks=pytest.mark.skipif(shutil.which(words[0]) is None, reason="no such shell here"))
    for words in (["sh"], ["bash", "--posix"], ["busybox", "sh"])
]


MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path):
    """Room in memory where there is some: writing a disk's caches out is slow, and no part of these tests."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as made:
        yield Path(made)


@pytest.fixture
def image(folder):
    """What an image has in its /sandbox: all kinds of entries, and enough of them to be met in the middle."""
    root = folder / "image"
    root.mkdir(mode=0o750)
    for number in range(60):
        below = root / f"folder {number}"
        below.mkdir()
        (below / "file").write_bytes(os.urandom(20_000))
    (root / ".hidden").write_text("dot")
    (root / "..odd").write_text("two dots")
    (root / "line\nbreak").write_text("odd name")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o4751)
    (root / "locked").write_text("x")
    (root / "locked").chmod(0o400)
    (root / "empty").mkdir(mode=0o700)
    (root / "relative").symlink_to("folder 1/file")
    (root / "dangling").symlink_to("/nowhere/at/all")
    (root / "loop").symlink_to("loop")
    (root / "twin").hardlink_to(root / "run.sh")
    for path in [*root.rglob("*"), root]:
        os.utime(path, (1_000_000_000, 1_000_000_001), follow_symlinks=False)
    return root


@pytest.fixture
def claim(folder):
    made = folder / "claim"
    made.mkdir(mode=0o777)
    return made


def command(image, claim, shell=("sh",)):
    return [*shell, "-c", SEED_SCRIPT, "seed", str(image), str(claim)]


def start(image, claim, *, uid=None, shell=("sh",), **options):
    environment = {**os.environ, "HOLDFAST_POD_UID": uid or uuid.uuid4().hex}
    return subprocess.Popen(
        command(image, claim, shell), env=environment, start_new_session=True, stderr=subprocess.PIPE,
        text=True, **options,
    )  # fmt: skip


def seed(image, claim, **options):
    running = start(image, claim, **options)
    _, said = running.communicate(timeout=60)
    return running.returncode, said


def picture(root):
    """Everything that is to be kept: names, kinds, modes, times, owners, contents, links."""
    seen = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        what = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        seen[str(path.relative_to(root))] = (
            stat.filemode(status.st_mode), int(status.st_mtime), status.st_uid, status.st_gid, what,
        )  # fmt: skip
    return seen


def left_over(claim):
    return sorted(path.name for path in claim.iterdir() if path.name != DATA_DIR)


@pytest.mark.parametrize("shell", SHELLS)
def test_files_are_copied_with_attributes(image, claim, shell):
    assert seed(image, claim, shell=shell) == (0, "")
    data = claim / DATA_DIR
    assert picture(data) == picture(image)
    assert (data / "twin").stat().st_ino == (data / "run.sh").stat().st_ino
    assert stat.S_IMODE(data.stat().st_mode) & 0o777 == 0o777
    assert left_over(claim) == []


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("kind", ["empty", "missing"])
def test_image_without_files_gives_empty_workspace(folder, claim, kind, shell):
    source = folder / "source"
    if kind == "empty":
        source.mkdir()
    assert seed(source, claim, shell=shell) == (0, "")
    assert picture(claim / DATA_DIR) == {}
    assert left_over(claim) == []


def test_symlinked_directory_is_copied_not_linked(image, claim, folder):
    link = folder / "sandbox"
    link.symlink_to(image)
    assert seed(link, claim) == (0, "")
    assert picture(claim / DATA_DIR) == picture(image)


def test_later_start_changes_nothing(image, claim):
    seed(image, claim)
    data = claim / DATA_DIR
    (data / ".hidden").write_text("mine now")
    shutil.rmtree(data / "folder 1")
    (data / "more").write_text("new")
    before = picture(data)
    (image / "added").write_text("by a newer image")
    assert seed(image, claim) == (0, "")
    assert picture(data) == before


def test_emptied_workspace_stays_empty(image, claim):
    seed(image, claim)
    shutil.rmtree(claim / DATA_DIR)
    (claim / DATA_DIR).mkdir()
    seed(image, claim)
    assert picture(claim / DATA_DIR) == {}


def test_other_files_in_volume_are_left_alone(image, claim):
    (claim / "lost+found").mkdir()
    (claim / "note").write_text("somebody's")
    seed(image, claim)
    assert left_over(claim) == ["lost+found", "note"]
    assert (claim / "note").read_text() == "somebody's"


def test_leftovers_of_killed_seeding_are_removed(image, claim):
    for name in (".seeding.old", ".trash..seeding.older", ".trash.x"):
        (claim / name / "deep").mkdir(parents=True)
    seed(image, claim)
    assert picture(claim / DATA_DIR) == picture(image)
    assert left_over(claim) == []


def kill_after(image, claim, seconds, **options):
    """Start a seeding and SIGKILL all of it; return whether it was still running then."""
    running = start(image, claim, **options)
    try:
        running.wait(seconds)
        killed = False
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        killed = True
    running.communicate()
    return killed


def assert_whole_or_not_there(image, claim):
    data = claim / DATA_DIR
    if data.exists():
        assert picture(data) == picture(image)


def kill_at_many_moments(image, claim, moments):
    """Kill seedings at moments spread over their duration; return how many kills met a running one."""
    began = time.monotonic()
    seed(image, claim)
    whole_time = time.monotonic() - began
    met = 0
    for number in range(moments):
        shutil.rmtree(claim)
        claim.mkdir(mode=0o777)
        # Half of the seedings meet another kill in the second try, which may be another pod's.
        for part in (number, (number * 7) % moments)[: 1 + number % 2]:
            began = time.monotonic()
            killed = kill_after(image, claim, whole_time * part / moments)
            met += killed
            if not killed:  # the first seeding was slower than this one
                whole_time = min(whole_time, time.monotonic() - began)
            assert_whole_or_not_there(image, claim)
        assert seed(image, claim) == (0, "")
        assert picture(claim / DATA_DIR) == picture(image)
        assert left_over(claim) == []
    return met


def test_killed_seeding_is_complete_or_absent(image, claim):
    assert kill_at_many_moments(image, claim, moments=16) >= 8


@pytest.mark.slow
def test_killed_seeding_is_complete_or_absent_at_many_moments(image, claim):
    assert kill_at_many_moments(image, claim, moments=250) >= 125


def with_cp(folder, script):
    """An environment in which `cp` is another program."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "cp").write_text(f"#!/bin/sh\n{script}\n")
    (programs / "cp").chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOLDFAST_POD_UID": "u"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_terminated_copy_ends_immediately_and_next_one_is_complete(image, claim, folder, number):
    environment = with_cp(folder, 'mkdir "$3/half"; echo; exec tail -f /dev/null')
    running = subprocess.Popen(
        command(image, claim), env=environment, stdout=subprocess.PIPE, start_new_session=True
    )
    running.stdout.readline()
    assert (claim / ".seeding.u" / "half").exists()
    if number == signal.SIGTERM:
        running.send_signal(number)
    else:
        os.killpg(running.pid, number)
    assert running.wait(timeout=20) == (143 if number == signal.SIGTERM else -number)
    assert running.stdout.read() == b"", "the copy runs on"
    assert not (claim / DATA_DIR).exists()
    assert seed(image, claim) == (0, "")
    assert picture(claim / DATA_DIR) == picture(image)


def test_failed_copy_is_reported_and_leaves_no_workspace(image, claim, folder):
    environment = with_cp(folder, 'mkdir "$3/half"; echo "cp: no space left" >&2; exit 1')
    ended = subprocess.run(
        command(image, claim), env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "no space left" in ended.stderr
    assert "cannot seed the workspace" in ended.stderr
    assert list(claim.iterdir()) == []
    assert seed(image, claim) == (0, "")


def test_concurrent_seedings_leave_one_complete_workspace(image, claim):
    for _ in range(5):
        shutil.rmtree(claim)
        claim.mkdir(mode=0o777)
        running = [start(image, claim) for _ in range(3)]
        ended = [(one.communicate(timeout=60), one.returncode) for one in running]
        assert_whole_or_not_there(image, claim)
        assert seed(image, claim) == (0, ""), ended
        assert picture(claim / DATA_DIR) == picture(image)
