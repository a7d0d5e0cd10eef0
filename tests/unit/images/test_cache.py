"""The build cache: whole stages or none, one build at a time, full disks said as such."""

import errno
import os
import subprocess
import sys

import pytest

from holdfast.errors import DiskFullError, LockedError
from holdfast.images.cache import Cache


def test_a_finished_stage_is_found_under_its_key(tmp_path):
    cache = Cache(tmp_path)
    with cache.building("stage", "k1") as folder:
        (folder / "f").write_text("x")
    assert (cache.find("stage", "k1") / "f").read_text() == "x"
    assert cache.find("stage", "k2") is None


def test_an_interrupted_stage_leaves_nothing(tmp_path):
    cache = Cache(tmp_path)

    def interrupted():
        with cache.building("stage", "k") as folder:
            (folder / "f").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert cache.find("stage", "k") is None
    assert list((tmp_path / "stage").iterdir()) == []


def test_what_a_killed_build_left_is_cleared_by_the_next(tmp_path):
    cache = Cache(tmp_path)
    leftover = tmp_path / "stage" / ".building-k-1"
    leftover.mkdir(parents=True)
    with cache.locked():
        assert not leftover.exists()


def test_a_full_disk_is_said_as_such(tmp_path):
    with pytest.raises(DiskFullError) as caught, Cache(tmp_path).building("stage", "k"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.exit_code == 3


def test_only_the_last_two_versions_of_a_stage_stay(tmp_path):
    cache = Cache(tmp_path)
    for number in range(4):
        with cache.building("stage", f"k{number}") as folder:
            os.utime(folder, (number, number))
    assert sorted(path.name for path in (tmp_path / "stage").iterdir()) == ["k2", "k3"]


HOLDER = """
import sys
from pathlib import Path
from holdfast.images.cache import Cache
with Cache(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_build_is_told_who_is_at_work(tmp_path):
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=str(other.pid)), Cache(tmp_path).locked():
            pass
        other.kill()
    with Cache(tmp_path).locked():
        pass
