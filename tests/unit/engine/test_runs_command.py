"""`holdfast runs`: lists, shows and forgets runs, as lines and as JSON."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from holdfast.cli.ending import exit_code_of
from holdfast.cli.runs import runs
from holdfast.engine import FileLock, Holder, Record, RunRecord, SQLiteStore, Step, StepLog, Workflow
from holdfast.errors import HoldfastError, TemporaryError
from holdfast.events import Bus
from holdfast.retry import Policy, constant, testing_mode


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    from holdfast.home import state_dir

    return state_dir() / "gateways"


def flow(tries):
    def flaky(ctx):
        tries.append(1)
        if len(tries) % 3:
            raise ConnectionResetError("reset by peer")
        ctx.note("sent")

    policy = Policy(attempts=2, backoff=constant(1))
    return Workflow(
        "up",
        [
            Step("first", run=lambda ctx: {"n": 1}, repeat="safe"),
            Step("send", needs=["first"], run=flaky, repeat="at-least-once", policy=policy),
        ],
    )


@pytest.fixture
def ran(home):
    """A failed run, and the one that went on."""
    tries: list[int] = []
    store = SQLiteStore(home / "blue" / "state.db")
    with testing_mode():
        with pytest.raises(HoldfastError):
            flow(tries).run(store=store, command="up", subject="blue")
        flow(tries).run(store=store, command="up", subject="blue")
    store.open()
    newest, oldest = store.runs()
    store.close()
    return newest, oldest


def call(*words):
    return CliRunner().invoke(runs, words, catch_exceptions=False)


def test_lists_the_newest_first(ran):
    lines = call().output.splitlines()
    assert lines[0].split() == ["ID", "COMMAND", "SUBJECT", "OUTCOME", "STARTED", "TOOK", "STEPS"]
    assert [line.split()[0] for line in lines[1:]] == [ran[0].id, ran[1].id]
    assert "finished" in lines[1]
    assert "failed" in lines[2]
    assert len(call("--limit", "1").output.splitlines()) == 2


def test_lists_as_json(ran):
    listed = json.loads(call("--json").output)
    assert [run["id"] for run in listed] == [ran[0].id, ran[1].id]
    assert listed[1]["error"]


def test_shows_steps_retries_errors_and_what_was_skipped_and_why(ran):
    failed = call("show", ran[1].id).output
    assert "✓ first" in failed
    assert "x send" in failed
    assert "tried again: ConnectionResetError: reset by peer" in failed
    assert "2 attempts" in failed
    assert "failed in send" in failed
    assert "Run the same command again" in failed
    went_on = call("show", "last").output
    assert f"- first  skipped: done in run {ran[1].id}" in went_on
    assert "sent; because: it failed last time" in went_on
    assert "at least once" in went_on


def test_shows_as_json_and_by_a_part_of_the_id(ran):
    shown = json.loads(call("show", ran[0].id[-6:], "--json").output)
    assert shown["id"] == ran[0].id
    assert shown["skipped"] == {f"done in run {ran[1].id}": ["first"]}


@pytest.mark.parametrize(
    ("words", "message"), [(["show", "nope"], "no run is called"), (["show", "20"], "several runs are")]
)
def test_an_id_that_is_not_clear(ran, words, message, capsys):
    assert exit_code_of(runs, words) == 2
    assert message in capsys.readouterr().err


def test_a_gateway_without_runs(home, capsys):
    assert exit_code_of(runs, ["--gateway", "red"]) == 2
    assert "no runs of a gateway red" in capsys.readouterr().err
    assert call().output == "No runs yet.\n"


def test_any_store_will_do(tmp_path):
    path = tmp_path / "mine.db"
    Workflow("mine", [Step("a", run=lambda ctx: 1, repeat="safe")]).run(store=SQLiteStore(path))
    assert "mine" in call("--store", str(path)).output
    assert "✓ a" in call("--store", str(path), "show", "last").output
    assert "✓ a" in call("show", "last", "--store", str(path)).output


def test_a_run_whose_process_is_gone_is_told_as_died(home):
    store = SQLiteStore(home / "blue" / "state.db")
    store.open()
    dead = RunRecord(
        id="20260101-000000-dead00", workflow="up", command="up", pid=2**22 - 1, host=os.uname().nodename
    )
    store.begin(dead)
    store.commit("up", {"first": Record(state="intent", run=dead.id)})
    store.close()
    shown = call("show", "last").output
    assert "outcome   died" in shown
    assert "? first" in shown


def test_clean_keeps_the_newest_and_all_checkpoints(ran, home):
    copy = home / "blue" / "state.db.damaged-20260101-000000-0000"
    copy.write_text("old")
    assert "Forgot 1 runs" in call("clean", "--keep", "1").output
    assert copy.exists()
    assert len(call().output.splitlines()) == 2
    cleaned = json.loads(call("clean", "--keep", "0", "--damaged", "--json").output)
    assert cleaned == {"runs": [ran[0].id], "deleted": [str(copy)], "damage": []}
    assert flow([1, 1]).run(store=SQLiteStore(home / "blue" / "state.db")).changed == ()


def test_readable_while_a_run_is_at_work(home):
    store = SQLiteStore(home / "blue" / "state.db")

    def look(ctx):
        shown = call().output
        assert "running" in shown
        raise TemporaryError("seen")

    with pytest.raises(TemporaryError, match="seen"):
        Workflow("up", [Step("look", run=look, repeat="safe")]).run(store=store, command="up")


@pytest.mark.parametrize("words", [[], ["show", "last"]])
def test_one_damaged_store_does_not_hide_the_others(ran, home, words, capsys):
    (home / "aaa").mkdir(parents=True)
    (home / "aaa" / "state.db").write_bytes(b"\0" * 7000)
    assert exit_code_of(runs, words) == 0
    said = capsys.readouterr()
    assert ran[0].id in said.out
    assert f"{home / 'aaa' / 'state.db'} is damaged" in said.err
    assert "its runs are left out" in said.err
    assert exit_code_of(runs, ["-g", "aaa", *words]) == 3


def test_a_running_one_has_all_fields_as_json(home):
    store, seen = SQLiteStore(home / "blue" / "state.db"), []
    look = Step("look", run=lambda ctx: seen.append(call("show", "last", "--json").output), repeat="safe")
    Workflow("up", [look]).run(store=store, command="up")
    (running,) = map(json.loads, seen)
    assert set(running) == {*RunRecord.__struct_fields__}
    assert (running["outcome"], running["steps"], running["error"]) == ("running", [], "")
    (log,) = json.loads(call("show", "last", "--json").output)["steps"]
    assert set(log) == {*StepLog.__struct_fields__}


@pytest.mark.parametrize(
    "other", [{"born": 1}, {"boot": "00000000-0000-0000-0000-000000000000"}], ids=["reused pid", "reboot"]
)
def test_a_process_that_was_given_the_same_number_is_another_one(home, other):
    path = home / "blue" / "state.db"
    store, me = SQLiteStore(path), Holder.me()
    run = RunRecord(
        id="20260101-000000-dead00", workflow="up", command="up", pid=me.pid, host=me.host, boot=me.boot,
        born=me.born,
    )  # fmt: skip
    store.open()
    store.begin(run)
    store.close()
    assert "outcome   running" in call("show", "last").output
    assert exit_code_of(runs, ["clean"]) == 4
    store.open()
    store.begin(msgspec.structs.replace(run, **other))
    store.close()
    assert "outcome   died" in call("show", "last").output
    assert "Forgot 1 runs" in call("clean", "--keep", "0").output


def test_a_damaged_store_is_one_clear_error(home, capsys):
    (home / "blue").mkdir(parents=True)
    (home / "blue" / "state.db").write_bytes(b"\0" * 7000)
    assert exit_code_of(runs, []) == 3
    assert "is damaged" in capsys.readouterr().err


def test_clean_keeps_and_names_what_it_sets_aside_itself(ran, home):
    (home / "blue" / "lock").touch()
    path = home / "blue" / "state.db"
    path.write_bytes(path.read_bytes()[:5000])
    cleaned = json.loads(call("clean", "--damaged", "--json").output)
    assert cleaned["deleted"] == []
    (damage,) = cleaned["damage"]
    assert Path(damage["aside"]).exists()
    path.write_bytes(b"")
    assert "was damaged" in call("clean").output


def spoil(path, step):
    con = sqlite3.connect(path, isolation_level=None)
    con.execute("UPDATE steps SET digest = x'00' WHERE name = ?", (step,))
    con.close()


def test_clean_names_what_was_lost(ran, home):
    (home / "blue" / "lock").touch()
    path = home / "blue" / "state.db"
    spoil(path, "first")
    # A run that died is told from the records of its steps: so they are read here.
    store = SQLiteStore(path)
    store.open()
    store.begin(RunRecord(id="20260101-000000-dead00", workflow="up", command="up", pid=2**22 - 1,
                          host=os.uname().nodename))  # fmt: skip
    store.close()
    said = call("clean").output
    assert "records of 1 steps were kept; lost: first." in said


def test_a_run_says_what_was_wrong_with_its_store(home):
    path, tries = home / "blue" / "state.db", [1, 1]
    flow(tries).run(store=SQLiteStore(path), command="up", subject="blue")
    spoil(path, "first")
    result = flow([1, 1]).run(store=SQLiteStore(path), command="up", subject="blue")
    assert [event.lost for event in result.damage] == [("first",)]
    shown = call("show", "last").output
    assert f"! {path} was damaged" in shown
    assert "lost: first" in shown
    assert json.loads(call("show", "last", "--json").output)["damage"][0]["lost"] == ["first"]


def test_a_run_that_died_says_it_too(home):
    """It is written with the first word of the run, not with the last."""
    path = home / "blue" / "state.db"
    flow([1, 1]).run(store=SQLiteStore(path), command="up", subject="blue")
    spoil(path, "first")
    pid = os.fork()
    if pid == 0:
        die = Step("first", run=lambda ctx: os.kill(os.getpid(), signal.SIGKILL), repeat="safe")
        try:
            Workflow("up", [die]).run(store=SQLiteStore(path), command="up", subject="blue", bus=Bus())
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    shown = call("show", "last").output
    assert "outcome   died" in shown
    assert "lost: first" in shown


def test_clean_without_a_lock_leaves_a_damaged_store_alone(ran, home, capsys):
    path = home / "blue" / "state.db"
    path.write_bytes(path.read_bytes()[:5000])
    assert exit_code_of(runs, ["clean", "--damaged"]) == 3
    assert "is damaged" in capsys.readouterr().err
    assert path.stat().st_size == 5000


def test_clean_makes_no_store(tmp_path, capsys):
    assert exit_code_of(runs, ["clean", "--store", str(tmp_path / "typo.db")]) == 3
    assert "there is no store at" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("locked", [True, False])
def test_clean_waits_for_no_run_and_disturbs_none(home, capsys, locked):
    store = SQLiteStore(home / "blue" / "state.db")
    lock = FileLock(home / "blue" / "lock") if locked else None
    codes = []
    look = Step("look", run=lambda ctx: codes.append(exit_code_of(runs, ["clean"])), repeat="safe")
    Workflow("up", [look]).run(store=store, lock=lock, command="up")
    assert codes == [4]
    assert "another run is at work" in capsys.readouterr().err
    assert exit_code_of(runs, ["clean"]) == 0


def test_only_what_was_begun_twice_may_have_happened_twice(home, tmp_path):
    path, broken = tmp_path / "s.db", [True]

    def send(ctx):
        if broken:
            raise TemporaryError("away")

    def shown():
        return call("show", "last", "--store", str(path)).output

    flow = Workflow("w", [Step("send", run=send, repeat="at-least-once")])
    with pytest.raises(TemporaryError):
        flow.run(store=SQLiteStore(path))
    assert "at least once" in shown()
    assert "twice" not in shown()
    broken.clear()
    flow.run(store=SQLiteStore(path))
    assert "may have happened twice" in shown()
