"""The SQLite store: durable, private, readable by others, refused when newer, set aside when damaged."""

from __future__ import annotations

import random
import sqlite3
import stat

import pytest

from holdfast.engine import FileLock, Holder, SQLiteStore, Step, Workflow, files, schema
from holdfast.engine.record import Record, RunRecord
from holdfast.errors import StoreError, StoreFullError, StoreVersionError
from holdfast.events import StoreDamaged

from .conftest import Make, World


def filled(path, count=3):
    store = SQLiteStore(path)
    store.open()
    store.begin(RunRecord(id="r1", workflow="w", command="w"))
    store.commit("w", {f"s{i}": Record(state="done", run="r1", note=f"note {i}") for i in range(count)})
    store.close()
    return store


def test_what_is_written_is_read_back(store):
    store.open()
    record = Record(
        state="done", run="r", fingerprint="f", inputs={"a": "b"}, reads={"c": "d"}, tries=2, note="é"
    )
    store.commit("w", {"x": record, "y": Record(state="intent", run="r")})
    store.commit("other", {"x": Record(state="failed", run="r", error="e")})
    store.commit("w", {}, forget=["y"])
    store.close()
    store.open()
    assert store.load("w") == {"x": record}
    assert store.load("other")["x"].error == "e"


def at_length(tmp_path, length):
    path = tmp_path.resolve()
    while length - len(str(path)) > 200:
        path /= "x" * 100
    return path / ("s" * (length - len(str(path)) - 1))


@pytest.mark.parametrize("length", [471, 504, 505, 720, 4090, 9000])
def test_a_path_that_is_too_long_is_one_clear_error(tmp_path, world: World, length):
    with pytest.raises(StoreError, match=f"too long: {length} bytes") as caught:
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(at_length(tmp_path, length)))
    assert "470" in caught.value.hint
    assert world.made == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["store", "reader", "lock"])
def test_a_path_that_no_file_system_takes_is_one_clear_error(tmp_path, what):
    path = tmp_path / "a\0b"
    attempts = {
        "store": SQLiteStore(path).open,
        "reader": SQLiteStore(path, readonly=True).open,
        "lock": lambda: FileLock(path).acquire(Holder.me()),
    }
    with pytest.raises(StoreError, match="null"):
        attempts[what]()


def test_the_longest_path_has_room_for_what_is_put_beside_it(tmp_path):
    path, events = at_length(tmp_path, 470), []
    filled(path)
    with sqlite3.connect(path) as con:
        con.execute("UPDATE steps SET digest = x'00' WHERE name = 's1'")
    con.close()
    assert set(damaged(path, events)) == {"s0", "s2"}
    assert events[0].lost == ("s1",)


def test_a_store_that_sqlite_cannot_make_is_one_clear_error(tmp_path, world: World, monkeypatch):
    """Whatever else its library has against a path."""
    monkeypatch.setattr(files, "_LONGEST_PATH", 10_000)
    with pytest.raises(StoreError, match="unable to open database file"):
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(at_length(tmp_path, 600)))
    assert world.made == []


def test_a_reader_is_told_of_a_salvage_that_was_cut_off(tmp_path):
    """Between the damaged file that was put by and the new one in its place there is no store at all."""
    filled(tmp_path / "s.db")
    files.put_by(tmp_path / "s.db")
    with pytest.raises(StoreError, match="a run died before it had saved") as caught:
        SQLiteStore(tmp_path / "s.db", readonly=True).open()
    assert "The next run goes on" in caught.value.hint
    events: list[StoreDamaged] = []
    assert set(damaged(tmp_path / "s.db", events)) == {"s0", "s1", "s2"}
    assert [event.kept for event in events] == [3]


def test_private_from_the_first_moment_and_made_private_again(store):
    store.open()
    store.commit("w", {"x": Record(state="done", run="r")})
    for path in store.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    store.close()
    store.path.chmod(0o644)
    store.open()
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_the_pragmas_that_make_it_durable(store):
    store.open()
    assert store._con.execute("PRAGMA journal_mode").fetchone()[0] == b"wal"
    assert store._con.execute("PRAGMA synchronous").fetchone()[0] == 2


def test_readable_while_a_run_writes(store):
    store.open()
    store.begin(RunRecord(id="r1", workflow="w", command="up"))
    store._con.execute("BEGIN IMMEDIATE")
    reader = SQLiteStore(store.path, readonly=True)
    reader.open()
    assert [run.id for run in reader.runs()] == ["r1"]
    store._con.execute("COMMIT")
    store.commit("w", {"x": Record(state="done", run="r1")})
    assert set(reader.load("w")) == {"x"}


def test_a_reader_makes_and_changes_nothing(tmp_path):
    reader = SQLiteStore(tmp_path / "none" / "s.db", readonly=True)
    with pytest.raises(StoreError, match="there is no store at"):
        reader.open()
    assert list(tmp_path.iterdir()) == []


def test_a_newer_store_is_refused_and_left_alone(tmp_path, monkeypatch, world: World):
    with monkeypatch.context() as newer:
        newer.setattr(schema, "VERSION", 9)
        filled(tmp_path / "s.db")
    before = (tmp_path / "s.db").read_bytes()
    with pytest.raises(StoreVersionError, match=r"has version 9.*up to 1") as caught:
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(tmp_path / "s.db"))
    assert caught.value.exit_code == 3
    assert world.made == []
    assert (tmp_path / "s.db").read_bytes() == before


def test_an_older_store_is_migrated_in_one_transaction(tmp_path, monkeypatch):
    filled(tmp_path / "s.db")
    monkeypatch.setattr(schema, "VERSION", 2)
    monkeypatch.setattr(schema, "MIGRATIONS", {1: ("CREATE TABLE extra (x)", "INSERT INTO extra VALUES (1)")})
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    assert set(store.load("w")) == {"s0", "s1", "s2"}
    assert store._con.execute("SELECT x FROM extra").fetchall() == [(1,)]
    assert store._con.execute("PRAGMA user_version").fetchone() == (2,)
    store.close()
    SQLiteStore(tmp_path / "s.db").open()


def test_a_store_that_cannot_be_migrated_is_set_aside_with_its_rows_kept(tmp_path, monkeypatch):
    filled(tmp_path / "s.db")
    monkeypatch.setattr(schema, "VERSION", 2)
    monkeypatch.setattr(
        schema, "MIGRATIONS", {1: ("CREATE TABLE extra (x)", "INSERT INTO nowhere VALUES (1)")}
    )
    events: list[StoreDamaged] = []
    store = SQLiteStore(tmp_path / "s.db")
    store.open(events.append)
    assert "nowhere" in events[0].reason
    assert set(store.load("w")) == {"s0", "s1", "s2"}


def damaged(path, events):
    store = SQLiteStore(path)
    store.open(events.append)
    return store.load("w")


def test_an_empty_file_is_damage_and_is_named(tmp_path):
    filled(tmp_path / "s.db")
    (tmp_path / "s.db").write_bytes(b"")
    events: list[StoreDamaged] = []
    assert damaged(tmp_path / "s.db", events) == {}
    assert events[0].kept == 0
    assert "damaged" in events[0].aside


def test_a_row_that_was_changed_is_not_believed_and_the_others_are_kept(tmp_path):
    filled(tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as con:
        con.execute("""UPDATE steps SET body = '{"state":"done","run":"evil"}' WHERE name = 's1'""")
    con.close()
    events: list[StoreDamaged] = []
    assert set(damaged(tmp_path / "s.db", events)) == {"s0", "s2"}
    assert events[0].lost == ("s1",)
    assert events[0].kept == 2
    assert "s1" in events[0].reason


def test_a_row_moved_to_another_name_is_not_believed(tmp_path):
    filled(tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as con:
        con.execute("UPDATE steps SET name = 's9' WHERE name = 's1'")
    con.close()
    events: list[StoreDamaged] = []
    assert set(damaged(tmp_path / "s.db", events)) == {"s0", "s2"}


@pytest.mark.parametrize(
    "statement", ["DROP TABLE runs", "DELETE FROM meta WHERE name = 'schema'", "PRAGMA user_version=77"]
)
def test_a_store_that_lacks_a_part_is_set_aside_with_its_rows_kept(tmp_path, statement):
    filled(tmp_path / "s.db")
    con = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    con.execute(statement)
    con.close()
    events: list[StoreDamaged] = []
    store = SQLiteStore(tmp_path / "s.db")
    store.open(events.append)
    store.begin(RunRecord(id="r2", workflow="w", command="w"))
    assert set(store.load("w")) == {"s0", "s1", "s2"}
    assert len(events) == 1


def test_without_its_key_no_record_is_believed(tmp_path):
    filled(tmp_path / "s.db")
    con = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    con.execute("DELETE FROM meta WHERE name = 'key'")
    con.close()
    events: list[StoreDamaged] = []
    assert damaged(tmp_path / "s.db", events) == {}
    assert events[0].lost == ("s0", "s1", "s2")


def test_the_run_tells_of_the_damage_and_goes_on_from_what_it_sees(tmp_path, world: World):
    flow = Workflow("w", [Make(world, "a"), Make(world, "b", ("a",))])
    flow.run(store=SQLiteStore(tmp_path / "s.db"))
    (tmp_path / "s.db").write_bytes(b"\0" * 8192)
    del world.things["b"]
    world.made.clear()
    outcome = flow.run(store=SQLiteStore(tmp_path / "s.db"), bus=world.bus)
    assert outcome.changed == ("b",)
    assert world.of(StoreDamaged)[0].lost == ("a", "b")


def test_where_nobody_listens_the_damage_is_logged(tmp_path, world: World, caplog):
    flow = Workflow("w", [Make(world, "a"), Make(world, "b", ("a",))])
    flow.run(store=SQLiteStore(tmp_path / "s.db"))
    (tmp_path / "s.db").write_bytes(b"\0" * 8192)
    outcome = flow.run(store=SQLiteStore(tmp_path / "s.db"))
    assert [event.lost for event in outcome.damage] == [("a", "b")]
    (told,) = caplog.records
    assert (told.name, told.levelname) == ("holdfast.engine", "WARNING")
    assert told.message.endswith("no record of a step was kept; lost: a, b")


def test_a_step_log_names_what_was_lost_with_its_record(tmp_path, world: World):
    path = tmp_path / "s.db"
    Workflow("w", [Make(world, "a"), Make(world, "b", ("a",))]).run(store=SQLiteStore(path))
    con = sqlite3.connect(path, isolation_level=None)
    con.execute("DELETE FROM steps WHERE name = 'b'")
    con.execute("UPDATE steps SET digest = x'00'")
    con.close()
    events: list[StoreDamaged] = []
    damaged(path, events)
    assert events[0].lost == ("a", "b")


@pytest.mark.parametrize("seed", range(40))
def test_any_flip_or_cut_is_survived(tmp_path, seed):
    """Never a traceback, never a record that was not written; the long version is in tests/chaos."""
    rng = random.Random(seed)
    path = tmp_path / "s.db"
    filled(path, 60)
    data = bytearray(path.read_bytes())
    if seed % 4 == 0:
        data = data[: rng.randrange(len(data))]
    else:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    events: list[StoreDamaged] = []
    store = SQLiteStore(path)
    store.open(events.append)
    for name, record in store.load("w").items():
        assert record == Record(state="done", run="r1", note=f"note {name[1:]}")
    store.begin(RunRecord(id="r2", workflow="w", command="w"))
    store.commit("w", {"new": Record(state="done", run="r2")})
    assert "new" in store.load("w")


def test_an_error_of_the_disk_in_the_middle_of_a_run_stops_it_and_loses_nothing(
    tmp_path, world: World, monkeypatch
):
    path = tmp_path / "s.db"
    flow = Workflow("w", [Make(world, "a"), Make(world, "b", ("a",)), Make(world, "c", ("b",))])
    real = SQLiteStore.commit
    calls = []

    def full(self, scope, records, forget=()):
        calls.append(1)
        if len(calls) >= 3:
            raise StoreFullError("the disk is full")
        real(self, scope, records, forget)

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteStore, "commit", full)
        patch.setattr(SQLiteStore, "end", lambda self, *args: full(self, "w", {}))
        with pytest.raises(StoreFullError, match="the disk is full"):
            flow.run(store=SQLiteStore(path))
    assert world.made == ["a", "b"]
    flow.run(store=SQLiteStore(path))
    assert world.made == ["a", "b", "c"]


def test_a_run_that_died_is_written_up_by_the_next_one(tmp_path, world: World):
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    store.begin(RunRecord(id="dead", workflow="w", command="up"))
    store.commit("w", {"a": Record(state="intent", run="dead", at=5.0)})
    store.close()
    Workflow("w", [Make(world, "a")]).run(store=store)
    store.open()
    dead = store.runs()[1]
    assert (dead.id, dead.outcome, dead.step) == ("dead", "died", "a")
    assert [(log.step, log.outcome) for log in dead.steps] == [("a", "in flight")]


def test_leftovers_of_a_crash_during_creation_are_cleared(tmp_path):
    (tmp_path / ".s.db.new-999").write_bytes(b"half")
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_dropped_runs_are_gone_and_steps_stay(store):
    flow = Workflow("w", [Step("a", run=lambda ctx: 1, repeat="safe")])
    ids = [flow.run(store=store).run for _ in range(3)]
    store.open()
    store.drop_runs(ids[:2])
    assert [run.id for run in store.runs()] == [ids[2]]
    assert "a" in store.load("w")


def test_a_dead_run_of_another_workflow_keeps_its_story(tmp_path, world: World):
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    store.begin(RunRecord(id="dead", workflow="other", command="stop"))
    store.commit("other", {"halt": Record(state="intent", run="dead", at=5.0)})
    store.close()
    Workflow("w", [Make(world, "a")]).run(store=store)
    store.open()
    dead = store.runs()[1]
    assert (dead.outcome, dead.step, [log.step for log in dead.steps]) == ("died", "halt", ["halt"])


@pytest.mark.parametrize("call", ["unfinished", "begin", "commit", "end"])
def test_damage_that_is_found_later_is_told(tmp_path, world: World, monkeypatch, call):
    path = tmp_path / "s.db"
    flow = Workflow("w", [Make(world, "a"), Make(world, "b", ("a",))])
    flow.run(store=SQLiteStore(path))
    world.things.clear()
    real, hurt = getattr(SQLiteStore, call), []

    def damaging(self, *args):
        if not hurt:
            hurt.append(1)
            self._con.execute("DROP TABLE runs" if call != "commit" else "DROP TABLE steps")
        return real(self, *args)

    monkeypatch.setattr(SQLiteStore, call, damaging)
    flow.run(store=SQLiteStore(path), bus=world.bus)
    asides = [event.aside for event in world.of(StoreDamaged)]
    assert len(asides) == 1
    assert [str(copy) for copy in tmp_path.glob("*.damaged-*[0-9a-f]")] == asides
    assert world.of(StoreDamaged)[0].lost == (("a", "b") if call == "commit" else ())
