"""Flips and cuts anywhere in the store: never a traceback, damage is named, no step is skipped wrongly."""

from __future__ import annotations

import contextlib
import random
import shutil

import msgspec
import pytest

from holdfast.engine import SQLiteStore, Step, Workflow, absent, done
from holdfast.errors import StoreError
from holdfast.events import Bus, StoreDamaged

STEPS = 40


def flow(world, made):
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
def complete(tmp_path_factory):
    """A store in which every step is done: one closed in order, one left behind by a kill, WAL and all."""
    home = tmp_path_factory.mktemp("complete")
    flow(set(), []).run(store=SQLiteStore(home / "closed.db"))
    store = SQLiteStore(home / "work.db")
    flow(set(), []).run(store=store)
    store.open()
    found = store.load("w")
    store.commit("w", {name: msgspec.structs.replace(record, seconds=1.0) for name, record in found.items()})
    assert (home / "work.db-wal").stat().st_size > 0
    for suffix in ("", "-wal"):
        shutil.copy(home / f"work.db{suffix}", home / f"killed.db{suffix}")
    store.close()
    return home


def damage(rng, home, tmp_path):
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


def survives(rng, home, tmp_path):
    path = damage(rng, home, tmp_path)
    there = {f"step-{n:02}" for n in range(STEPS) if rng.random() < 0.5}
    world, made, told = set(there), [], []
    bus = Bus(lambda event: told.append(event) if isinstance(event, StoreDamaged) else None)
    with contextlib.suppress(StoreError):  # a reader is told, or sees nothing wrong; never a traceback
        SQLiteStore(path, readonly=True).open()
    outcome = flow(world, made).run(store=SQLiteStore(path), bus=bus)
    everything = {f"step-{n:02}" for n in range(STEPS)}
    assert world == everything
    assert everything - there <= set(made), "a step was skipped that its probe denies"
    assert set(made) == set(outcome.changed)
    assert len(made) == len(set(made))
    assert all(event.reason for event in told)
    assert flow(world, made).run(store=SQLiteStore(path), bus=bus).changed == ()
    copies = {
        str(copy) for copy in tmp_path.glob("s.db.damaged-*") if not copy.name.endswith(("-wal", "-shm"))
    }
    assert copies == {event.aside for event in told}, "set aside without a word, or told of nothing"
    return bool(told)


def many(count, seed, home, tmp_path):
    detected = 0
    for number in range(count):
        place = tmp_path / f"{number}"
        place.mkdir()
        detected += survives(random.Random(f"{seed} {number}"), home, place)
        shutil.rmtree(place)
    assert detected > count // 5


def test_damaged_at_random_places(complete, tmp_path):
    many(60, 1, complete, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_damaged_at_five_hundred_random_places(complete, tmp_path):
    many(500, 2, complete, tmp_path)
