"""What `sandbox cp` reports while it copies: bytes and speed."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from holdfast.cli.output import JsonRenderer, PlainRenderer
from holdfast.cli.sandbox import cp
from holdfast.client import CopyResult
from holdfast.errors import PathNotFoundError
from holdfast.events import EventBus, StepProgress

MIB = 1 << 20


class RecordingStep:
    def __init__(self):
        self.reports = []

    def progress(self, message, fraction=None):
        self.reports.append((message, fraction))


@pytest.mark.parametrize(
    ("total", "expected"),
    [(8 * MIB, ("4.0 MiB of 8.0 MiB, 2.0 MiB/s", 0.5)), (0, ("4.0 MiB, 2.0 MiB/s", None))],
)
def test_progress_contains_the_speed(monkeypatch, total, expected):
    now = [100.0]
    monkeypatch.setattr(cp.time, "monotonic", lambda: now[0])
    step = RecordingStep()
    report = cp._progress_callback(step, total)
    now[0] += 2
    report(4 * MIB)
    assert step.reports == [expected]


class Files:
    """The files of a sandbox with one file of 4 MiB and a directory."""

    def __init__(self):
        self.written = b""

    def stat(self, path):
        if path == "missing":
            raise PathNotFoundError("sandbox a: missing: does not exist")
        return SimpleNamespace(type="directory" if path == "tree" else "file", size=4 * MIB)

    def stream(self, path):
        yield b"x" * MIB
        yield b"y" * MIB

    def write(self, path, file):
        while piece := file.read(MIB):
            self.written += piece
        return SimpleNamespace(size=len(self.written), path=f"/sandbox/{path}")


class Sandbox:
    def __init__(self):
        self.files = Files()

    def download(self, path, target, *, progress):
        progress(MIB)
        return CopyResult(entries=1, bytes=MIB, target=target)


@pytest.fixture
def copy(monkeypatch):
    """Run `sandbox cp`; return its events and the sandbox."""
    monkeypatch.setattr("holdfast.cli.sandbox.common._REPORT_INTERVAL", 0)

    def run(*words, stdin=b""):
        sandbox, events = Sandbox(), []

        @contextmanager
        def open_sandbox(name, gateway):
            with JsonRenderer() as renderer:
                renderer.bus = EventBus(events.append)
                yield sandbox, renderer

        monkeypatch.setattr(cp, "open_sandbox", open_sandbox)
        ended = CliRunner().invoke(cp.copy, words, input=stdin)
        assert ended.exit_code == 0, ended.output
        return [event for event in events if isinstance(event, StepProgress)], sandbox, ended

    return run


@pytest.mark.parametrize(
    ("path", "message", "fraction"),
    [("file", "1.0 MiB of 4.0 MiB", 0.25), ("tree", "1.0 MiB", None), ("missing", "1.0 MiB", None)],
)
def test_download_shows_the_size_of_a_file(copy, tmp_path, path, message, fraction):
    (event,), _, _ = copy(f"a:{path}", str(tmp_path))
    assert (event.message, event.fraction) == (message, fraction)


def test_copy_to_stdout_reports_progress(copy):
    events, _, ended = copy("a:file", "-")
    assert [event.fraction for event in events] == [0.25, 0.5]
    assert ended.stdout_bytes == b"x" * MIB + b"y" * MIB


def test_copy_from_stdin_reports_what_is_read_and_what_is_sent(copy):
    events, sandbox, _ = copy("-", "a:file", stdin=b"z" * 2 * MIB)
    assert sandbox.files.written == b"z" * 2 * MIB
    assert [event.message for event in events if event.fraction is None][-1] == "2.0 MiB"
    assert [event.fraction for event in events if event.fraction is not None][:2] == [0.5, 1.0]


def test_copy_to_a_terminal_prints_no_progress(capsys):
    terminal = SimpleNamespace(isatty=lambda: True)
    with PlainRenderer() as renderer, cp._stream_step(renderer, "a:file → -", terminal) as step:
        step.progress("1.0 MiB", 0.5)
    assert capsys.readouterr().err == ""
