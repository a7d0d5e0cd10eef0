"""`holdfast runs`: list, show and delete runs, as text and as JSON."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from holdfast.cli.output import run_command
from holdfast.cli.runs import runs
from holdfast.errors import HoldfastError, TemporaryError
from holdfast.events import EventBus
from holdfast.gateway import hosts
from holdfast.retry import Policy, constant, testing_mode
from holdfast.workflow import (
    FileLock,
    LockHolder,
    RunRecord,
    SQLiteStore,
    Step,
    StepLog,
    StepRecord,
    Workflow,
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setattr(hosts, "lock_directory", lambda: tmp_path)
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
def finished_run(home):
    """A failed run, and the run that continued it."""
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


def call(*args):
    return CliRunner().invoke(runs, args, catch_exceptions=False)


def test_lists_newest_first(finished_run):
    lines = call().output.splitlines()
    assert lines[0].split() == ["ID", "COMMAND", "SUBJECT", "OUTCOME", "STARTED", "TOOK", "STEPS"]
    assert [line.split()[0] for line in lines[1:]] == [finished_run[0].id, finished_run[1].id]
    assert "finished" in lines[1]
    assert "failed" in lines[2]
    assert len(call("--limit", "1").output.splitlines()) == 2


def test_list_json(finished_run):
    listed = json.loads(call("--json").output)
    assert [run["id"] for run in listed] == [finished_run[0].id, finished_run[1].id]
    assert listed[1]["error"]


def test_show_prints_steps_retries_errors_and_skip_reasons(finished_run):
    failed = call("show", finished_run[1].id).output
    assert "✓ first" in failed
    assert "x send" in failed
    assert "retried: ConnectionResetError: reset by peer" in failed
    assert "2 attempts" in failed
    assert "failed in send" in failed
    assert "Run the same command again" in failed
    continued = call("show", "last").output
    assert f"- first  skipped: done in run {finished_run[1].id}" in continued
    assert "sent; because: failed in the last run" in continued
    assert "at least once" in continued


def test_show_json_by_id_prefix(finished_run):
    output = json.loads(call("show", finished_run[0].id[-6:], "--json").output)
    assert output["id"] == finished_run[0].id
    assert output["skipped"] == {f"done in run {finished_run[1].id}": ["first"]}


@pytest.mark.parametrize(
    ("args", "message"), [(["show", "nope"], "no run matches"), (["show", "20"], "several runs match")]
)
def test_ambiguous_id(finished_run, args, message, capsys):
    assert run_command(runs, args) == 2
    assert message in capsys.readouterr().err


def test_gateway_without_runs(home, capsys):
    assert run_command(runs, ["--gateway", "red"]) == 2
    assert "gateway red: no runs found" in capsys.readouterr().err
    assert call().output == "No runs yet.\n"


def test_variable_selects_the_gateway(home, capsys, monkeypatch):
    monkeypatch.setenv("HOLDFAST_GATEWAY", "red")
    assert run_command(runs, []) == 2
    error = capsys.readouterr().err
    assert "gateway red: no runs found" in error
    assert "Unset HOLDFAST_GATEWAY" in error


def test_any_store_path_is_accepted(tmp_path):
    path = tmp_path / "mine.db"
    Workflow("mine", [Step("a", run=lambda ctx: 1, repeat="safe")]).run(store=SQLiteStore(path))
    assert "mine" in call("--store", str(path)).output
    assert "✓ a" in call("--store", str(path), "show", "last").output
    assert "✓ a" in call("show", "last", "--store", str(path)).output


def test_run_without_process_is_shown_as_died(home):
    store = SQLiteStore(home / "blue" / "state.db")
    store.open()
    dead = RunRecord(
        id="20260101-000000-dead00", workflow="up", command="up", pid=2**22 - 1, host=os.uname().nodename
    )
    store.begin(dead)
    store.commit("up", {"first": StepRecord(state="intent", run=dead.id)})
    store.close()
    output = call("show", "last").output
    assert "outcome   died" in output
    assert "? first" in output


def test_clean_keeps_newest_runs_and_all_checkpoints(finished_run, home):
    copy = home / "blue" / "state.db.damaged-20260101-000000-0000"
    copy.write_text("old")
    assert "Deleted 1 runs" in call("clean", "--keep", "1").output
    assert copy.exists()
    assert len(call().output.splitlines()) == 2
    cleaned = json.loads(call("clean", "--keep", "0", "--damaged", "--json").output)
    assert cleaned == {"runs": [finished_run[0].id], "deleted": [str(copy)], "damage": []}
    assert flow([1, 1]).run(store=SQLiteStore(home / "blue" / "state.db")).changed == ()


def test_store_is_readable_during_run(home):
    store = SQLiteStore(home / "blue" / "state.db")

    def list_during_run(ctx):
        output = call().output
        assert "running" in output
        raise TemporaryError("seen")

    with pytest.raises(TemporaryError, match="seen"):
        Workflow("up", [Step("list", run=list_during_run, repeat="safe")]).run(store=store, command="up")


@pytest.mark.parametrize("args", [[], ["show", "last"]])
def test_corrupted_store_does_not_hide_others(finished_run, home, args, capsys):
    (home / "aaa").mkdir(parents=True)
    (home / "aaa" / "state.db").write_bytes(b"\0" * 7000)
    assert run_command(runs, args) == 0
    output = capsys.readouterr()
    assert finished_run[0].id in output.out
    assert f"{home / 'aaa' / 'state.db'} is damaged" in output.err
    assert "its runs are not listed" in output.err
    assert run_command(runs, ["-g", "aaa", *args]) == 3


def test_running_run_has_all_json_fields(home):
    store, seen = SQLiteStore(home / "blue" / "state.db"), []
    step = Step("list", run=lambda ctx: seen.append(call("show", "last", "--json").output), repeat="safe")
    Workflow("up", [step]).run(store=store, command="up")
    (running,) = map(json.loads, seen)
    assert set(running) == {*RunRecord.__struct_fields__}
    assert (running["outcome"], running["steps"], running["error"]) == ("running", [], "")
    (log,) = json.loads(call("show", "last", "--json").output)["steps"]
    assert set(log) == {*StepLog.__struct_fields__}


@pytest.mark.parametrize(
    "other",
    [{"start_ticks": 1}, {"boot": "00000000-0000-0000-0000-000000000000"}],
    ids=["reused pid", "reboot"],
)
def test_reused_pid_is_not_the_same_process(home, other):
    path = home / "blue" / "state.db"
    store, me = SQLiteStore(path), LockHolder.current_process()
    run = RunRecord(
        id="20260101-000000-dead00", workflow="up", command="up", pid=me.pid, host=me.host, boot=me.boot,
        start_ticks=me.start_ticks,
    )  # fmt: skip
    store.open()
    store.begin(run)
    store.close()
    assert "outcome   running" in call("show", "last").output
    assert run_command(runs, ["clean"]) == 4
    store.open()
    store.begin(msgspec.structs.replace(run, **other))
    store.close()
    assert "outcome   died" in call("show", "last").output
    assert "Deleted 1 runs" in call("clean", "--keep", "0").output


def test_corrupted_store_is_one_clear_error(home, capsys):
    (home / "blue").mkdir(parents=True)
    (home / "blue" / "state.db").write_bytes(b"\0" * 7000)
    assert run_command(runs, []) == 3
    assert "is damaged" in capsys.readouterr().err


def test_clean_keeps_and_names_set_aside_files(finished_run, home):
    (home / "blue" / "lock").touch()
    path = home / "blue" / "state.db"
    path.write_bytes(path.read_bytes()[:5000])
    cleaned = json.loads(call("clean", "--damaged", "--json").output)
    assert cleaned["deleted"] == []
    (damage,) = cleaned["damage"]
    assert Path(damage["backup_path"]).exists()
    path.write_bytes(b"")
    assert "was damaged" in call("clean").output


def spoil(path, step):
    con = sqlite3.connect(path, isolation_level=None)
    con.execute("UPDATE steps SET digest = x'00' WHERE name = ?", (step,))
    con.close()


def test_clean_names_lost_records(finished_run, home):
    (home / "blue" / "lock").touch()
    path = home / "blue" / "state.db"
    spoil(path, "first")
    # `clean` reads the step records to detect a run that died.
    store = SQLiteStore(path)
    store.open()
    store.begin(RunRecord(id="20260101-000000-dead00", workflow="up", command="up", pid=2**22 - 1,
                          host=os.uname().nodename))  # fmt: skip
    store.close()
    output = call("clean").output
    assert "the checkpoints of earlier runs are lost." in output


def test_run_reports_store_corruption(home):
    path, tries = home / "blue" / "state.db", [1, 1]
    flow(tries).run(store=SQLiteStore(path), command="up", subject="blue")
    spoil(path, "first")
    result = flow([1, 1]).run(store=SQLiteStore(path), command="up", subject="blue")
    assert [event.lost for event in result.damage] == [("first", "send")]
    output = call("show", "last").output
    assert f"! {path} was damaged" in output
    assert "lost: first, send" in output
    assert json.loads(call("show", "last", "--json").output)["damage"][0]["lost"] == ["first", "send"]


def test_died_run_reports_store_corruption(home):
    """The damage is recorded at the start of a run, not at its end."""
    path = home / "blue" / "state.db"
    flow([1, 1]).run(store=SQLiteStore(path), command="up", subject="blue")
    spoil(path, "first")
    pid = os.fork()
    if pid == 0:
        die = Step("first", run=lambda ctx: os.kill(os.getpid(), signal.SIGKILL), repeat="safe")
        try:
            Workflow("up", [die]).run(store=SQLiteStore(path), command="up", subject="blue", bus=EventBus())
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    output = call("show", "last").output
    assert "outcome   died" in output
    assert "lost: first" in output


def test_clean_without_lock_leaves_corrupted_store(finished_run, home, capsys):
    path = home / "blue" / "state.db"
    path.write_bytes(path.read_bytes()[:5000])
    assert run_command(runs, ["clean", "--damaged"]) == 3
    assert "is damaged" in capsys.readouterr().err
    assert path.stat().st_size == 5000


def test_clean_creates_no_store(tmp_path, capsys):
    assert run_command(runs, ["clean", "--store", str(tmp_path / "typo.db")]) == 3
    assert "does not exist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("locked", [True, False])
def test_clean_does_not_wait_for_or_disturb_runs(home, capsys, locked):
    store = SQLiteStore(home / "blue" / "state.db")
    lock = FileLock(home / "blue" / "lock") if locked else None
    codes = []
    step = Step("list", run=lambda ctx: codes.append(run_command(runs, ["clean"])), repeat="safe")
    Workflow("up", [step]).run(store=store, lock=lock, command="up")
    assert codes == [4]
    assert "another run is in progress" in capsys.readouterr().err
    assert run_command(runs, ["clean"]) == 0


def test_clean_takes_the_lock_of_the_gateway(finished_run, capsys):
    """A run that has just started holds the lock and is not in the store yet."""
    lock = hosts.LocalHost().lock("blue")
    lock.acquire(LockHolder.current_process("up"))
    assert run_command(runs, ["clean", "--keep", "0"]) == 4
    assert "holdfast-blue.lock" in capsys.readouterr().err
    lock.release()
    assert "Deleted 2 runs" in call("clean", "--keep", "0").output


def test_only_restarted_steps_may_have_repeated(home, tmp_path):
    path, broken = tmp_path / "s.db", [True]

    def send(ctx):
        if broken:
            raise TemporaryError("away")

    def show_last():
        return call("show", "last", "--store", str(path)).output

    flow = Workflow("w", [Step("send", run=send, repeat="at-least-once")])
    with pytest.raises(TemporaryError):
        flow.run(store=SQLiteStore(path))
    assert "at least once" in show_last()
    assert "twice" not in show_last()
    broken.clear()
    flow.run(store=SQLiteStore(path))
    assert "may have happened twice" in show_last()
