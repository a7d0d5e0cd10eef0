"""Progress: one line for what ended, signs of life for what takes long, JSON for programs."""

import json

import pytest

from holdfast.cli import progress
from holdfast.events import (
    RetryScheduled,
    RunFailed,
    RunStarted,
    StepFailed,
    StepFinished,
    StepProgress,
    StepSkipped,
    StepStarted,
    StoreDamaged,
)


def draw(subscriber, *events):
    with subscriber as shown:
        for event in events:
            shown(event)


def test_plain_lines_say_what_was_done_skipped_and_failed(capsys):
    draw(
        progress.PlainProgress(),
        StepStarted(step="a", title="Network"),
        StepFinished(step="a", title="Network", seconds=1.25, note="made"),
        StepSkipped(step="b", title="Volume", reason="it is there"),
        StepFailed(step="c", title="Start", seconds=0.1, code="x", error="no"),
        RetryScheduled(operation="c", attempt=1, delay=0.5, reason="reset"),
    )
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "✓ Network: made (1.2 s)",
        "✓ Volume: skipped: it is there",
        "x Start (0.1 s)",
        "  … reset; try 2 in 0.5 s",
    ]


@pytest.mark.parametrize("draws", ["plain", "live"])
def test_a_damaged_store_is_told_with_what_was_lost(capsys, monkeypatch, draws):
    from holdfast.cli.live import LiveProgress

    monkeypatch.setenv("COLUMNS", "400")
    lost = tuple(f"step-{n}" for n in range(22))
    draw(
        progress.PlainProgress() if draws == "plain" else LiveProgress(),
        StoreDamaged(path="s.db", aside="s.db.damaged-1", reason="malformed", kept=2, lost=lost),
    )
    said = capsys.readouterr().err
    assert "! s.db was damaged (malformed) and set aside as s.db.damaged-1; records of 2 steps" in said
    assert "lost: step-0, step-1, " in said
    assert "step-19 and 2 more" in said


@pytest.mark.parametrize("words", ["[/]", "[red]alarm", "[bold", "a [/red] b", "[link=x]"])
def test_brackets_from_outside_are_shown_and_harm_nothing(capsys, monkeypatch, words):
    """What a pull or a container says may look like the markup of the library that draws it."""
    from holdfast.cli.live import LiveProgress

    monkeypatch.setenv("COLUMNS", "200")
    with LiveProgress() as shown:
        shown(StepStarted(step="a", title=f"Title {words}"))
        shown(StepProgress(step="a", message=f"Message {words}"))
        (drawn,) = [
            str(cell)
            for column in shown._bars.make_tasks_table(shown._bars.tasks).columns[1:2]
            for cell in column._cells
        ]
        (said,) = [
            str(cell)
            for column in shown._bars.make_tasks_table(shown._bars.tasks).columns[3:4]
            for cell in column._cells
        ]
        shown(StepFailed(step="a", title=f"Title {words}", seconds=0.1, code="x", error="no"))
    assert (drawn, said) == (f"Title {words}", f"Message {words}")
    assert f"Title {words}" in capsys.readouterr().err


def test_a_long_step_gives_a_sign_of_life_now_and_then(capsys, monkeypatch):
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    draw(
        progress.PlainProgress(),
        *(StepProgress(step="a", message=f"m{n}", fraction=n / 10) for n in range(10)),
    )
    lines = capsys.readouterr().err.splitlines()
    assert 1 < len(lines) < 6
    assert lines[0].endswith("%)")


def test_json_lines_are_events(capsys):
    draw(progress.JsonProgress(), StepFinished(step="a", title="A", seconds=1.0, at=5.0))
    assert json.loads(capsys.readouterr().err)["event"] == "step.finished"


@pytest.mark.parametrize("fraction", [None, 0.5])
def test_the_live_picture_ends_with_the_lines_that_stay(capsys, fraction):
    from holdfast.cli.live import LiveProgress

    draw(
        LiveProgress(),
        StepStarted(step="a", title="Network"),
        StepProgress(step="a", message="half", fraction=fraction),
        StepFinished(step="a", title="Network", seconds=1.0),
    )
    assert "Network" in capsys.readouterr().err


def test_no_step_of_a_run_that_ended_stays_in_the_live_picture():
    """A step that was held back when its run failed tells of no end, and a rerun may begin it again."""
    from holdfast.cli.live import LiveProgress

    failed = RunFailed(run="1", seconds=1.0, step="b", code="x", error="cut")
    again = RunStarted(run="2", command="up", subject="dev")
    with LiveProgress() as shown:
        for event in (StepStarted(step="a", title="Image"), failed):
            shown(event)
        assert shown._bars.tasks == []
        for event in (StepStarted(step="a", title="Image"), again):
            shown(event)
        assert shown._bars.tasks == []
        for _ in range(2):
            shown(StepStarted(step="a", title="Image"))
        assert len(shown._bars.tasks) == 1
