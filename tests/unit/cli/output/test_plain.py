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
        "  … reset; try 2 in 0.5 s",
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


@pytest.mark.parametrize("has_changes", [True, False])
def test_plan_with_changes_exits_with_5(has_changes):
    class FakePlan(list):
        pass

    plan = FakePlan()
    plan.has_changes = has_changes
    with command_context():
        if has_changes:
            with pytest.raises(click.exceptions.Exit) as raised:
                plain.print_plan(plan)
            assert raised.value.exit_code == 5
        else:
            plain.print_plan(plan)
