"""`holdfast runs`, `runs show` and `runs clean`: what earlier commands did, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.options import json_option
from holdfast.cli.results import show, table

if TYPE_CHECKING:
    from holdfast.engine import RunRecord, SQLiteStore, StepLog
    from holdfast.events import Event, StoreDamaged

F = TypeVar("F", bound=Callable[..., Any])


def _which(command: F) -> F:
    """The options that say whose runs are meant."""
    command = click.option("--gateway", "-g", help="Only the runs of this gateway.")(command)
    return click.option(
        "--store",
        type=click.Path(path_type=Path),
        help="The runs in this store: any workflow's, not only ours.",
    )(command)


@click.group(invoke_without_command=True)
@_which
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many at most.")
@json_option
@click.pass_context
def runs(ctx: click.Context, gateway: str | None, store: Path | None, limit: int, as_json: bool) -> None:
    """Show what earlier commands did: the newest runs first."""
    ctx.obj = {"gateway": gateway, "store": store}
    if ctx.invoked_subcommand is not None:
        return
    found = _found(gateway, store)[:limit]
    rows = [("ID", "COMMAND", "SUBJECT", "OUTCOME", "STARTED", "TOOK", "STEPS")]
    rows += [
        (
            run.id, run.command, run.subject, run.outcome, _when(run.started), _took(run.seconds),
            f"{len(run.steps)} ran, {_skipped(run)} skipped",
        )
        for run, _ in found
    ]  # fmt: skip
    lines = table(rows) if found else ["No runs yet."]
    show([_full(run) for run, _ in found], lines, as_json=as_json)


@runs.command("show")
@click.argument("run_id", metavar="ID")
@_which
@json_option
@click.pass_obj
def show_run(
    outer: dict[str, Any], run_id: str, gateway: str | None, store: Path | None, as_json: bool
) -> None:
    """Show one run: its steps, times, retries and errors, and what was skipped and why.

    ID may be shortened as long as it is clear; `last` is the newest run.
    """
    run, path = _one(_found(gateway or outer["gateway"], store or outer["store"]), run_id)
    show(_full(run), [*_heading(run, path), *_steps(run), *_ending(run)], as_json=as_json)


@runs.command()
@_which
@click.option(
    "--keep", type=click.IntRange(min=0), default=20, show_default=True, help="How many runs to keep."
)
@click.option("--damaged", is_flag=True, help="Delete damaged stores that were set aside, too.")
@json_option
@click.pass_obj
def clean(
    outer: dict[str, Any], gateway: str | None, store: Path | None, keep: int, damaged: bool, as_json: bool
) -> None:
    """Forget old runs. What is done stays done: checkpoints are not touched."""
    from holdfast.engine import history
    from holdfast.engine.damage import words

    gone: list[str] = []
    deleted: list[str] = []
    aside: list[Event] = []
    for path in _stores(gateway or outer["gateway"], store or outer["store"]):
        copies = history.damaged_copies(path) if damaged else []  # what is set aside from here on is kept
        with history.opened_alone(path, "runs clean", aside.append) as opened:
            gone += history.clean(opened, keep)
        for copy in copies:
            copy.unlink(missing_ok=True)
            deleted.append(str(copy))
    lines = [f"Forgot {len(gone)} runs. Checkpoints are untouched."]
    lines += [f"Deleted {name}." for name in deleted]
    damage = _damage(aside)
    lines += [f"{words(event)}." for event in damage]
    show({"runs": gone, "deleted": deleted, "damage": damage}, lines, as_json=as_json)


def _full(run: RunRecord) -> dict[str, Any]:
    """A run with all its fields: a program should not have to know what an absent one means."""
    from msgspec.structs import asdict

    return {**asdict(run), "steps": [asdict(log) for log in run.steps]}


def _damage(events: list[Event]) -> list[StoreDamaged]:
    from holdfast.events import StoreDamaged

    return [event for event in events if isinstance(event, StoreDamaged)]


def _stores(gateway: str | None, store: Path | None) -> list[Path]:
    from holdfast.errors import UnknownGatewayError
    from holdfast.home import state_dir

    if store is not None:
        return [store]
    gateways = state_dir() / "gateways"
    if gateway is None:
        return sorted(gateways.glob("*/state.db"))
    path = gateways / gateway / "state.db"
    if not path.exists():
        raise UnknownGatewayError(
            f"no runs of a gateway {gateway}", hint="`holdfast runs` shows all there are."
        )
    return [path]


def _found(gateway: str | None, store: Path | None) -> list[tuple[RunRecord, Path]]:
    """All runs of the stores that are meant, the newest first."""
    from holdfast.errors import HoldfastError

    found: list[tuple[RunRecord, Path]] = []
    stores, errors = _stores(gateway, store), []
    for path in stores:
        try:
            found += [(run, path) for run in _runs_in(path)]
        except HoldfastError as error:
            errors.append(error)
    if errors and len(errors) == len(stores):
        raise errors[0]
    for each in errors:
        click.echo(f"{each.message}; its runs are left out. {each.hint}".rstrip(), err=True)
    if len({path for _, path in found}) > 1:
        found.sort(key=lambda each: each[0].started, reverse=True)
    return found


def _runs_in(path: Path) -> list[RunRecord]:
    from holdfast.engine import SQLiteStore
    from holdfast.engine.history import runs_of

    with _opened(SQLiteStore(path, readonly=True)) as opened:
        found = runs_of(opened)
        if opened.unreadable:
            click.echo(f"{path}: {opened.unreadable} runs cannot be read and are left out", err=True)
        return found


@contextmanager
def _opened(store: SQLiteStore) -> Iterator[SQLiteStore]:
    store.open()
    try:
        yield store
    finally:
        store.close()


def _one(found: list[tuple[RunRecord, Path]], wanted: str) -> tuple[RunRecord, Path]:
    from holdfast.errors import UsageError

    if wanted == "last" and found:
        return found[0]
    matches = [each for each in found if wanted in each[0].id]
    exact = [each for each in matches if each[0].id == wanted]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    what = "several runs are" if matches else "no run is"
    raise UsageError(
        f"{what} called {wanted!r}", hint="`holdfast runs` lists them; `last` is the newest one."
    )


def _heading(run: RunRecord, path: Path) -> list[str]:
    from holdfast.engine.damage import words

    facts = [
        ("run", run.id), ("command", run.command), ("subject", run.subject), ("outcome", run.outcome),
        ("started", _when(run.started)), ("took", _took(run.seconds)), ("version", run.tool),
        ("process", f"{run.pid} on {run.host}"), ("store", str(path)),
    ]  # fmt: skip
    lines = [f"{key:<9} {value}" for key, value in facts if value]
    return [*lines, *(f"! {words(event, len(event.lost))}" for event in run.damage)]


def _steps(run: RunRecord) -> list[str]:
    lines = [""]
    width = max((len(log.step) for log in run.steps), default=0)
    for log in run.steps:
        lines.append(
            f"{_MARKS[log.outcome]} {log.step:<{width}}  {_took(log.seconds):>8}  {_words(log)}".rstrip()
        )
        lines += [f"    tried again: {reason}" for reason in log.retries]
    for reason, names in run.skipped.items():
        shown = ", ".join(names[:_MOST_NAMES]) + (
            f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        )
        lines.append(f"- {shown}  skipped: {reason}")
    return lines


_MARKS = {"finished": "✓", "failed": "x", "in flight": "?"}
_MOST_NAMES = 8
_LONG = 100.0


def _words(log: StepLog) -> str:
    words = [log.error or log.note or log.reason]
    words += [f"because: {log.reason}"] if log.reason and log.note and log.note != log.reason else []
    words += [f"{log.tries} attempts"] if log.tries > 1 else []
    if log.at_least_once:
        again = log.tries > 1 or log.begun_before
        words += ["at least once: may have happened twice" if again else "at least once"]
    return "; ".join(word for word in words if word)


def _ending(run: RunRecord) -> list[str]:
    if not run.error:
        return []
    where = f" in {run.step}" if run.step else ""
    return ["", f"{run.outcome}{where}: {run.error}" + (f" [{run.code}]" if run.code else ""), run.hint]


def _skipped(run: RunRecord) -> int:
    return sum(len(names) for names in run.skipped.values())


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < _LONG else f"{seconds / 60:.1f} min"
