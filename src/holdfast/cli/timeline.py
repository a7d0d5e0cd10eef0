"""`holdfast timeline`: the timeline of a run as one HTML page."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import click

from holdfast import home
from holdfast.cli.checked_type import show_value
from holdfast.cli.click_extensions import (
    complete_with,
    flag_option,
    is_json_requested,
    is_quiet_requested,
    json_option,
)
from holdfast.cli.output import print_result
from holdfast.cli.parameters import FILE, RUN
from holdfast.cli.runs import TIMELINES, load_runs, page_name, store_options
from holdfast.errors import UsageError
from holdfast.timeline import build_timeline, earlier_run, find_run, render_page
from holdfast.workflow import SQLiteStore, with_recorded_steps

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.timeline import Timeline
    from holdfast.workflow import RunRecord

_STDOUT = "-"


@click.command()
@click.argument(
    "run_id", type=RUN, metavar="[RUN]", default="last", shell_complete=complete_with("complete_runs")
)
@store_options
@click.option(
    "--output", "-o", type=FILE, metavar="FILE",
    help="File to write, or - for stdout; default: a file in the state directory of holdfast.",
)  # fmt: skip
@click.option(
    "--compare", type=RUN, metavar="RUN", shell_complete=complete_with("complete_runs"),
    help="Run to compare with; default: the latest successful run of the same command before it.",
)  # fmt: skip
@flag_option("--open", "opens", text="Open the page in the browser.")
@json_option
def timeline(run_id: str, output: Path | None, compare: str | None, opens: bool) -> None:
    """Write the timeline of RUN as one HTML page, and print its path.

    RUN can be any part of the ID that occurs in no other run, or `last` (default) for the newest run. The
    page shows steps, retries, waits and errors. It needs no network.
    """
    is_stdout = str(output) == _STDOUT
    if is_stdout and (opens or is_json_requested()):
        option = "--open" if opens else "--json"
        raise UsageError(f"{option}: not with --output -", hint="Name a file with --output.")
    model = _read_timeline(run_id, compare)
    if is_stdout:
        click.echo(render_page(model), nl=False)
        return
    path = None
    if output is not None or opens or not is_json_requested():
        path = _write_page(model, output)
    print_result(model, [] if path is None else [click.format_filename(path)])
    if opens and path is not None:
        _open_browser(path)


def _read_timeline(run_id: str, compare: str | None) -> Timeline:
    loaded = load_runs()
    runs = [run for run, _ in loaded]
    run = find_run(runs, run_id)
    earlier = earlier_run(runs, run) if compare is None else find_run(runs, compare)
    if earlier is not None and earlier.id == run.id:
        raise UsageError(f"--compare {compare}: the run itself", hint="Run `holdfast runs` to list all runs.")
    path = next(path for each, path in loaded if each.id == run.id)
    return build_timeline(_with_steps(run, path), earlier=earlier, now=time.time())


def _with_steps(run: RunRecord, path: Path) -> RunRecord:
    if run.outcome != "running":
        return run
    with closing(SQLiteStore(path, readonly=True)) as store:
        store.open()
        return with_recorded_steps(run, store)


def _write_page(model: Timeline, output: Path | None) -> Path:
    page = render_page(model)
    if output is None:
        path = home.state_dir() / TIMELINES / page_name(model.run.id)
        home.write_atomic(path, page)
        return path
    hint = "Name a file in an existing directory that you can write to, or - for stdout."
    shown = show_value(str(output))
    try:
        if output.exists() and not output.is_file():
            raise UsageError(f"--output {shown}: not a regular file", hint=hint)
        if not output.parent.is_dir():
            raise UsageError(f"--output {shown}: {output.parent} is not a directory", hint=hint)
        home.write_atomic(output.resolve(), page)
    except (OSError, ValueError) as error:  # ValueError: the path contains a null byte
        if getattr(error, "errno", None) in home.NO_SPACE_ERRNOS:
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--output {shown}: cannot be written: {reason}", hint=hint) from error
    return output.resolve()


def _open_browser(path: Path) -> None:
    # Without a display, the module would start a browser for terminals, which takes over this one.
    has_display = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    is_open = False
    if has_display:
        import webbrowser

        is_open = webbrowser.open(path.as_uri())
    if not is_open and not is_quiet_requested():
        click.echo("No browser was found. Open the file in a browser.", err=True)
