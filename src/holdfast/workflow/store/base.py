"""Records of steps and runs, the `Store` interface that keeps them, and a store in memory.

One run uses a store at a time (the lock ensures it), and one thread of that run at a time (the journal does).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn, Protocol

import msgspec

from holdfast.errors import SecretLeakError, StepResultError
from holdfast.events import Event, StoreDamaged
from holdfast.workflow.secrets import Secret

MAX_RESULT_BYTES = 1024 * 1024
NULL_RESULT = msgspec.Raw(b"null")


class StepAttempt(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """What one run did with one step; part of the step's checkpoint and of the run's history."""

    at: float = 0.0
    seconds: float = 0.0
    tries: int = 0
    note: str = ""
    error: str = ""
    code: str = ""
    retries: tuple[str, ...] = ()
    # For each retry: when its attempt failed, and the delay before the next one. Older runs have no times.
    retry_times: tuple[tuple[float, float], ...] = ()
    at_least_once: bool = False
    # An earlier run started this step and died or failed in it.
    begun_before: bool = False


class StepRecord(StepAttempt, kw_only=True, gc=False):
    """The checkpoint of one step."""

    state: Literal["intent", "done", "failed"]
    run: str
    fingerprint: str = ""
    result: msgspec.Raw = NULL_RESULT
    # The probe found the effect, so `result` is not what `run` returned.
    adopted: bool = False
    # Not done yet, and the probe may see the effect of earlier inputs: its `done` does not count.
    stale: bool = False
    # Short digests of the inputs, and of the results of other steps that the step has read.
    inputs: dict[str, str] | None = None
    reads: dict[str, str] | None = None


class StepLog(StepAttempt, kw_only=True, gc=False):
    """One step in the history of a run."""

    step: str
    outcome: Literal["finished", "failed", "in flight"]
    reason: str = ""
    # Empty if the name of the step is its title.
    title: str = ""
    needs: tuple[str, ...] = ()
    # The last progress messages of a step that failed.
    progress: tuple[str, ...] = ()


class ProbeLog(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """The probe of a step that was skipped, in the history of a run."""

    at: float
    seconds: float
    needs: tuple[str, ...] = ()


class RunRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One run of a workflow; `skipped` groups the names of skipped steps by reason."""

    id: str
    workflow: str
    command: str
    subject: str = ""
    tool: str = ""
    platform: str = ""
    # What the command was called with, for users; contains no secrets.
    parameters: dict[str, str] = {}
    pid: int = 0
    host: str = ""
    boot: str = ""
    # Start time of the process; with `pid` and `boot` it identifies the process after a pid is reused.
    start_ticks: int = 0
    started: float = 0.0
    outcome: Literal["running", "finished", "failed", "interrupted", "died"] = "running"
    seconds: float = 0.0
    step: str = ""
    error: str = ""
    code: str = ""
    hint: str = ""
    steps: list[StepLog] = []
    skipped: dict[str, list[str]] = {}
    # The probes of skipped steps. A step that its record decides has none.
    probes: dict[str, ProbeLog] = {}
    # Damage that this run found in its store.
    damage: list[StoreDamaged] = []


def new_run_id() -> str:
    """Return a short unique id that starts with the current time."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + os.urandom(3).hex()


def describe_damage(event: StoreDamaged, max_names: int = 20) -> str:
    """Describe in one sentence, without the full stop, what happened to a store and what was lost."""
    text = f"{event.path} was damaged ({event.reason}) and set aside as {event.backup_path}"
    text += "; the checkpoints of earlier runs are lost"
    if event.lost:
        more = f" and {len(event.lost) - max_names} more" if len(event.lost) > max_names else ""
        text += f": {', '.join(event.lost[:max_names])}{more}"
    return text


def encode_result(step: str, value: Any) -> msgspec.Raw:
    """Encode what a step returned.

    Raises:
        StepResultError: the value is not JSON, or too large.
        SecretLeakError: the value contains a `Secret`.
    """
    if value is None:
        return NULL_RESULT
    try:
        raw = _encode_json(value)
    except _SecretFoundError as error:
        raise SecretLeakError(f"step {step!r} returned {error}; secrets are not stored") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise StepResultError(
            f"step {step!r} returned a value that cannot be stored: {error}",
            hint="Return JSON values only: dicts, lists, strings, numbers, booleans or None.",
        ) from error
    if len(raw) > MAX_RESULT_BYTES:
        raise StepResultError(
            f"step {step!r} returned {len(raw):,} bytes; at most {MAX_RESULT_BYTES:,} can be stored",
            hint="Write the value to a file and return the path.",
        )
    return msgspec.Raw(raw)


class _SecretFoundError(Exception):
    pass


def _reject_value(value: object) -> NoReturn:
    if isinstance(value, Secret):
        raise _SecretFoundError(repr(value))
    raise TypeError(f"{type(value).__name__} is not JSON")


_encode_strict = json.JSONEncoder(
    allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_reject_value
).encode
_encode_fast = msgspec.json.Encoder(enc_hook=_reject_value).encode
_decode = msgspec.json.Decoder().decode


def _encode_json(value: Any) -> bytes:
    # msgspec also encodes types that JSON does not have; only a value that decodes to itself is accepted.
    try:
        raw = _encode_fast(value)
        if _decode(raw) == value:
            return raw
    except (TypeError, ValueError, RecursionError):
        pass
    return _encode_strict(value).encode()


StoreEventListener = Callable[[Event], None]


class Store(Protocol):
    """Keeps step records by (scope, name) and runs by id. A write is durable when the method returns.

    The scope is the name of a workflow. All methods may raise `StoreError`.
    """

    @property
    def key(self) -> bytes:
        """Key of this store's fingerprints; available once the store is open."""

    def open(self, report: StoreEventListener) -> None:
        """Prepare for writing; replace a damaged store and report it. Raises `StoreError`."""

    def load(self, scope: str) -> dict[str, StepRecord]:
        """Return all records of one scope."""

    def unfinished_runs(self) -> list[RunRecord]:
        """Return the runs that have not ended."""

    def begin(self, run: RunRecord, dead_runs: Sequence[RunRecord] = ()) -> None:
        """Record the start of a run, and the end of earlier runs whose process died."""

    def commit(self, scope: str, records: Mapping[str, StepRecord], forget: Sequence[str] = ()) -> None:
        """Write some records and delete those of the steps in `forget`, in one transaction."""

    def end(
        self, run: RunRecord, scope: str, records: Mapping[str, StepRecord], forget: Sequence[str] = ()
    ) -> None:
        """Write the last records and the end of the run in one transaction."""

    def runs(self) -> list[RunRecord]:
        """Return all runs, newest first."""

    def delete_runs(self, ids: Iterable[str]) -> None:
        """Delete runs; step records are kept."""

    def close(self) -> None:
        """Close the files; the store can be opened again."""


class MemoryStore:
    """A store in memory, for tests and for workflows without checkpoints. `Store` describes the methods."""

    def __init__(self) -> None:
        self.key = os.urandom(32)
        self._records: dict[str, dict[str, StepRecord]] = {}
        self._runs: dict[str, RunRecord] = {}

    def open(self, report: StoreEventListener) -> None:
        pass

    def load(self, scope: str) -> dict[str, StepRecord]:
        return dict(self._records.get(scope, {}))

    def unfinished_runs(self) -> list[RunRecord]:
        return [run for run in self._runs.values() if run.outcome == "running"]

    def begin(self, run: RunRecord, dead_runs: Sequence[RunRecord] = ()) -> None:
        self._runs.update({record.id: record for record in (*dead_runs, run)})

    def commit(self, scope: str, records: Mapping[str, StepRecord], forget: Sequence[str] = ()) -> None:
        stored = self._records.setdefault(scope, {})
        stored.update(records)
        for name in forget:
            stored.pop(name, None)

    def end(
        self, run: RunRecord, scope: str, records: Mapping[str, StepRecord], forget: Sequence[str] = ()
    ) -> None:
        self.commit(scope, records, forget)
        self._runs[run.id] = run

    def runs(self) -> list[RunRecord]:
        return list(reversed(self._runs.values()))

    def delete_runs(self, ids: Iterable[str]) -> None:
        for run_id in ids:
            self._runs.pop(run_id, None)

    def close(self) -> None:
        pass
