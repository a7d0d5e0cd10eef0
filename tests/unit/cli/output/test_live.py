"""The live display: running steps below, permanent lines above; every line fits into the terminal."""

import click
import pytest

from holdfast.cli.output.live import LiveRenderer
from holdfast.events import (
    RetryScheduled,
    RunFailed,
    RunStarted,
    StepFailed,
    StepFinished,
    StepProgress,
    StepStarted,
)

WIDTHS = [40, 80, 200]
NOW = 1000.0
LONG = "docker.io/library/some-very-long-repository-name/with-parts:and-a-tag " * 5


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock of the display; the test sets `clock[0]`."""
    times = [NOW]
    monkeypatch.setattr("holdfast.cli.output.live.time.monotonic", lambda: times[0])
    return times


class TrackedEvents(LiveRenderer):
    """A live renderer that prints nothing: the test reads its lines."""

    def __init__(self, *events):
        super().__init__()
        for event in events:
            self(event)

    def __call__(self, event):
        self._track(event, self.now())

    @staticmethod
    def now():
        from holdfast.cli.output import live

        return live.time.monotonic()

    def lines(self, columns=80):
        return [line.plain for line in self.live_lines(self.now(), columns)]


def started(title="Image", step="a"):
    return StepStarted(step=step, title=title)


def progress(message="", fraction=None, step="a"):
    return StepProgress(step=step, message=message, fraction=fraction)


def retry(reason="connection refused", delay=3.0, attempts=4):
    return RetryScheduled(operation="connect", attempt=1, delay=delay, reason=reason, attempts=attempts)


@pytest.mark.parametrize("text", ["[/]", "[red]alarm", "[bold", "a [/red] b", "[link=x]"])
def test_markup_in_messages_is_not_interpreted(clock, capsys, text):
    """Titles and messages can contain output of other programs."""
    display = TrackedEvents(started(f"Title {text}"), progress(f"Message {text}"))
    (line,) = display.lines(200)
    assert f"Title {text}  Message {text}" in line
    with LiveRenderer() as renderer:
        renderer(StepFailed(step="a", title=f"Title {text}", seconds=0.1, code="x", error="no"))
    assert f"Title {text}" in capsys.readouterr().err


def test_messages_of_several_lines_with_colours_become_one_plain_line(clock):
    display = TrackedEvents(started(), progress("one\n\x1b[31mtwo\x1b[0m\tthree"))
    assert "one two three" in display.lines()[0]


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("fraction", [None, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("message", ["", "12 of 40 MB, 5 MB/s", LONG])
@pytest.mark.parametrize("title", ["Image", LONG])
def test_step_line_fits_and_ends_with_elapsed_time(clock, columns, fraction, message, title):
    display = TrackedEvents(started(title), progress(message, fraction))
    clock[0] += 83.5
    (line,) = display.live_lines(clock[0], columns)
    assert line.cell_len <= columns
    assert line.plain.endswith("  1:23")
    assert line.plain[2:7] in {"Image", title[:5]}
    assert ("…" in line.plain) or LONG not in {title, message}


def test_lines_fit_into_the_smallest_terminal(clock):
    display = TrackedEvents(started(), progress(LONG, 0.5), retry())
    for columns in range(1, 40):
        assert all(line.cell_len <= columns for line in display.live_lines(NOW, columns))


@pytest.mark.parametrize("columns", WIDTHS)
def test_bar_percentage_and_remaining_time_of_a_transfer(clock, columns):
    display = TrackedEvents(started("Image"), progress("0 of 40 MB", 0.0))
    clock[0] += 10
    display(progress("10 of 40 MB, 1 MB/s", 0.25))
    (line,) = display.lines(columns)
    assert " 25%  0:30 left  0:10" in line
    assert line.count("━") == (20 if columns >= 80 else 0)


def test_remaining_time_starts_again_with_the_next_image(clock):
    display = TrackedEvents(started("Image"), progress("one", 0.0))
    clock[0] += 10
    display(progress("one", 0.9))
    assert "0:01 left" in display.lines()[0]
    display(progress("two", 0.1))
    assert "left" not in display.lines()[0]
    clock[0] += 10
    display(progress("two", 0.5))
    assert "0:12 left" in display.lines()[0]


def test_retry_counts_down_with_its_reason(clock):
    display = TrackedEvents(started(), retry())
    for seconds in (3, 2, 1):
        assert display.lines()[1:] == [f"  retry in {seconds} s: connection refused (attempt 2 of 4)"]
        clock[0] += 1
    assert len(display.lines()) == 1


@pytest.mark.parametrize("columns", WIDTHS)
def test_long_reason_of_a_retry_is_cut_with_an_ellipsis(clock, columns):
    _, line = TrackedEvents(started(), retry(LONG)).live_lines(NOW, columns)
    assert line.cell_len <= columns
    assert line.plain.startswith("  retry in 3 s: d")
    assert line.plain.endswith("… (attempt 2 of 4)")


def test_retry_until_a_deadline_has_no_limit_of_attempts(clock):
    display = TrackedEvents(started(), retry(attempts=None))
    assert display.lines()[1] == "  retry in 3 s: connection refused (attempt 2)"


@pytest.mark.parametrize(("events", "delay"), [([], 3.0), ([started()], 0.0)], ids=["no-step", "no-delay"])
def test_retry_without_countdown_leaves_a_permanent_line(clock, capsys, events, delay):
    """Without a running step there is no display: the output of a program may be on the terminal."""
    with LiveRenderer() as renderer:
        for event in (*events, retry(delay=delay)):
            renderer(event)
    when = "in 3 s" if delay else "now"
    assert f"  … retry {when}: connection refused (attempt 2 of 4)" in capsys.readouterr().err


@pytest.mark.parametrize("fraction", [None, 0.5])
def test_finished_step_leaves_a_permanent_line(capsys, fraction):
    with LiveRenderer() as renderer:
        renderer(started("Network"))
        renderer(progress("half", fraction))
        renderer(StepFinished(step="a", title="Network", seconds=1.0))
    assert "Network" in capsys.readouterr().err


def test_paused_display_does_not_erase_a_question(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then writes control sequences, as on a terminal
    with LiveRenderer() as renderer:
        renderer(started())
        with renderer.pause():
            click.echo("Delete it? [y/N]: ", err=True, nl=False)
            renderer(progress("half"))
            assert capsys.readouterr().err.endswith("Delete it? [y/N]: ")
        assert "Image" in capsys.readouterr().err


def test_end_of_run_removes_its_steps(clock):
    """A cancelled step reports no end, and the next run may start it again."""
    failed = RunFailed(run="1", seconds=1.0, step="b", code="x", error="cut")
    display = TrackedEvents()
    for end in (failed, RunStarted(run="2", command="up", subject="dev")):
        display(started())
        display(retry())
        display(end)
        assert display.lines() == []
    display(started())
    display(started())
    assert len(display.lines()) == 1


def test_hidden_step_leaves_no_line_and_no_task(clock, capsys):
    """`up` hides steps that change nothing: their events have no title."""
    with LiveRenderer() as renderer:
        renderer(started("Network"))
        renderer(StepFinished(step="a", title="", seconds=1.0, changed=False))
        assert renderer.live_lines(NOW, 80) == []
    assert "✓" not in capsys.readouterr().err
