"""`holdfast sandbox cp`: copy files and directories into or out of a sandbox."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from holdfast import home
from holdfast.cli.checked_type import show_value
from holdfast.cli.click_extensions import complete_with, is_json_requested
from holdfast.cli.output import echo, print_result
from holdfast.cli.parameters import PATH
from holdfast.cli.sandbox.common import ProgressStep, open_sandbox, progress_step, sandbox_options
from holdfast.errors import DiskFullError, PermanentError, UsageError
from holdfast.events import EventBus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO, TextIO

    from holdfast.cli.output import ProgressRenderer
    from holdfast.client import Sandbox

_SANDBOX_PATH = re.compile(r"([a-z0-9][-a-z0-9]{0,62}):(.*)", re.DOTALL)
_KIB = 1024.0
_MAX_MEMORY_BYTES = 8 << 20


@click.command("cp")
@click.argument("source", type=PATH, metavar="SOURCE", shell_complete=complete_with("complete_copy_paths"))
@click.argument("target", type=PATH, metavar="TARGET", shell_complete=complete_with("complete_copy_paths"))
@sandbox_options
@click.pass_context
def copy(ctx: click.Context, source: str, target: str, gateway: str | None) -> None:
    """Copy the file or directory SOURCE to TARGET. One of the two is NAME:PATH, a path in sandbox NAME.

    A relative PATH starts in /sandbox. TARGET is the path of the copy. If it ends in /, or is ., the copy is
    placed inside it. An existing directory TARGET receives a file; a directory SOURCE is merged with it, so
    that the same command can be repeated after an interruption. A local directory is merged only if it is
    empty or an earlier copy of SOURCE; otherwise the copy is placed inside it.

    If SOURCE is -, the content is read from stdin. If TARGET is -, the content of a file
    is written to stdout.

    Start a local path that contains a colon with ./. Links that point outside the copy, such as a link to
    /etc, are skipped and listed, and the exit code is 1.
    """
    remote_source, remote_target = _SANDBOX_PATH.fullmatch(source), _SANDBOX_PATH.fullmatch(target)
    remote = remote_source or remote_target
    if remote is None or (remote_source and remote_target):
        raise UsageError(
            f"{show_value(source)} {show_value(target)}: exactly one of the two must be a path in a sandbox",
            hint="Write the path in the sandbox as NAME:PATH.",
        )
    name, path = remote[1], remote[2] or "."
    if target == "-":
        _write_to_stdout(name, path, gateway)
        return
    if source == "-":
        _read_from_stdin(name, path, gateway)
        return
    with (
        open_sandbox(name, gateway) as (sandbox, renderer),
        progress_step(renderer, "copy", f"{source} → {target}") as step,
    ):
        if remote_source:
            result = sandbox.download(
                path, target, progress=_progress_callback(step, _remote_size(sandbox, path))
            )
        else:
            result = sandbox.upload(source, path, progress=_progress_callback(step, _local_size(source)))
        entries = "1 entry" if result.entries == 1 else f"{result.entries} entries"
        step.note = f"{entries}, {_format_bytes(result.bytes)}"
    for entry in result.skipped:
        echo(f"skipped: {entry}", err=True)
    print_result(result, [f"Copied {entries} to {result.target}."])
    ctx.exit(1 if result.skipped else 0)


def _write_to_stdout(name: str, path: str, gateway: str | None) -> None:
    if is_json_requested():
        raise UsageError("--json: cannot be combined with the target -", hint="Omit --json.")
    with (
        open_sandbox(name, gateway) as (sandbox, renderer),
        _stream_step(renderer, f"{name}:{path} → -", sys.stdout) as step,
    ):
        report = _progress_callback(step, _remote_size(sandbox, path))
        for chunk in sandbox.files.stream(path):
            sys.stdout.buffer.write(chunk)
            report(len(chunk))
        sys.stdout.buffer.flush()


def _read_from_stdin(name: str, path: str, gateway: str | None) -> None:
    from holdfast.client import CopyResult

    # The size is sent first, so that a lost connection cannot look like the end of the input.
    with (
        tempfile.SpooledTemporaryFile(_MAX_MEMORY_BYTES) as file,
        open_sandbox(name, gateway) as (sandbox, renderer),
        _stream_step(renderer, f"- → {name}:{path}", sys.stdin) as step,
    ):
        try:
            shutil.copyfileobj(_CountedFile(sys.stdin.buffer, _progress_callback(step, 0)), file)
            size = file.tell()
            file.seek(0)
        except OSError as error:
            if error.errno not in home.NO_SPACE_ERRNOS:
                raise
            raise DiskFullError(f"{tempfile.gettempdir()}: no space left for the input") from error
        counted = _CountedFile(cast("BinaryIO", file), _progress_callback(step, size))
        entry = sandbox.files.write(path, cast("BinaryIO", counted))
        step.note = _format_bytes(entry.size)
    result = CopyResult(entries=1, bytes=entry.size, target=f"{name}:{entry.path}")
    print_result(result, [f"Copied {_format_bytes(entry.size)} to {result.target}."])


@contextmanager
def _stream_step(renderer: ProgressRenderer, title: str, stream: TextIO) -> Iterator[ProgressStep]:
    """Report a copy from or to a stream; not if it is a terminal, which would show both."""
    if stream.isatty():
        yield ProgressStep(EventBus(), "copy")
        return
    with progress_step(renderer, "copy", title) as step:
        yield step


class _CountedFile:
    """A file that reports the size of each piece that is read from it."""

    def __init__(self, file: BinaryIO, report: Callable[[int], None]) -> None:
        self._file = file
        self._report = report

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self._report(len(piece))
        return piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _progress_callback(step: ProgressStep, total: int) -> Callable[[int], None]:
    done, started = 0, time.monotonic()

    def report(count: int) -> None:
        nonlocal done
        done += count
        elapsed = time.monotonic() - started
        speed = f", {_format_bytes(done / elapsed)}/s" if elapsed >= 1 else ""
        if total:
            step.progress(f"{_format_bytes(done)} of {_format_bytes(total)}{speed}", min(done / total, 1.0))
        else:
            step.progress(f"{_format_bytes(done)}{speed}")

    return report


def _local_size(source: str) -> int:
    from holdfast.client import content_size

    try:
        return content_size(Path(source))
    except OSError:
        return 0  # the copy itself reports a missing source


def _remote_size(sandbox: Sandbox, path: str) -> int:
    """Size of a file in the sandbox; 0 if it is unknown, as that of a directory."""
    try:
        entry = sandbox.files.stat(path)
    except PermanentError:
        return 0  # the copy itself reports the cause
    return entry.size if entry.type == "file" else 0


def _format_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < _KIB:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KIB
    return f"{count:.1f} GiB"
