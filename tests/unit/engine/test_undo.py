"""Undo: in reverse, resumable, under one lock from the first look on."""

from __future__ import annotations

import sqlite3
import threading

import pytest

from holdfast.engine import FileLock, Holder, Workflow
from holdfast.errors import CancelledError, LockedError, TemporaryError, WorkflowError
from holdfast.events import StoreDamaged

from .conftest import Make, World


class Undoable(Make):
    def undo(self, ctx, result):
        self.world.made.append(f"undo {self.name}")
        self.world.things.pop(self.name, None)


def test_undo_takes_things_back_in_reverse_and_forgets_them(store, world: World):
    class Undoable(Make):
        def undo(self, ctx, result):
            world.made.append(f"undo {self.name} {result['colour']}")
            world.things.pop(self.name, None)

    flow = Workflow("w", [Undoable(world, "a"), Undoable(world, "b", ("a",)), Make(world, "c", ("b",))])
    flow.run(store=store)
    world.made.clear()
    flow.undo(store=store)
    assert world.made == ["undo b grey", "undo a grey"]
    world.made.clear()
    assert sorted(flow.run(store=store).changed) == ["a", "b"]


def test_undo_goes_on_after_a_failure(store, world: World):
    class Undoable(Make):
        def undo(self, ctx, result):
            if self.name == "a" and "stuck" in world.things:
                raise TemporaryError("stuck")
            world.made.append(f"undo {self.name}")
            world.things.pop(self.name, None)

    flow = Workflow("w", [Undoable(world, "a"), Undoable(world, "b", ("a",))])
    flow.run(store=store)
    world.things["stuck"] = True
    world.made.clear()
    with pytest.raises(TemporaryError):
        flow.undo(store=store)
    del world.things["stuck"]
    flow.undo(store=store)
    assert world.made == ["undo b", "undo a"]


def test_undo_does_not_touch_the_store_beside_a_live_run(store, lock, world: World, monkeypatch):
    flow = Workflow("w", [Undoable(world, "a")])
    flow.run(store=store, lock=lock)
    other = FileLock(lock.path)
    other.acquire(Holder.me("up"))
    opened = []
    monkeypatch.setattr(type(store), "open", lambda self, report=None: opened.append(self))
    with pytest.raises(LockedError, match="another run is at work"):
        flow.undo(store=store, lock=lock)
    assert opened == []
    other.release()


def test_undo_lets_the_lock_go_whatever_happens(store, lock, world: World):
    with pytest.raises(WorkflowError, match="can be undone"):
        Workflow("w", [Make(world, "a")]).undo(store=store, lock=lock)
    flow = Workflow("w", [Undoable(world, "a")])
    flow.run(store=store, lock=lock)
    flow.undo(store=store, lock=lock)
    assert world.made == ["a", "undo a"]
    lock.acquire(Holder.me())
    lock.release()


def test_undo_tells_of_damage(store, lock, world: World):
    flow = Workflow("w", [Undoable(world, "a")])
    flow.run(store=store, lock=lock)
    con = sqlite3.connect(store.path, isolation_level=None)
    con.execute("UPDATE steps SET digest = x'00'")
    con.close()
    flow.undo(store=store, lock=lock, bus=world.bus)
    assert [event.lost for event in world.of(StoreDamaged)] == [("a",)]


def test_undo_can_be_stopped(store, world: World):
    flow = Workflow("w", [Undoable(world, "a")])
    flow.run(store=store)
    stop = threading.Event()
    stop.set()
    with pytest.raises(CancelledError):
        flow.undo(store=store, stop=stop)
    assert world.made == ["a"]
