"""`sandbox cp` lists the entries that it has not copied, and its exit code is 1."""

from contextlib import contextmanager

from holdfast.cli import cli
from holdfast.cli.output import progress_renderer, run_command
from holdfast.cli.sandbox import cp
from holdfast.client import CopyResult


class Sandbox:
    """A sandbox that skips these entries of an upload."""

    def __init__(self, skipped):
        self.skipped = skipped

    def upload(self, source, path, *, progress):
        return CopyResult(entries=1, bytes=0, target=f"a:{path}", skipped=self.skipped)


def copy_with(monkeypatch, tmp_path, skipped):
    @contextmanager
    def open_sandbox(name, gateway):
        with progress_renderer() as renderer:
            yield Sandbox(skipped), renderer

    monkeypatch.setattr(cp, "open_sandbox", open_sandbox)
    return run_command(cli, ["sandbox", "cp", str(tmp_path), "a:tree"])


def test_skipped_entries_are_listed(monkeypatch, capsys, tmp_path):
    entries = ["out: links outside the copy", "\x1b[2J: links outside the copy"]
    assert copy_with(monkeypatch, tmp_path, entries) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "skipped: out: links outside the copy" in lines
    assert "skipped: \\x1b[2J: links outside the copy" in lines


def test_complete_copy_is_a_success(monkeypatch, capsys, tmp_path):
    assert copy_with(monkeypatch, tmp_path, []) == 0
    assert "skipped" not in capsys.readouterr().err
