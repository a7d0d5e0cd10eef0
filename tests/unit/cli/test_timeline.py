"""`holdfast timeline`: where the page goes, and what is wrong with bad input."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli

from holdfast.cli import cli
from holdfast.cli.output import run_command
from holdfast.errors import HoldfastError
from holdfast.gateway import Gateway, hosts
from holdfast.timeline import Timeline, render_page
from holdfast.workflow import SQLiteStore, Step, Workflow

FAILING_COMMAND = """
import sys
from pathlib import Path
import click
from holdfast.cli.click_extensions import json_option
from holdfast.cli.output import progress_renderer, run_command
from holdfast.errors import TemporaryError
from holdfast.home import state_dir
from holdfast.workflow import MemoryStore, SQLiteStore, Step, Workflow

def fail(ctx):
    raise TemporaryError("registry: did not answer")

@click.command()
@click.argument("store")
@json_option
def up(store):
    flow = Workflow("up", [Step("pull", run=fail, repeat="safe")])
    path = state_dir() / "gateways" / "dev" / "state.db"
    store = MemoryStore() if store == "memory" else SQLiteStore(path)
    with progress_renderer() as renderer:
        flow.run(store=store, bus=renderer.bus, subject="dev")

sys.exit(run_command(up, sys.argv[1:]))
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(hosts, "lock_directory", lambda: tmp_path)
    return tmp_path / "home"


def failing(ctx):
    raise ConnectionResetError("reset by peer")


def run_up(home, *, fails=False, gateway="dev"):
    steps = [Step("first", run=lambda ctx: 1, repeat="safe")]
    steps += [Step("second", needs=["first"], run=failing, repeat="safe")] if fails else []
    flow = Workflow("up", steps, forget_on_success=True)
    store = SQLiteStore(home / "state" / "gateways" / gateway / "state.db")
    try:
        return flow.run(store=store, command="up", subject=gateway).run
    except HoldfastError:
        store.open()
        run_id = store.runs()[0].id
        store.close()
        return run_id


@pytest.fixture
def two_runs(home):
    """A successful run and a failed run after it."""
    return run_up(home), run_up(home, fails=True)


def call(capsys, *words):
    code = run_command(cli, ["timeline", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_page_of_the_last_run_is_a_private_file_below_the_home(two_runs, home, capsys):
    code, out, _ = call(capsys)
    path = home / "state" / "timelines" / f"{two_runs[1]}.html"
    assert (code, out) == (0, f"{path}\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "reset by peer" in path.read_text()


def test_output_names_the_file_and_replaces_it(two_runs, tmp_path, capsys):
    path = tmp_path / "run.html"
    path.write_text("old")
    code, out, _ = call(capsys, two_runs[0][-6:], "--output", str(path))
    assert (code, out) == (0, f"{path}\n")
    assert two_runs[0] in path.read_text()


def test_dash_writes_the_page_to_stdout_and_no_file(two_runs, home, capsys):
    _, out, _ = call(capsys, "last", "-o", "-")
    assert out.startswith("<!doctype html>")
    assert not (home / "state" / "timelines").exists()


def test_json_is_the_model_and_writes_no_file(two_runs, home, capsys):
    _, out, _ = call(capsys, "--json")
    model = json.loads(out)
    assert set(model) == {*Timeline.__struct_fields__}
    assert (model["run"]["id"], model["comparison"]["run"]["id"]) == (two_runs[1], two_runs[0])
    assert [step["state"] for step in model["steps"]] == ["finished", "failed"]
    assert not (home / "state" / "timelines").exists()


def test_json_with_output_writes_the_page_too(two_runs, tmp_path, capsys):
    _, out, _ = call(capsys, "--json", "--output", str(tmp_path / "x.html"))
    assert json.loads(out)["run"]["id"] == two_runs[1]
    assert (tmp_path / "x.html").exists()


def test_compare_names_another_run(home, capsys):
    first, _, third = (run_up(home) for _ in range(3))
    _, out, _ = call(capsys, third, "--compare", first, "--json")
    assert json.loads(out)["comparison"]["run"]["id"] == first


def test_gateway_and_store_select_the_runs(two_runs, home, capsys):
    red = run_up(home, gateway="red")
    assert json.loads(call(capsys, "--json")[1])["run"]["id"] == red
    assert json.loads(call(capsys, "-g", "dev", "--json")[1])["run"]["id"] == two_runs[1]
    store = home / "state" / "gateways" / "dev" / "state.db"
    assert json.loads(call(capsys, "--store", str(store), "--json")[1])["run"]["id"] == two_runs[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope"], "run 'nope': no run matches"),
        ([""], "RUN '': not a part of an ID"),
        (["--compare", "nope"], "run 'nope': no run matches"),
        (["--compare", "last"], "--compare last: the run itself"),
        (["-g", "red"], "gateway red: no runs found"),
        (["--output", "/dev/null"], "--output /dev/null: not a regular file"),
        (["--output", "/nowhere/x.html"], "/nowhere is not a directory"),
        (["--output", "/proc/x.html"], "--output /proc/x.html: cannot be written"),
        (["--output", "a\0b"], "null byte"),
        (["--output", "-", "--open"], "--open: not with --output -"),
        (["--output", "-", "--json"], "--json: not with --output -"),
        (["last", "more"], "unexpected extra argument"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value)[:20].replace("\0", "0"),
)
def test_bad_input_is_one_clear_error_and_writes_nothing(two_runs, home, words, message, capsys):
    code, out, err = call(capsys, *words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert "--json" in words or out == ""
    assert not (home / "state" / "timelines").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_directory_without_write_permission(two_runs, tmp_path, capsys):
    (tmp_path / "closed").mkdir(mode=0o500)
    code, _, err = call(capsys, "--output", str(tmp_path / "closed" / "x.html"))
    assert (code, "Permission denied" in err) == (2, True)


def test_damaged_store(home, capsys):
    path = home / "state" / "gateways" / "dev" / "state.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\0" * 7000)
    code, _, err = call(capsys)
    assert code == 3
    assert f"{path} is damaged" in err


def test_damaged_store_of_another_gateway_does_not_hide_a_run(two_runs, home, capsys):
    path = home / "state" / "gateways" / "aaa" / "state.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\0" * 7000)
    code, out, err = call(capsys)
    assert (code, two_runs[1] in out) == (0, True)
    assert "its runs are not listed" in err


def test_no_runs_yet(home, capsys):
    code, _, err = call(capsys)
    assert (code, "run 'last': there are no runs yet" in err) == (2, True)


def test_open_starts_the_browser_of_the_environment(two_runs, home, tmp_path):
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}.new && mv {opened}.new {opened}\n')
    browser.chmod(0o755)
    holdfast = HoldfastCli(home, BROWSER=str(browser))
    path = holdfast("timeline", "--open").strip()
    assert opened.read_text() == f"file://{path}"


def test_open_without_a_browser_still_prints_the_path(two_runs, home, monkeypatch, capsys):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    code, out, err = call(capsys, "--open")
    assert (code, out.endswith(".html\n")) == (0, True)
    assert "No browser was found" in err


def test_clean_deletes_the_pages_of_deleted_runs(two_runs, home, capsys):
    for run_id in two_runs:
        call(capsys, run_id)
    assert run_command(cli, ["runs", "clean", "--keep", "1"]) == 0
    assert [page.name for page in (home / "state" / "timelines").iterdir()] == [f"{two_runs[1]}.html"]


def run_failing(home, *words):
    return subprocess.run(
        [sys.executable, "-c", FAILING_COMMAND, *words], env=HoldfastCli(home).environment,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_failed_command_names_the_timeline_of_its_run(home):
    ended = run_failing(home, "store")
    assert ended.returncode == 1
    path = execute_hint(
        HoldfastCli(home),
        ended.stderr,
        "  Run `holdfast timeline {}` to see what the command did, step by step.",
    )
    assert "registry: did not answer" in Path(path.strip()).read_text()


def test_json_error_of_a_failed_command_names_the_run(home):
    *_, failed, error = map(json.loads, run_failing(home, "store", "--json").stderr.splitlines())
    assert (failed["event"], failed["recorded"]) == ("run.failed", True)
    assert (error["event"], error["run"]) == ("error", failed["run"])


def test_run_without_history_has_no_timeline(home):
    ended = run_failing(home, "memory")
    assert ended.returncode == 1
    assert "timeline" not in ended.stderr
    assert json.loads(run_failing(home, "memory", "--json").stderr.splitlines()[-1])["run"] == ""


def test_sdk_has_the_timeline_of_a_gateway(two_runs):
    timeline = Gateway("dev").timeline()
    assert (timeline.run.id, timeline.comparison.run.id) == (two_runs[1], two_runs[0])
    assert two_runs[1] in render_page(timeline)
    with pytest.raises(HoldfastError, match="gateway red: no runs found"):
        Gateway("red").timeline()
