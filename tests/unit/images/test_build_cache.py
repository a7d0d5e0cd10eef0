"""The build cache: complete stages only, one build at a time, and errors for full disks."""

import errno
import os
import subprocess
import sys

import pytest

from holdfast.errors import DiskFullError, LockedError
from holdfast.images.build_cache import BuildCache


def test_finished_stage_is_found_by_key(tmp_path):
    cache = BuildCache(tmp_path)
    with cache.build_stage("stage", "k1") as folder:
        (folder / "f").write_text("x")
    assert (cache.find("stage", "k1") / "f").read_text() == "x"
    assert cache.find("stage", "k2") is None


def test_interrupted_stage_leaves_nothing(tmp_path):
    cache = BuildCache(tmp_path)

    def interrupted():
        with cache.build_stage("stage", "k") as folder:
            (folder / "f").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert cache.find("stage", "k") is None
    assert list((tmp_path / "stage").iterdir()) == []


def test_leftovers_of_killed_build_are_removed(tmp_path):
    cache = BuildCache(tmp_path)
    leftover = tmp_path / "stage" / ".building-k-1"
    leftover.mkdir(parents=True)
    with cache.lock():
        assert not leftover.exists()


def test_full_disk_is_reported(tmp_path):
    with pytest.raises(DiskFullError) as caught, BuildCache(tmp_path).build_stage("stage", "k"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.exit_code == 3


def test_only_two_latest_versions_of_stage_are_kept(tmp_path):
    cache = BuildCache(tmp_path)
    for number in range(4):
        with cache.build_stage("stage", f"k{number}") as folder:
            os.utime(folder, (number, number))
    assert sorted(path.name for path in (tmp_path / "stage").iterdir()) == ["k2", "k3"]


HOLDER = """
import sys
from pathlib import Path
from holdfast.images.build_cache import BuildCache
with BuildCache(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_concurrent_build_names_lock_holder(tmp_path):
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=str(other.pid)), BuildCache(tmp_path).lock():
            pass
        other.kill()
    with BuildCache(tmp_path).lock():
        pass


def test_stage_is_on_disk_before_and_after_its_rename(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def record(descriptor):
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))  # noqa: PTH115
        fsync(descriptor)

    with BuildCache(tmp_path).build_stage("stage", "k") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "layer.tar").write_text("x")
        monkeypatch.setattr(os, "fsync", record)
    unfinished = f"stage/{folder.name}"
    assert set(synced[:-1]) == {unfinished, f"{unfinished}/sub", f"{unfinished}/sub/layer.tar"}
    assert synced[-1] == "stage"
