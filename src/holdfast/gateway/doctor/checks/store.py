"""The checkpoints of the gateway's commands, and who is at work on it right now."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.errors import StoreError, StoreVersionError
from holdfast.gateway.doctor.findings import Finding, note, problem, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.engine import RunRecord
    from holdfast.gateway.doctor.case import Case

SCOPES = ("up", "start", "stop", "upgrade", "destroy")
"""The commands that keep checkpoints; those that the store names itself are added."""


def store(case: Case) -> Iterator[Finding]:
    """Every record of the store can be read and believed."""
    from holdfast.engine.schema import DamageError

    path = case.work.files.state
    if not path.exists():
        return
    try:
        _runs, unreadable = read_store(case)
    except StoreVersionError as error:
        yield problem("store-newer", str(path), f"{error.message}.", mend="person", repair=error.hint)
    except StoreError as error:
        damaged = isinstance(error.__cause__, DamageError)
        yield problem(
            "store-damaged" if damaged else "store-unusable",
            str(path),
            f"{error.message}.",
            mend="fix" if damaged else "person",
            repair="--fix sets it aside, keeps what can be believed, and names what was lost."
            if damaged
            else error.hint,
        )
    else:
        if unreadable:
            yield warning(
                "runs-unreadable",
                str(path),
                f"{unreadable} runs of the history cannot be read; checkpoints are not concerned.",
                repair=f"`holdfast runs clean -g {case.name}` forgets old runs.",
            )


def lock(case: Case) -> Iterator[Finding]:
    """Who holds the gateway; looks at the lock without ever taking it, for that could stop another run."""
    if case.work.place.remote:
        _ = case.engine  # without the host there is nobody to ask
    holder = case.work.place.lock(case.work.name).holder()
    if holder is None or holder.pid == os.getpid() or not holder.lives():
        return
    yield note(
        "lock-held",
        f"gateway {case.name}",
        f"A command is at work on it: {holder.words()}. What is found meanwhile may pass by itself.",
        repair="Wait until it has ended, then look again.",
    )


def read_store(case: Case) -> tuple[list[RunRecord], int]:
    """The runs of the gateway, newest first, and how many cannot be read; every checkpoint is read too."""
    from holdfast.engine import SQLiteStore
    from holdfast.engine.history import runs_of

    opened = SQLiteStore(case.work.files.state, readonly=True)
    opened.open()
    try:
        runs = runs_of(opened)
        for scope in dict.fromkeys((*SCOPES, *(run.workflow for run in runs))):
            opened.load(scope)
        return runs, opened.unreadable
    finally:
        opened.close()
