"""A store on a disk that is really full, really read-only, and well again."""

from __future__ import annotations

import subprocess

import pytest

from holdfast.engine import FileLock, Holder, SQLiteStore, Step, Workflow
from holdfast.errors import StoreError, StoreFullError
from holdfast.events import Bus, StoreDamaged


def flow(made, size=20_000):
    def step(number):
        def run(ctx):
            made.append(number)
            return "x" * size

        return Step(f"s{number}", needs=[f"s{number - 1}"] if number else [], run=run, repeat="safe")

    return Workflow("w", [step(number) for number in range(12)])


def test_a_disk_that_fills_up_stops_the_run_and_loses_nothing(small_disk):
    made: list[int] = []
    store = SQLiteStore(small_disk / "state.db")
    with pytest.raises(StoreFullError, match="would not take another record") as caught:
        flow(made).run(store=store)
    assert caught.value.exit_code == 3
    assert 0 < len(made) < 12
    done_before = len(made) - 1  # the last one's outcome found no room
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    made.clear()
    flow(made).run(store=SQLiteStore(small_disk / "state.db"))
    assert made[0] in {done_before, done_before + 1}
    assert made[-1] == 11


def test_a_disk_that_is_full_already_is_told_before_any_effect(small_disk):
    (small_disk / "ballast").write_bytes(b"x" * 190 * 1024)
    made: list[int] = []
    with pytest.raises(StoreFullError):
        flow(made).run(store=SQLiteStore(small_disk / "state.db"))
    assert made == []
    (small_disk / "ballast").unlink()
    flow(made, size=10).run(store=SQLiteStore(small_disk / "state.db"))
    assert len(made) == 12


@pytest.mark.parametrize("existing", [True, False])
def test_a_read_only_disk_is_told_before_any_effect(small_disk, existing):
    made: list[int] = []
    if existing:
        flow(made, size=10).run(store=SQLiteStore(small_disk / "state.db"))
        made.clear()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreError) as caught:
        flow(made, size=10).run({"changed": True}, store=SQLiteStore(small_disk / "state.db"))
    assert caught.value.hint
    assert made == []
    assert not isinstance(caught.value, StoreFullError)
    if existing:
        reader = SQLiteStore(small_disk / "state.db", readonly=True)
        reader.open()
        assert len(reader.runs()) == 1
        reader.close()


@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk_leaves_the_lock_free(small_disk, there):
    """Holder and store share a disk: the first that finds no room says so, and nobody is kept out by it."""
    made: list[int] = []
    lock = FileLock(small_disk / "lock")
    if there:
        lock.acquire(Holder.me())
        lock.release()
    fill(small_disk)
    for _ in range(2):
        with pytest.raises(StoreFullError) as caught:
            flow(made).run(store=SQLiteStore(small_disk / "state.db"), lock=lock)
        assert caught.value.hint
    assert made == []
    (small_disk / "ballast").unlink()
    other = FileLock(small_disk / "lock")
    other.acquire(Holder.me())
    other.release()
    flow(made, size=10).run(store=SQLiteStore(small_disk / "state.db"), lock=lock)
    assert len(made) == 12


def test_a_disk_too_full_to_salvage_a_damaged_store_loses_nothing(small_disk):
    made: list[int] = []
    path, told = small_disk / "state.db", []
    flow(made, size=10).run(store=SQLiteStore(path))
    data = bytearray(path.read_bytes())
    data[60:64] = b"oops"  # the version in the header: every row can be saved
    path.write_bytes(data)
    fill(small_disk)
    made.clear()
    with pytest.raises(StoreFullError):
        flow(made, size=10).run(store=SQLiteStore(path))
    (small_disk / "ballast").unlink()
    bus = Bus(lambda event: told.append(event) if isinstance(event, StoreDamaged) else None)
    flow(made, size=10).run(store=SQLiteStore(path), bus=bus)
    assert made == []
    assert [event.kept for event in told] == [12]


def fill(place):
    with (place / "ballast").open("wb", buffering=0) as ballast:
        try:
            while ballast.write(b"x" * 4096):
                pass
        except OSError:
            return
