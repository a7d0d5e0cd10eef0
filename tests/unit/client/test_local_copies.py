"""Records of downloaded directories: which directory a repeated download may continue."""

import os

import pytest

from holdfast.client import local_copies
from holdfast.client.local_copies import LocalCopies

COPIES = LocalCopies("dev", "box", "/sandbox/out")


@pytest.fixture
def directory(tmp_path):
    """A directory with a file, open."""
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "file").touch()
    descriptor = os.open(tmp_path / "copy", os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_only_recorded_and_empty_directories_are_mergeable(directory, tmp_path):
    assert not COPIES.is_mergeable(directory)
    COPIES.add(directory)
    assert COPIES.is_mergeable(directory)
    (tmp_path / "empty").mkdir()
    empty = os.open(tmp_path / "empty", os.O_RDONLY)
    assert COPIES.is_mergeable(empty)
    os.close(empty)


@pytest.mark.parametrize(
    "other", [("qa", "box", "/sandbox/out"), ("dev", "b", "/sandbox/out"), ("dev", "box", "/sandbox")]
)
def test_record_is_for_one_source(directory, other):
    COPIES.add(directory)
    assert not LocalCopies(*other).is_mergeable(directory)


def test_old_records_are_removed(directory, own_home, monkeypatch):
    monkeypatch.setattr(local_copies, "_MAX_RECORDS", 3)
    sources = [LocalCopies("dev", "box", f"/{number}") for number in range(5)]
    for number, source in enumerate(sources):
        source.add(directory)
        os.utime(source._record(directory), (number, number))
    assert [source.is_mergeable(directory) for source in sources] == [False, False, True, True, True]


def test_unwritable_home_does_not_prevent_a_copy(directory, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", "/dev/null/home")
    COPIES.add(directory)
    assert not COPIES.is_mergeable(directory)
