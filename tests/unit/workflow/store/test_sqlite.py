"""The SQLite store: durability, privacy, concurrent readers, versions, and replacement of damaged files."""

from __future__ import annotations

import random
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from holdfast.errors import StoreError, StoreFullError, StoreVersionError, TemporaryError
from holdfast.events import StoreDamaged
from holdfast.workflow import FileLock, LockHolder, SQLiteStore, Step, Workflow
from holdfast.workflow.store import RunRecord, StepRecord, schema, sqlite_file

from ..conftest import Make, World  # noqa: TID252


def filled(path, count=3):
    store = SQLiteStore(path)
    store.open()
    store.begin(RunRecord(id="r1", workflow="w", command="w"))
    store.commit("w", {f"s{i}": StepRecord(state="done", run="r1", note=f"note {i}") for i in range(count)})
    store.close()
    return store


def test_records_round_trip(store):
    store.open()
    record = StepRecord(
        state="done", run="r", fingerprint="f", inputs={"a": "b"}, reads={"c": "d"}, tries=2, note="é"
    )
    store.commit("w", {"x": record, "y": StepRecord(state="intent", run="r")})
    store.commit("other", {"x": StepRecord(state="failed", run="r", error="e")})
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
def test_too_long_path_is_one_clear_error(tmp_path, world: World, length):
    with pytest.raises(StoreError, match=f"too long: {length} bytes") as caught:
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(at_length(tmp_path, length)))
    assert "470" in caught.value.hint
    assert world.made == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["store", "reader", "lock"])
def test_unsupported_path_is_one_clear_error(tmp_path, what):
    path = tmp_path / "a\0b"
    attempts = {
        "store": SQLiteStore(path).open,
        "reader": SQLiteStore(path, readonly=True).open,
        "lock": lambda: FileLock(path).acquire(LockHolder.current_process()),
    }
    with pytest.raises(StoreError, match="null"):
        attempts[what]()


def test_longest_path_leaves_room_for_sidecar_files(tmp_path):
    path, events = at_length(tmp_path, 470), []
    filled(path)
    with sqlite3.connect(path) as con:
        con.execute("UPDATE steps SET digest = x'00' WHERE name = 's1'")
    con.close()
    assert load_damaged(path, events) == {}
    assert Path(events[0].backup_path).exists()


def test_sqlite_creation_failure_is_one_clear_error(tmp_path, world: World, monkeypatch):
    """Whatever else its library has against a path."""
    monkeypatch.setattr(sqlite_file, "_MAX_PATH_BYTES", 10_000)
    with pytest.raises(StoreError, match="unable to open database file"):
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(at_length(tmp_path, 600)))
    assert world.made == []


def test_death_between_set_aside_and_creation_is_reported(tmp_path):
    path = tmp_path / "s.db"
    filled(path)
    (tmp_path / "s.db-wal").write_bytes(b"orphan")
    aside = sqlite_file.set_aside(path, [""])
    with pytest.raises(StoreError, match="does not exist"):
        SQLiteStore(path, readonly=True).open()
    events: list[StoreDamaged] = []
    assert load_damaged(path, events) == {}
    assert [event.backup_path for event in events] == [str(aside)]
    assert [copy.read_bytes() for copy in tmp_path.glob("s.db.damaged-*-wal")] == [b"orphan"]


def test_set_aside_is_reported_until_run_begins(tmp_path):
    path = tmp_path / "s.db"
    filled(path)
    path.write_bytes(b"")
    for begins, reports in [(False, 1), (True, 1), (False, 0)]:
        events: list[StoreDamaged] = []
        store = SQLiteStore(path)
        store.open(events.append)
        if begins:
            store.begin(RunRecord(id="r2", workflow="w", command="w"))
        store.close()
        assert len(events) == reports


def test_store_is_private_from_creation_and_repaired(store):
    store.open()
    store.commit("w", {"x": StepRecord(state="done", run="r")})
    for path in store.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    store.close()
    store.path.chmod(0o644)
    store.open()
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_durability_pragmas(store):
    store.open()
    assert store._connection.execute("PRAGMA journal_mode").fetchone()[0] == b"wal"
    assert store._connection.execute("PRAGMA synchronous").fetchone()[0] == 2


def test_store_is_readable_while_run_writes(store):
    store.open()
    store.begin(RunRecord(id="r1", workflow="w", command="up"))
    store._connection.execute("BEGIN IMMEDIATE")
    reader = SQLiteStore(store.path, readonly=True)
    reader.open()
    assert [run.id for run in reader.runs()] == ["r1"]
    store._connection.execute("COMMIT")
    store.commit("w", {"x": StepRecord(state="done", run="r1")})
    assert set(reader.load("w")) == {"x"}


def test_reader_changes_nothing(tmp_path):
    reader = SQLiteStore(tmp_path / "none" / "s.db", readonly=True)
    with pytest.raises(StoreError, match="does not exist"):
        reader.open()
    assert list(tmp_path.iterdir()) == []


def test_newer_store_is_rejected_unmodified(tmp_path, monkeypatch, world: World):
    with monkeypatch.context() as newer:
        newer.setattr(schema, "SCHEMA_VERSION", 9)
        filled(tmp_path / "s.db")
    before = (tmp_path / "s.db").read_bytes()
    with pytest.raises(StoreVersionError, match=r"has version 9.*up to 1") as caught:
        Workflow("w", [Make(world, "a")]).run(store=SQLiteStore(tmp_path / "s.db"))
    assert caught.value.exit_code == 3
    assert world.made == []
    assert (tmp_path / "s.db").read_bytes() == before


def test_older_store_is_migrated_in_one_transaction(tmp_path, monkeypatch):
    filled(tmp_path / "s.db")
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(schema, "MIGRATIONS", {1: ("CREATE TABLE extra (x)", "INSERT INTO extra VALUES (1)")})
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    assert set(store.load("w")) == {"s0", "s1", "s2"}
    assert store._connection.execute("SELECT x FROM extra").fetchall() == [(1,)]
    assert store._connection.execute("PRAGMA user_version").fetchone() == (2,)
    store.close()
    SQLiteStore(tmp_path / "s.db").open()


def test_unmigratable_store_is_set_aside(tmp_path, monkeypatch):
    filled(tmp_path / "s.db")
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(
        schema, "MIGRATIONS", {1: ("CREATE TABLE extra (x)", "INSERT INTO nowhere VALUES (1)")}
    )
    events: list[StoreDamaged] = []
    store = SQLiteStore(tmp_path / "s.db")
    store.open(events.append)
    assert "nowhere" in events[0].reason
    assert store.load("w") == {}


def load_damaged(path, events):
    store = SQLiteStore(path)
    store.open(events.append)
    return store.load("w")


def test_empty_file_is_reported_as_corruption(tmp_path):
    filled(tmp_path / "s.db")
    (tmp_path / "s.db").write_bytes(b"")
    events: list[StoreDamaged] = []
    assert load_damaged(tmp_path / "s.db", events) == {}
    assert "damaged" in events[0].backup_path


@pytest.mark.parametrize(
    "statement",
    [
        """UPDATE steps SET body = '{"state":"done","run":"evil"}' WHERE name = 's1'""",
        "UPDATE steps SET name = 's9' WHERE name = 's1'",
    ],
    ids=["changed", "renamed"],
)
def test_store_with_modified_row_is_set_aside(tmp_path, statement):
    filled(tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as con:
        con.execute(statement)
    con.close()
    before = (tmp_path / "s.db").read_bytes()
    events: list[StoreDamaged] = []
    assert load_damaged(tmp_path / "s.db", events) == {}
    assert "the record of step 's" in events[0].reason
    assert Path(events[0].backup_path).read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE runs",
        "DELETE FROM meta WHERE name = 'schema'",
        "DELETE FROM meta WHERE name = 'key'",
        "PRAGMA user_version=77",
    ],
)
def test_incomplete_store_is_set_aside(tmp_path, statement):
    filled(tmp_path / "s.db")
    con = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    con.execute(statement)
    con.close()
    events: list[StoreDamaged] = []
    store = SQLiteStore(tmp_path / "s.db")
    store.open(events.append)
    store.begin(RunRecord(id="r2", workflow="w", command="w"))
    assert store.load("w") == {}
    assert len(events) == 1


def test_run_reports_corruption_and_continues_from_probes(tmp_path, world: World):
    flow = Workflow("w", [Make(world, "a"), Make(world, "b", ("a",))])
    flow.run(store=SQLiteStore(tmp_path / "s.db"))
    (tmp_path / "s.db").write_bytes(b"\0" * 8192)
    del world.things["b"]
    world.made.clear()
    outcome = flow.run(store=SQLiteStore(tmp_path / "s.db"), bus=world.bus)
    assert outcome.changed == ("b",)
    assert world.of(StoreDamaged)[0].lost == ("a", "b")


def test_corruption_is_logged_without_subscriber(tmp_path, world: World, caplog):
    flow = Workflow("w", [Make(world, "a"), Make(world, "b", ("a",))])
    flow.run(store=SQLiteStore(tmp_path / "s.db"))
    (tmp_path / "s.db").write_bytes(b"\0" * 8192)
    outcome = flow.run(store=SQLiteStore(tmp_path / "s.db"))
    assert [event.lost for event in outcome.damage] == [("a", "b")]
    (log,) = caplog.records
    assert (log.name, log.levelname) == ("holdfast.workflow", "WARNING")
    assert log.message.endswith("the checkpoints of earlier runs are lost: a, b")


@pytest.mark.parametrize("seed", range(40))
def test_any_bit_flip_or_truncation_is_handled(tmp_path, seed):
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
        assert record == StepRecord(state="done", run="r1", note=f"note {name[1:]}")
    store.begin(RunRecord(id="r2", workflow="w", command="w"))
    store.commit("w", {"new": StepRecord(state="done", run="r2")})
    assert "new" in store.load("w")


def test_disk_error_during_run_stops_it_without_loss(tmp_path, world: World, monkeypatch):
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


def test_died_run_is_closed_by_next_run(tmp_path, world: World):
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    store.begin(RunRecord(id="dead", workflow="w", command="up"))
    store.commit("w", {"a": StepRecord(state="intent", run="dead", at=5.0)})
    store.close()
    Workflow("w", [Make(world, "a")]).run(store=store)
    store.open()
    dead = store.runs()[1]
    assert (dead.id, dead.outcome, dead.step) == ("dead", "died", "a")
    assert [(log.step, log.outcome) for log in dead.steps] == [("a", "in flight")]


def test_leftovers_of_interrupted_creation_are_removed(tmp_path):
    (tmp_path / ".s.db.new-999").write_bytes(b"half")
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_dropped_runs_are_removed_and_steps_kept(store):
    flow = Workflow("w", [Step("a", run=lambda ctx: 1, repeat="safe")])
    ids = [flow.run(store=store).run for _ in range(3)]
    store.open()
    store.delete_runs(ids[:2])
    assert [run.id for run in store.runs()] == [ids[2]]
    assert "a" in store.load("w")


def test_died_run_of_other_workflow_keeps_history(tmp_path, world: World):
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    store.begin(RunRecord(id="dead", workflow="other", command="stop"))
    store.commit("other", {"halt": StepRecord(state="intent", run="dead", at=5.0)})
    store.close()
    Workflow("w", [Make(world, "a")]).run(store=store)
    store.open()
    dead = store.runs()[1]
    assert (dead.outcome, dead.step, [log.step for log in dead.steps]) == ("died", "halt", ["halt"])


@pytest.mark.parametrize("call", ["unfinished_runs", "begin", "commit", "end"])
def test_corruption_found_later_is_reported(tmp_path, world: World, monkeypatch, call):
    path = tmp_path / "s.db"
    flow = Workflow("w", [Make(world, "a"), Make(world, "b", ("a",))])
    flow.run(store=SQLiteStore(path))
    world.things.clear()
    real, hurt = getattr(SQLiteStore, call), []

    def damaging(self, *args):
        if not hurt:
            hurt.append(1)
            self._connection.execute("DROP TABLE runs" if call != "commit" else "DROP TABLE steps")
        return real(self, *args)

    monkeypatch.setattr(SQLiteStore, call, damaging)
    flow.run(store=SQLiteStore(path), bus=world.bus)
    asides = [event.backup_path for event in world.of(StoreDamaged)]
    assert len(asides) == 1
    assert [str(copy) for copy in tmp_path.glob("*.damaged-*[0-9a-f]")] == asides
    assert world.of(StoreDamaged)[0].lost == ("a", "b")
    assert flow.run(store=SQLiteStore(path), bus=world.bus).changed == ()


def test_close_waits_for_write_of_other_thread(tmp_path):
    """After a forced stop, the runner closes the store while a step on another thread may still write."""
    path, inside, go = tmp_path / "s.db", threading.Event(), threading.Event()

    class Slow(dict):
        def items(self):
            inside.set()
            assert go.wait(10)
            return super().items()

    store, records = filled(path), Slow(late=StepRecord(state="done", run="r1"))
    store.open()
    writer = threading.Thread(target=store.commit, args=("w", records))
    writer.start()
    assert inside.wait(10)
    closer = threading.Thread(target=store.close)
    closer.start()
    closer.join(0.2)  # it waits for the write, or it closes the connection of the write
    go.set()
    writer.join(10)
    closer.join(10)
    assert sqlite_file.damaged_copies(path) == []
    store.open()
    assert set(store.load("w")) == {"late", "s0", "s1", "s2"}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (None, StoreError),
        (sqlite3.SQLITE_PROTOCOL, TemporaryError),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, TemporaryError),
        (sqlite3.SQLITE_NOMEM, StoreError),
        (sqlite3.SQLITE_MISMATCH, schema.CorruptStoreError),
        (sqlite3.SQLITE_TOOBIG, schema.CorruptStoreError),
    ],
)
def test_only_errors_of_damaged_files_count_as_corruption(tmp_path, code, kind):
    error = sqlite3.OperationalError("failed")
    if code is not None:
        error.sqlite_errorcode = code
    assert type(sqlite_file.translate_error(error, tmp_path / "s.db", writing=True)) is kind


def test_record_that_cannot_be_encoded_does_not_damage_store(tmp_path):
    store = filled(tmp_path / "s.db")
    store.open()
    with pytest.raises(StoreError, match="a record cannot be written"):
        store.commit("w", {"x": StepRecord(state="done", run="r1", note="\udc80")})
    assert set(store.load("w")) == {"s0", "s1", "s2"}
    assert sqlite_file.damaged_copies(store.path) == []


def test_store_that_is_damaged_again_is_one_clear_error(tmp_path):
    path = tmp_path / "s.db"

    class Damaging(dict):
        def items(self):
            con = sqlite3.connect(path, isolation_level=None)
            con.execute("DROP TABLE steps")
            con.close()
            return super().items()

    store = filled(path)
    store.open()
    with pytest.raises(StoreError, match=r"is damaged: no such table"):
        store.commit("w", Damaging(x=StepRecord(state="done", run="r1")))
    assert sqlite_file.damaged_copies(path)
