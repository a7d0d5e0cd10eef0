"""The live display: running steps below, permanent lines above."""

import click
import pytest

from holdfast.cli.output.live import LiveRenderer
from holdfast.events import RunFailed, RunStarted, StepFailed, StepFinished, StepProgress, StepStarted


def column_texts(renderer, index):
    column = renderer._bars.make_tasks_table(renderer._bars.tasks).columns[index]
    return [str(cell) for cell in column._cells]


@pytest.mark.parametrize("text", ["[/]", "[red]alarm", "[bold", "a [/red] b", "[link=x]"])
def test_markup_in_messages_is_not_interpreted(capsys, monkeypatch, text):
    """Titles and messages can contain output of other programs."""
    monkeypatch.setenv("COLUMNS", "200")
    with LiveRenderer() as renderer:
        renderer(StepStarted(step="a", title=f"Title {text}"))
        renderer(StepProgress(step="a", message=f"Message {text}"))
        assert column_texts(renderer, 1) == [f"Title {text}"]
        assert column_texts(renderer, 3) == [f"Message {text}"]
        renderer(StepFailed(step="a", title=f"Title {text}", seconds=0.1, code="x", error="no"))
    assert f"Title {text}" in capsys.readouterr().err


@pytest.mark.parametrize("fraction", [None, 0.5])
def test_finished_step_leaves_a_permanent_line(capsys, fraction):
    with LiveRenderer() as renderer:
        renderer(StepStarted(step="a", title="Network"))
        renderer(StepProgress(step="a", message="half", fraction=fraction))
        renderer(StepFinished(step="a", title="Network", seconds=1.0))
    assert "Network" in capsys.readouterr().err


def test_paused_display_does_not_erase_a_question(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then writes control sequences, as on a terminal
    with LiveRenderer() as renderer, renderer.pause():
        click.echo("Delete it? [y/N]: ", err=True, nl=False)
        renderer._bars.refresh()
        assert capsys.readouterr().err.endswith("Delete it? [y/N]: ")


def test_end_of_run_removes_its_steps():
    """A cancelled step reports no end, and the next run may start it again."""
    started = StepStarted(step="a", title="Image")
    failed = RunFailed(run="1", seconds=1.0, step="b", code="x", error="cut")
    with LiveRenderer() as renderer:
        for end in (failed, RunStarted(run="2", command="up", subject="dev")):
            renderer(started)
            renderer(end)
            assert renderer._bars.tasks == []
        renderer(started)
        renderer(started)
        assert len(renderer._bars.tasks) == 1


def test_hidden_step_leaves_no_line_and_no_task(capsys):
    """`up` hides steps that change nothing: their events have no title."""
    with LiveRenderer() as renderer:
        renderer(StepStarted(step="a", title="Network"))
        renderer(StepFinished(step="a", title="", seconds=1.0, changed=False))
    assert "✓" not in capsys.readouterr().err
