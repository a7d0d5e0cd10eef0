"""Text output: one line per finished step, heartbeat lines for long steps, tables, JSON on request."""

import json

import click
import pytest

from holdfast.cli.click_extensions import json_option
from holdfast.cli.output import format_table, plain, print_result
from holdfast.cli.output.live import LiveRenderer
from holdfast.events import (
    RetryScheduled,
    StepFailed,
    StepFinished,
    StepProgress,
    StepSkipped,
    StepStarted,
    StoreDamaged,
)
from holdfast.gateway import GatewayPlan
from holdfast.gateway.plan_summary import SettingChange
from holdfast.workflow import PlannedStep


def command_context(*args):
    """The context of a command with `--json` that was called with these arguments."""
    return json_option(click.Command("up")).make_context("up", list(args))


def render(renderer, *events):
    with renderer:
        for event in events:
            renderer(event)


def test_lines_of_finished_skipped_and_failed_steps(capsys):
    render(
        plain.PlainRenderer(),
        StepStarted(step="a", title="Network"),
        StepFinished(step="a", title="Network", seconds=1.25, note="created"),
        StepSkipped(step="b", title="Volume", reason="it exists"),
        StepFailed(step="c", title="Start", seconds=0.1, code="x", error="no"),
        RetryScheduled(operation="c", attempt=1, delay=0.5, reason="reset"),
    )
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines() == [
        "✓ Network: created (1.2 s)",
        "✓ Volume: skipped: it exists",
        "x Start (0.1 s)",
        "  … retry in 1 s: reset (attempt 2)",
    ]


@pytest.mark.parametrize("renderer_type", [plain.PlainRenderer, LiveRenderer])
def test_damaged_store_is_reported_with_lost_checkpoints(capsys, monkeypatch, renderer_type):
    monkeypatch.setenv("COLUMNS", "400")
    lost = tuple(f"step-{n}" for n in range(22))
    damage = StoreDamaged(path="s.db", backup_path="s.db.damaged-1", reason="malformed", lost=lost)
    render(renderer_type(), damage)
    output = capsys.readouterr().err
    assert "! s.db was damaged (malformed) and set aside as s.db.damaged-1" in output
    assert "lost: step-0, step-1, " in output
    assert "step-19 and 2 more" in output


def test_long_step_prints_heartbeat(capsys, monkeypatch):
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(plain.time, "monotonic", lambda: next(clock))
    render(
        plain.PlainRenderer(),
        *(StepProgress(step="a", message=f"m{n}", fraction=n / 10) for n in range(10)),
    )
    lines = capsys.readouterr().err.splitlines()
    assert 1 < len(lines) < 6
    assert lines[0].endswith("%)")


@pytest.mark.parametrize("renderer_type", [plain.PlainRenderer, plain.JsonRenderer, LiveRenderer])
def test_all_events_of_a_command_pass_one_bus(renderer_type):
    """A bus delivers one event at a time; with two buses, the lines of two threads could mix."""
    renderer = renderer_type()
    assert renderer.bus is renderer.bus


def test_json_renderer_prints_events(capsys):
    with command_context("--json"):
        render(plain.progress_renderer(), StepFinished(step="a", title="A", seconds=1.0, at=5.0))
    assert json.loads(capsys.readouterr().err)["event"] == "step.finished"


@pytest.mark.parametrize("args", [["-q"], ["--quiet"], ["-q", "--json"]], ids=" ".join)
def test_quiet_reports_only_lost_checkpoints(capsys, args):
    """A lost checkpoint is not progress: the user may have to act."""
    damage = StoreDamaged(path="s.db", backup_path="s.db.damaged-1", reason="malformed", lost=("a",))
    with command_context(*args):
        render(
            plain.progress_renderer(),
            StepStarted(step="a", title="Network"),
            StepFinished(step="a", title="Network", seconds=1.25),
            RetryScheduled(operation="c", attempt=1, delay=0.5, reason="reset"),
            damage,
        )
    (line,) = capsys.readouterr().err.splitlines()
    assert "s.db.damaged-1" in line
    assert line.startswith("{") is ("--json" in args)


@pytest.mark.parametrize(("args", "expected"), [(["--json"], '{"a":1}\n'), ([], "one\ntwo\n")])
def test_result_is_printed_as_json_or_as_lines(capsys, args, expected):
    with command_context(*args):
        print_result({"a": 1}, ["one", "two"])
    assert capsys.readouterr().out == expected


def test_table_columns_are_aligned():
    assert format_table([("NAME", "STATE"), ("a", "up"), ("longer", "")]) == [
        "NAME    STATE",
        "a       up",
        "longer",
    ]


def planned_step(name, action, reason, **fields):
    return PlannedStep(step=name, title=name.title(), action=action, reason=reason, **fields)


SKIPPED = planned_step("network", "skip", "it exists")
RECREATED = planned_step("container", "run", "its settings differ", touches=("the container",))
DEPENDING = planned_step("start", "verify", "depends on Container", unsure=True)
PORT = SettingChange(setting="port", current="26443", desired="27000")


def print_plan_of(steps, *, verbose=False, **fields):
    """Print a plan of gateway dev and return the exit code."""
    with command_context():
        try:
            plain.print_plan(GatewayPlan("up", tuple(steps), gateway="dev", **fields), verbose=verbose)
        except click.exceptions.Exit as ended:
            return ended.exit_code
        return 0


def test_plan_shows_summary_then_settings_then_changes(capsys):
    assert print_plan_of([SKIPPED, RECREATED, DEPENDING], effect="restarts", settings=(PORT,)) == 5
    assert capsys.readouterr().out.splitlines() == [
        "Gateway dev: 1 change; the gateway restarts",
        "  port: 26443 -> 27000",
        "  Container: its settings differ",
        "    touches the container",
    ]


def test_verbose_plan_shows_every_step(capsys):
    assert print_plan_of([SKIPPED, RECREATED, DEPENDING], verbose=True, effect="starts") == 5
    assert capsys.readouterr().out.splitlines() == [
        "Gateway dev: 1 change; the gateway starts",
        "  skip    Network: it exists",
        "  run     Container: its settings differ",
        "    touches the container",
        "  verify  Start: depends on Container",
    ]


def test_plan_without_changes_is_one_line(capsys):
    assert print_plan_of([SKIPPED]) == 0
    assert capsys.readouterr().out == "Gateway dev: no changes\n"


def test_plan_lists_unknown_steps_if_no_other_step_changes_anything(capsys):
    unknown = planned_step("start", "verify", "state unknown: no answer", unsure=True)
    assert print_plan_of([SKIPPED, unknown]) == 5
    assert capsys.readouterr().out.splitlines() == [
        "Gateway dev: perhaps changes; the gateway keeps its state",
        "  Start: state unknown: no answer",
    ]
