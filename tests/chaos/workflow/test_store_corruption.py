"""Random bit flips and truncations of the store: damage is reported and no step is skipped wrongly."""

from __future__ import annotations

import contextlib
import random
import shutil

import msgspec
import pytest

from holdfast.errors import StoreError
from holdfast.events import EventBus, StoreDamaged
from holdfast.workflow import SQLiteStore, Step, Workflow, absent, done

STEPS = 40


def make_workflow(world, made):
    """Half of the effects are there, whatever the store says."""

    def step(number):
        name = f"step-{number:02}"

        def run(ctx):
            world.add(name)
            made.append(name)
            return {"name": name, "padding": "x" * 50}

        return Step(
            name,
            needs=[f"step-{number - 1:02}"] if number % 7 else [],
            inputs={"n": number},
            probe=lambda ctx: done("there") if name in world else absent("not there"),
            run=run,
        )

    return Workflow("w", [step(number) for number in range(STEPS)])


@pytest.fixture(scope="module")
def finished_stores(tmp_path_factory):
    """A store in which every step is done: one closed in order, one left behind by a kill, WAL and all."""
    home = tmp_path_factory.mktemp("complete")
    make_workflow(set(), []).run(store=SQLiteStore(home / "closed.db"))
    store = SQLiteStore(home / "work.db")
    make_workflow(set(), []).run(store=store)
    store.open()
    found = store.load("w")
    store.commit("w", {name: msgspec.structs.replace(record, seconds=1.0) for name, record in found.items()})
    assert (home / "work.db-wal").stat().st_size > 0
    for suffix in ("", "-wal"):
        shutil.copy(home / f"work.db{suffix}", home / f"killed.db{suffix}")
    store.close()
    return home


def corrupt_file(rng, home, tmp_path):
    """Copy a store, and flip bits or cut one of its files at a random place."""
    kind = rng.choice(["closed", "killed"])
    files = [suffix for suffix in ("", "-wal") if (home / f"{kind}.db{suffix}").exists()]
    for suffix in files:
        shutil.copy(home / f"{kind}.db{suffix}", tmp_path / f"s.db{suffix}")
    victim = tmp_path / f"s.db{rng.choice(files)}"
    data = bytearray(victim.read_bytes())
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    else:
        for _ in range(rng.choice([1, 1, 1, 8, 64])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    victim.write_bytes(data)
    return tmp_path / "s.db"


def assert_recovers(rng, home, tmp_path):
    path = corrupt_file(rng, home, tmp_path)
    there = {f"step-{n:02}" for n in range(STEPS) if rng.random() < 0.5}
    world, made, told = set(there), [], []
    bus = EventBus(lambda event: told.append(event) if isinstance(event, StoreDamaged) else None)
    with contextlib.suppress(StoreError):  # no other error
        SQLiteStore(path, readonly=True).open()
    outcome = make_workflow(world, made).run(store=SQLiteStore(path), bus=bus)
    everything = {f"step-{n:02}" for n in range(STEPS)}
    assert world == everything
    assert everything - there <= set(made), "a step was skipped that its probe denies"
    assert set(made) == set(outcome.changed)
    assert len(made) == len(set(made))
    assert all(event.reason for event in told)
    assert make_workflow(world, made).run(store=SQLiteStore(path), bus=bus).changed == ()
    copies = {
        str(copy) for copy in tmp_path.glob("s.db.damaged-*") if not copy.name.endswith(("-wal", "-shm"))
    }
    assert copies == {event.backup_path for event in told}, (
        "a set-aside was not reported, or a report has no file"
    )
    return bool(told)


def assert_recovers_many(count, seed, home, tmp_path):
    detected = 0
    for number in range(count):
        place = tmp_path / f"{number}"
        place.mkdir()
        detected += assert_recovers(random.Random(f"{seed} {number}"), home, place)
        shutil.rmtree(place)
    assert detected > count // 5


def test_recovers_from_random_corruption(finished_stores, tmp_path):
    assert_recovers_many(60, 1, finished_stores, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_recovers_from_five_hundred_random_corruptions(finished_stores, tmp_path):
    assert_recovers_many(500, 2, finished_stores, tmp_path)
