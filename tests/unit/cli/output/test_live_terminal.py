"""Commands on a real pseudo-terminal: widths, NO_COLOR, TERM=dumb, pipes, CI, and Ctrl-C once and twice."""

import os
import re
import subprocess
import sys
import threading

import pytest
from tests.support.pseudo_terminal import ProgramOnTerminal, Screen

PROGRAM = """
import sys
import threading

import click

from holdfast import Workflow
from holdfast.cli.click_extensions import json_option
from holdfast.cli.output import print_result, progress_renderer, run_command
from holdfast.errors import PermanentError
from holdfast.events import RetryScheduled, StepFinished, StepProgress, StepSkipped, StepStarted
from holdfast.workflow import MemoryStore, Step, absent

LONG = "a message that is too long for every terminal " * 10


class Blocked(Step):
    name = "blocked"
    title = "Blocked"

    def probe(self, ctx):
        return absent("it never ends")

    def run(self, ctx):
        ctx.progress("it waits for ever", 0.5)
        threading.Event().wait()


@click.group()
def cli():
    pass


@cli.command()
@click.argument("wait", required=False)
@json_option
def transfer(wait):
    with progress_renderer() as renderer:
        emit = renderer.bus.emit
        emit(StepStarted(step="a", title="Image"))
        for number in range(1, 50):
            emit(StepProgress(step="a", message=f"{number} of 50 MB, 12 MB/s, {LONG}", fraction=number / 50))
        emit(StepStarted(step="b", title=LONG))
        emit(RetryScheduled(operation="connect", attempt=1, delay=60, reason=LONG, attempts=4))
        if wait:
            threading.Event().wait()
        emit(StepFinished(step="a", title="Image", seconds=1.0))
        emit(StepFinished(step="b", title="Node", seconds=1.0))
        print_result({"state": "ready"}, [click.style("ready", fg="green")])


@cli.command()
@json_option
def fail():
    raise PermanentError(f"{click.style('it', fg='red')} broke", hint="Repair it.")


@cli.command()
@json_option
def hostile():
    sequence = "clipboard \\x1b]52;c;ZXZpbA==\\x07 \\x9b2J \\x1b[8m \\x1b[2J end"
    with progress_renderer() as renderer:
        emit = renderer.bus.emit
        emit(StepStarted(step="a", title=sequence))
        emit(StepProgress(step="a", message=sequence, fraction=0.5))
        emit(RetryScheduled(operation="a", attempt=1, delay=60, reason=sequence))
        emit(RetryScheduled(operation="b", attempt=1, delay=0, reason=sequence))
        emit(StepSkipped(step="b", title=sequence, reason=sequence))
        emit(StepFinished(step="a", title="Image", seconds=1.0, note=sequence))
    print_result({}, [f"{click.style('result', fg='green')} {sequence}"])
    raise PermanentError(f"it broke: {sequence}\\nsecond line", hint=sequence)


@cli.command()
def pause():
    with progress_renderer() as renderer:
        renderer.bus.emit(StepStarted(step="a", title="Waiting"))
        threading.Event().wait()


@cli.command()
def run():
    with progress_renderer() as renderer:
        Workflow("w", [Blocked()]).run(store=MemoryStore(), bus=renderer.bus)


sys.exit(run_command(cli))
"""
PLAIN_ENVIRONMENTS = [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}, {"CI": "true"}]
WIDTHS = [40, 80, 200]


@pytest.fixture
def environment(tmp_path):
    """A capable terminal, regardless of the terminal that runs the tests."""
    hidden = {"NO_COLOR", "CI", "FORCE_COLOR", "COLUMNS", "LINES"}
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**inherited, "TERM": "xterm-256color", "HOLDFAST_HOME": str(tmp_path)}


@pytest.fixture
def start(tmp_path, environment):
    """Start a command of the program on a terminal."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def start(*words, columns=80, **variables):
        argv = [sys.executable, str(program), *words]
        return ProgramOnTerminal(argv, {**environment, **variables}, columns)

    return start


@pytest.mark.parametrize("columns", WIDTHS)
def test_live_lines_never_wrap_and_disappear(start, columns):
    terminal = start("transfer", columns=columns)
    output = terminal.read_rest()
    assert terminal.wait_exit_code() == 0
    assert b"\x1b[?25l" in output, "there was no live display"
    screen = Screen(output, columns)
    assert screen.wrapped == 0
    assert screen.cursor_visible
    assert screen.lines == ["✓ Image (1.0 s)", "✓ Node (1.0 s)", "ready"]


@pytest.mark.parametrize("columns", WIDTHS)
def test_running_steps_and_retry_are_shown_on_one_line_each(start, columns):
    terminal = start("transfer", "wait", columns=columns)
    terminal.wait_for(rb"(?s).*?retry in 60 s")
    output = terminal.wait_for(rb"(?s)\x1b\[2K.*?retry in 60 s.*?\(attempt 2 of 4\)")[0]
    terminal.type("\x03")
    assert terminal.wait_exit_code() == 130
    screen = Screen(output, columns)
    assert screen.wrapped == 0
    image, title, retry = screen.lines
    assert re.match(r". Image  49 of", image)
    assert " 98%  " in image
    assert image.endswith("0:00")
    assert ("━" in image) is (columns >= 80)
    assert re.match(r". a message", title)
    assert "…" in title
    assert retry.startswith("  retry in 60 s: a")
    assert retry.endswith("… (attempt 2 of 4)")


@pytest.mark.parametrize("variables", PLAIN_ENVIRONMENTS, ids=str)
@pytest.mark.parametrize("words", [["transfer"], ["fail"]], ids=" ".join)
def test_no_escape_sequences_without_a_capable_terminal(start, variables, words):
    """Neither progress nor results nor errors contain colours or cursor movements."""
    terminal = start(*words, **variables)
    output = terminal.read_rest()
    assert b"\x1b" not in output
    expected = {"transfer": "✓ Node (1.0 s)\r\nready", "fail": "x it broke [permanent]\r\n  Repair it."}
    assert expected[words[0]] in output.decode()


@pytest.mark.parametrize("variables", [{}, *PLAIN_ENVIRONMENTS], ids=str)
def test_control_characters_of_other_programs_are_escaped(start, variables):
    """Reasons of Kubernetes and last lines of programs can contain what programs in a sandbox print."""
    output = start("hostile", columns=200, **variables).read_rest().decode()
    foreign = re.sub(r"\x1b\[(\?25[hl]|1A|2K|[0-36]*m)", "", output)
    assert not set(foreign) & {"\x1b", "\x07", "\x9b"}, foreign
    assert foreign.count(r"clipboard \x1b]52;c;ZXZpbA==\x07 \x9b2J ") >= 6
    assert "second line" in output.splitlines()[-2]
    assert ("\x1b[32mresult" in output) is (not variables)


def test_doctor_prints_no_escape_sequences_with_no_color(environment):
    """`doctor` of a gateway that does not exist reports findings on stdout."""
    argv = [sys.executable, "-m", "holdfast.cli", "doctor", "ghost"]
    endpoint = {"DOCKER_HOST": f"unix://{environment['HOLDFAST_HOME']}/no.sock"}
    output = {
        color: ProgramOnTerminal(argv, {**environment, **endpoint, **variables}, 80).read_rest()
        for color, variables in (("with", {}), ("without", {"NO_COLOR": "1"}))
    }
    assert b"\x1b[31m" in output["with"]
    assert b"\x1b" not in output["without"]


def test_no_escape_sequences_in_pipes(start, environment, tmp_path):
    start("fail").read_rest()
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), "transfer"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "\x1b" not in ended.stdout + ended.stderr
    assert ended.stdout == "ready\n"
    assert "✓ Image (1.0 s)" in ended.stderr


def test_quiet_prints_results_and_errors_only(start):
    assert Screen(start("transfer", "-q").read_rest(), 80).lines == ["ready"]
    assert Screen(start("fail", "--quiet").read_rest(), 80).lines == [
        "x it broke [permanent]",
        "  Repair it.",
    ]


@pytest.mark.parametrize("columns", WIDTHS)
def test_interrupt_restores_the_terminal(start, columns):
    terminal = start("pause", columns=columns)
    terminal.wait_for(rb"Waiting")
    terminal.type("\x03")
    screen = Screen(terminal.read_rest(), columns)
    assert terminal.wait_exit_code() == 130
    assert screen.cursor_visible
    assert "x interrupted [interrupted]" in screen.lines


@pytest.mark.parametrize("columns", WIDTHS)
def test_second_interrupt_ends_a_run_and_restores_the_terminal(start, columns):
    """The first Ctrl-C waits for the running effect, which never ends here."""
    terminal = start("run", columns=columns)
    frame_or_end = rb"(?s).*?(it waits for|stopped.*?\r\n)"
    while b"stopped" not in (output := terminal.wait_for(frame_or_end)[0]):
        # After a frame: two signals at the same moment count as one.
        terminal.type("\x03")
    screen = Screen(output, columns)
    assert terminal.wait_exit_code() == 130
    assert screen.cursor_visible
    assert any("stopped immediately by Ctrl-C" in line for line in screen.lines)


def test_progress_of_another_thread_reaches_the_display(capsys):
    from holdfast.cli.output.live import LiveRenderer
    from holdfast.events import StepFinished

    with LiveRenderer() as renderer:
        event = StepFinished(step="a", title="Network", seconds=1.0)
        thread = threading.Thread(target=renderer.bus.emit, args=(event,))
        thread.start()
        thread.join()
    assert "Network" in capsys.readouterr().err
