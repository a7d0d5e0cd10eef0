"""A store on a full disk and on a read-only disk, and its recovery."""

from __future__ import annotations

import subprocess

import pytest

from holdfast.errors import StoreError, StoreFullError
from holdfast.events import EventBus, StoreDamaged
from holdfast.workflow import FileLock, LockHolder, SQLiteStore, Step, Workflow


def make_workflow(made, size=20_000):
    def step(number):
        def run(ctx):
            made.append(number)
            return "x" * size

        return Step(f"s{number}", needs=[f"s{number - 1}"] if number else [], run=run, repeat="safe")

    return Workflow("w", [step(number) for number in range(12)])


def test_disk_filling_up_stops_run_without_losing_records(small_disk):
    made: list[int] = []
    store = SQLiteStore(small_disk / "state.db")
    with pytest.raises(StoreFullError, match="cannot be extended") as caught:
        make_workflow(made).run(store=store)
    assert caught.value.exit_code == 3
    assert 0 < len(made) < 12
    done_before = len(made) - 1  # the last one's outcome found no room
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    made.clear()
    make_workflow(made).run(store=SQLiteStore(small_disk / "state.db"))
    assert made[0] in {done_before, done_before + 1}
    assert made[-1] == 11


def test_full_disk_is_reported_before_any_effect(small_disk):
    (small_disk / "ballast").write_bytes(b"x" * 190 * 1024)
    made: list[int] = []
    with pytest.raises(StoreFullError):
        make_workflow(made).run(store=SQLiteStore(small_disk / "state.db"))
    assert made == []
    (small_disk / "ballast").unlink()
    make_workflow(made, size=10).run(store=SQLiteStore(small_disk / "state.db"))
    assert len(made) == 12


@pytest.mark.parametrize("existing", [True, False])
def test_read_only_disk_is_reported_before_any_effect(small_disk, existing):
    made: list[int] = []
    if existing:
        make_workflow(made, size=10).run(store=SQLiteStore(small_disk / "state.db"))
        made.clear()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreError) as caught:
        make_workflow(made, size=10).run({"changed": True}, store=SQLiteStore(small_disk / "state.db"))
    assert caught.value.hint
    assert made == []
    assert not isinstance(caught.value, StoreFullError)
    if existing:
        reader = SQLiteStore(small_disk / "state.db", readonly=True)
        reader.open()
        assert len(reader.runs()) == 1
        reader.close()


@pytest.mark.parametrize("there", [True, False])
def test_full_disk_releases_lock(small_disk, there):
    """Lock file and store share a disk: the first failed write is reported, and the lock is released."""
    made: list[int] = []
    lock = FileLock(small_disk / "lock")
    if there:
        lock.acquire(LockHolder.current_process())
        lock.release()
    fill_disk(small_disk)
    for _ in range(2):
        with pytest.raises(StoreFullError) as caught:
            make_workflow(made).run(store=SQLiteStore(small_disk / "state.db"), lock=lock)
        assert caught.value.hint
    assert made == []
    (small_disk / "ballast").unlink()
    other = FileLock(small_disk / "lock")
    other.acquire(LockHolder.current_process())
    other.release()
    make_workflow(made, size=10).run(store=SQLiteStore(small_disk / "state.db"), lock=lock)
    assert len(made) == 12


def test_disk_too_full_to_replace_damaged_store(small_disk):
    """The damaged file stays in place until there is room for a new one."""
    made: list[int] = []
    path, told = small_disk / "state.db", []
    make_workflow(made, size=10).run(store=SQLiteStore(path))
    data = bytearray(path.read_bytes())
    data[60:64] = b"oops"  # the version in the header
    path.write_bytes(data)
    fill_disk(small_disk)
    made.clear()
    with pytest.raises(StoreFullError):
        make_workflow(made, size=10).run(store=SQLiteStore(path))
    assert path.read_bytes() == data
    assert made == []
    (small_disk / "ballast").unlink()
    bus = EventBus(lambda event: told.append(event) if isinstance(event, StoreDamaged) else None)
    make_workflow(made, size=10).run(store=SQLiteStore(path), bus=bus)
    assert len(made) == 12
    assert [len(event.lost) for event in told] == [12]


def fill_disk(place):
    with (place / "ballast").open("wb", buffering=0) as ballast:
        try:
            while ballast.write(b"x" * 4096):
                pass
        except OSError:
            return
