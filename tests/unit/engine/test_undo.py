"""Undo: in reverse, resumable, under one lock from the first look on."""

from __future__ import annotations

import sqlite3
import threading

import pytest

from holdfast.engine import FileLock, Holder, Step, Workflow, absent, done
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


class Reserved(Undoable):
    """Its probe cannot see what it returned."""

    def run(self, ctx):
        super().run(ctx)
        return {"id": self.name}


class ReadsId(Undoable):
    """Everything that it asks and does goes by the id of another step."""

    def probe(self, ctx):
        assert ctx.result("reserve") == {"id": "reserve"}
        return super().probe(ctx)

    def undo(self, ctx, result):
        assert ctx.result("reserve") == {"id": "reserve"}
        super().undo(ctx, result)


def halfway(world: World) -> Workflow:
    """`reserve` is taken back before `stuck` fails, and `upload` must still be able to ask for its id."""

    class Stuck(Undoable):
        def undo(self, ctx, result):
            if "jammed" in world.things:
                raise TemporaryError("jammed")
            super().undo(ctx, result)

    return Workflow(
        "w",
        [
            Reserved(world, "reserve"),
            ReadsId(world, "upload", ("reserve",)),
            Stuck(world, "stuck"),
            Undoable(world, "after-stuck", ("stuck",)),
        ],
        workers=1,
    )


def test_an_undo_that_ended_halfway_goes_on_with_results_of_what_is_gone_already(store, world: World):
    flow = halfway(world)
    flow.run(store=store)
    world.things["jammed"] = True
    world.made.clear()
    with pytest.raises(TemporaryError, match="jammed"):
        flow.undo(store=store)
    assert world.made == ["undo upload", "undo after-stuck", "undo reserve"]
    del world.things["jammed"]
    flow.undo(store=store)
    assert world.made[3:] == ["undo stuck"]
    assert world.things == {}
    store.open()
    assert store.load("w") == {}


def test_a_run_after_half_an_undo_does_what_was_taken_back(store, world: World):
    """Without a probe the record is all there is: it must be gone as soon as the effect is."""

    def undo(ctx, result):
        world.made.append("undo mail")

    jam = {"jammed": True}

    def jammed(ctx, result):
        if jam:
            raise TemporaryError("jammed")

    first = Step("first", repeat="safe", run=lambda ctx: None, undo=jammed)
    mail = Step(
        "mail",
        needs=["first"],
        repeat="at-least-once",
        run=lambda ctx: world.made.append("mail"),
        undo=undo,
    )
    flow = Workflow("w", [first, mail])
    flow.run(store=store)
    with pytest.raises(TemporaryError):
        flow.undo(store=store)
    with pytest.raises(TemporaryError):
        flow.undo(store=store)
    assert world.made == ["mail", "undo mail"]  # and not a second time
    assert flow.run(store=store).changed == ("mail",)
    jam.clear()
    flow.undo(store=store)
    assert world.made == ["mail", "undo mail", "mail", "undo mail"]
    store.open()
    assert store.load("w") == {}


def test_undo_of_what_was_never_done_has_nothing_to_do(store, world: World):
    flow = halfway(world)
    for _ in range(2):
        outcome = flow.undo(store=store)
        assert outcome.changed == ()
        assert outcome.skipped["undo-upload"].startswith("nothing to undo: it is not recorded")
    assert world.made == []


def test_undo_says_so_when_nothing_is_recorded_and_nobody_can_be_asked(store):
    step = Step("mail", repeat="safe", run=lambda ctx: None, undo=lambda ctx, result: None)
    with pytest.raises(WorkflowError, match="there is nothing to undo"):
        Workflow("w", [step]).undo(store=store)


def test_undo_without_records_goes_by_what_the_probes_bring(world: World):
    """The store is lost: the id is to be seen in the world, and so is what was done under it."""
    taken = []

    class Seen(Undoable):
        def probe(self, ctx):
            return done("there", result={"id": 7}) if self.name in world.things else absent()

        def undo(self, ctx, result):
            taken.append((self.name, result))
            super().undo(ctx, result)

    class ById(Seen):
        def probe(self, ctx):
            assert ctx.result("reserve") == {"id": 7}
            return super().probe(ctx)

    world.things.update(reserve=1, upload=1)
    Workflow("w", [Seen(world, "reserve"), ById(world, "upload", ("reserve",))]).undo()
    assert taken == [("upload", {"id": 7}), ("reserve", {"id": 7})]


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


@pytest.mark.parametrize("listens", [True, False])
def test_undo_tells_of_damage(store, lock, world: World, caplog, listens):
    flow = Workflow("w", [Undoable(world, "a")])
    flow.run(store=store, lock=lock)
    con = sqlite3.connect(store.path, isolation_level=None)
    con.execute("UPDATE steps SET digest = x'00'")
    con.close()
    outcome = flow.undo(store=store, lock=lock, bus=world.bus if listens else None)
    assert [event.lost for event in world.of(StoreDamaged)] == ([("a",)] if listens else [])
    assert [record.message.endswith("lost: a") for record in caplog.records] == ([] if listens else [True])
    assert [event.lost for event in outcome.damage] == [("a",)]


def test_undo_can_be_stopped(store, world: World):
    flow = Workflow("w", [Undoable(world, "a")])
    flow.run(store=store)
    stop = threading.Event()
    stop.set()
    with pytest.raises(CancelledError):
        flow.undo(store=store, stop=stop)
    assert world.made == ["a"]
