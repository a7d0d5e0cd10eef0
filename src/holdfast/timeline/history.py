"""Selects runs: the one to show, and the one to compare it with."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.errors import UsageError
from holdfast.timeline.build import build_timeline
from holdfast.workflow import SQLiteStore, list_runs, with_recorded_steps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from holdfast.timeline.model import Timeline
    from holdfast.workflow import RunRecord

_MAX_QUOTED = 60


def find_run(runs: Sequence[RunRecord], run_id: str) -> RunRecord:
    """Return a run by its id, by a part of its id that occurs in no other run, or by the word `last`.

    Args:
        runs: the runs to search, newest first.
        run_id: the id, the part of it, or `last`.

    Raises:
        UsageError: no run or several runs match.
    """
    if run_id == "last" and runs:
        return runs[0]
    matches = [run for run in runs if run_id and run_id in run.id]
    exact = [run for run in matches if run.id == run_id]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    quoted = repr(run_id if len(run_id) <= _MAX_QUOTED else f"{run_id[:_MAX_QUOTED]}…")
    if run_id == "last":
        hint = "Run `holdfast up`: it records the first run."
        raise UsageError(f"run {quoted}: there are no runs yet", hint=hint)
    problem = "several runs match" if matches else "no run matches"
    raise UsageError(f"run {quoted}: {problem}", hint="Run `holdfast runs` to list all runs.")


def earlier_run(runs: Sequence[RunRecord], run: RunRecord) -> RunRecord | None:
    """Return the latest successful run of the same command and subject before a run; None if there is none.

    Args:
        runs: the runs to search, newest first.
        run: the run.
    """
    key = (run.workflow, run.command, run.subject)
    for other in runs:
        is_same = (other.workflow, other.command, other.subject) == key
        if is_same and other.outcome == "finished" and other.id != run.id and other.started <= run.started:
            return other
    return None


def read_timeline(path: Path, run_id: str = "last", *, compare: str | None = None) -> Timeline:
    """Return the timeline of a run in a store. The store is only read, also while a run writes to it.

    Args:
        path: the file of the store.
        run_id: the id of the run, a part of it that occurs in no other run, or `last`.
        compare: the run to compare it with; default: the latest successful run of the same command before it.

    Raises:
        UsageError: no run or several runs match.
        StoreError: the store cannot be read.
    """
    with closing(SQLiteStore(path, readonly=True)) as store:
        store.open()
        runs = list_runs(store)
        run = with_recorded_steps(find_run(runs, run_id), store)
        earlier = earlier_run(runs, run) if compare is None else find_run(runs, compare)
        return build_timeline(run, earlier=earlier, now=time.time())
