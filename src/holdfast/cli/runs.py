"""`holdfast runs`, `runs show` and `runs clean`: the recorded runs of earlier commands."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec.structs import asdict

from holdfast.cli.checked_type import integer
from holdfast.cli.click_extensions import complete_with, flag_option, json_option
from holdfast.cli.output import format_table, print_result
from holdfast.cli.parameters import FILE, GATEWAY, RUN
from holdfast.errors import GatewayNotFoundError, HoldfastError
from holdfast.events import StoreDamaged
from holdfast.gateway import requested_gateway_name
from holdfast.home import state_dir
from holdfast.timeline import find_run
from holdfast.workflow import SQLiteStore, delete_old_runs, list_runs, open_exclusive
from holdfast.workflow.store import damaged_copies, describe_damage

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.events import Event
    from holdfast.workflow import RunRecord, StepLog

F = TypeVar("F", bound=Callable[..., Any])

_MARKS = {"finished": "✓", "failed": "x", "in flight": "?"}
_MAX_LISTED_NAMES = 8
_MAX_PAGE_NAME = 100
_MAX_SHOWN_SECONDS = 100.0
# The directory of the pages of timelines, below the directory of the state.
TIMELINES = "timelines"


def _keep_value(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Keep the value in the context, so that an option before the subcommand applies to it too."""
    if value is not None:
        ctx.meta[f"holdfast.runs.{param.name}"] = value


def store_options(command: F) -> F:
    """The options that select the stores to read; `_store_paths` reads their values."""
    option = partial(click.option, expose_value=False, callback=_keep_value)
    gateway = option(
        "--gateway", "-g", type=GATEWAY,
        help="Show only the runs of this gateway; default: that of HOLDFAST_GATEWAY, or else all gateways.",
        shell_complete=complete_with("complete_gateways"),
    )  # fmt: skip
    help_line = "Read this store file instead; it can belong to any workflow."
    return option("--store", type=FILE, help=help_line)(gateway(command))


@click.group(invoke_without_command=True)
@store_options
@click.option("--limit", type=integer(1), default=20, show_default=True, help="Maximum number of runs.")
@json_option
@click.pass_context
def runs(ctx: click.Context, limit: int) -> None:
    """List the runs of earlier commands, newest first."""
    if ctx.invoked_subcommand is not None:
        return
    selected = load_runs()[:limit]
    rows = [("ID", "COMMAND", "SUBJECT", "OUTCOME", "STARTED", "TOOK", "STEPS")]
    rows += [
        (
            run.id, run.command, run.subject, run.outcome, _format_time(run.started),
            _format_duration(run.seconds),
            f"{len(run.steps)} ran, {sum(map(len, run.skipped.values()))} skipped",
        )
        for run, _ in selected
    ]  # fmt: skip
    lines = format_table(rows) if selected else ["No runs yet."]
    print_result([_run_as_dict(run) for run, _ in selected], lines)


@runs.command("show")
@click.argument("run_id", type=RUN, metavar="ID", shell_complete=complete_with("complete_runs"))
@store_options
@json_option
def show_run(run_id: str) -> None:
    """Show the steps of run ID with their times, retries and errors, and the skipped steps with reasons.

    ID can be any part of the ID that occurs in no other run, or `last` for the newest run.
    """
    runs = load_runs()
    run = find_run([run for run, _ in runs], run_id)
    path = {each.id: path for each, path in runs}[run.id]
    print_result(_run_as_dict(run), [*_header_lines(run, path), *_step_lines(run), *_error_lines(run)])


@runs.command()
@store_options
@click.option("--keep", type=integer(0), default=20, show_default=True, help="Number of runs to keep.")
@flag_option("--damaged", text="Also delete damaged stores that were set aside.")
@json_option
def clean(keep: int, damaged: bool) -> None:
    """Delete the records of old runs; keep the checkpoints."""
    from holdfast.gateway import LocalHost

    run_ids: list[str] = []
    deleted: list[str] = []
    events: list[Event] = []
    pages = state_dir() / TIMELINES
    for path in _store_paths():
        # Listed before the store is opened: a store that is set aside now must be kept.
        copies = damaged_copies(path) if damaged else []
        is_gateway = path.parent.parent == state_dir() / "gateways"
        lock = LocalHost().lock(path.parent.name) if is_gateway else None
        with open_exclusive(path, "runs clean", events.append, lock=lock) as opened:
            run_ids += delete_old_runs(opened, keep)
        for copy in copies:
            copy.unlink(missing_ok=True)
            deleted.append(str(copy))
    for run_id in run_ids:
        (pages / page_name(run_id)).unlink(missing_ok=True)
    lines = [f"Deleted {len(run_ids)} runs. Checkpoints are kept."]
    lines += [f"Deleted {name}." for name in deleted]
    damage = [event for event in events if isinstance(event, StoreDamaged)]
    lines += [f"{describe_damage(event)}." for event in damage]
    print_result({"runs": run_ids, "deleted": deleted, "damage": damage}, lines)


def _run_as_dict(run: RunRecord) -> dict[str, Any]:
    """A run with all its fields, including those with default values."""
    probes = {name: asdict(log) for name, log in run.probes.items()}
    return {**asdict(run), "steps": [asdict(log) for log in run.steps], "probes": probes}


def _store_paths() -> list[Path]:
    options = click.get_current_context().meta
    store, gateway = options.get("holdfast.runs.store"), options.get("holdfast.runs.gateway")
    if store is not None:
        return [store]
    gateways = state_dir() / "gateways"
    name = requested_gateway_name(gateway)
    if name is None:
        return sorted(gateways.glob("*/state.db"))
    path = gateways / name / "state.db"
    if not path.exists():
        hint = (
            "Run `holdfast runs` to list all runs." if gateway else "Unset HOLDFAST_GATEWAY to list all runs."
        )
        raise GatewayNotFoundError(f"gateway {name}: no runs found", hint=hint)
    return [path]


def load_runs() -> list[tuple[RunRecord, Path]]:
    """All runs of the selected stores, newest first; warn about stores that cannot be read."""
    runs: list[tuple[RunRecord, Path]] = []
    stores, errors = _store_paths(), []
    for path in stores:
        try:
            runs += [(run, path) for run in _read_runs(path)]
        except HoldfastError as error:
            errors.append(error)
    if errors and len(errors) == len(stores):
        raise errors[0]
    for skipped in errors:
        click.echo(f"{skipped.message}; its runs are not listed. {skipped.hint}".rstrip(), err=True)
    if len({path for _, path in runs}) > 1:
        runs.sort(key=lambda pair: pair[0].started, reverse=True)
    return runs


def _read_runs(path: Path) -> list[RunRecord]:
    # Read-only: a run may be writing to this store.
    with closing(SQLiteStore(path, readonly=True)) as store:
        store.open()
        runs = list_runs(store)
        if store.unreadable_runs:
            click.echo(f"{path}: {store.unreadable_runs} runs cannot be read and are not listed", err=True)
        return runs


def page_name(run_id: str) -> str:
    """The file name of the timeline of a run. A damaged store can contain any text as an id."""
    return f"{re.sub('[^A-Za-z0-9-]', '_', run_id)[:_MAX_PAGE_NAME]}.html"


def _header_lines(run: RunRecord, path: Path) -> list[str]:
    fields = [
        ("run", run.id), ("command", run.command), ("subject", run.subject), ("outcome", run.outcome),
        ("started", _format_time(run.started)), ("took", _format_duration(run.seconds)),
        ("version", run.tool), ("process", f"{run.pid} on {run.host}"), ("store", str(path)),
    ]  # fmt: skip
    lines = [f"{key:<9} {value}" for key, value in fields if value]
    return [*lines, *(f"! {describe_damage(event, len(event.lost))}" for event in run.damage)]


def _step_lines(run: RunRecord) -> list[str]:
    lines = [""]
    width = max((len(log.step) for log in run.steps), default=0)
    for log in run.steps:
        columns = [f"{_MARKS[log.outcome]} {log.step:<{width}}", f"{_format_duration(log.seconds):>8}"]
        lines.append("  ".join([*columns, _step_details(log)]).rstrip())
        lines += [f"    retried: {reason}" for reason in log.retries]
    for reason, names in run.skipped.items():
        omitted = len(names) - _MAX_LISTED_NAMES
        listed = ", ".join(names[:_MAX_LISTED_NAMES]) + (f" and {omitted} more" if omitted > 0 else "")
        lines.append(f"- {listed}  skipped: {reason}")
    return lines


def _step_details(log: StepLog) -> str:
    details = [log.error or log.note or log.reason]
    details += [f"because: {log.reason}"] if log.reason and log.note and log.note != log.reason else []
    details += [f"{log.tries} attempts"] if log.tries > 1 else []
    if log.at_least_once:
        repeated = log.tries > 1 or log.begun_before
        details += ["at least once: may have happened twice" if repeated else "at least once"]
    return "; ".join(detail for detail in details if detail)


def _error_lines(run: RunRecord) -> list[str]:
    if not run.error:
        return []
    where = f" in {run.step}" if run.step else ""
    return ["", f"{run.outcome}{where}: {run.error}" + (f" [{run.code}]" if run.code else ""), run.hint]


def _format_time(timestamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp))


def _format_duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < _MAX_SHOWN_SECONDS else f"{seconds / 60:.1f} min"
