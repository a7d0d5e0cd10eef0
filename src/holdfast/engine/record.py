"""What is kept of a step and of a run, and the form that results are kept in.

Not here: where it is kept (`store`), and any secret: what looks like one is refused here.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Literal, NoReturn

import msgspec

from holdfast.engine.secret import Secret, Vault
from holdfast.errors import ResultError, SecretLeakError
from holdfast.events import StoreDamaged  # noqa: TC001  read by msgspec

LARGEST_RESULT = 1024 * 1024
NOTHING = msgspec.Raw(b"null")


class Record(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """The checkpoint of one step."""

    state: Literal["intent", "done", "failed"]
    run: str
    fingerprint: str = ""
    at: float = 0.0
    seconds: float = 0.0
    tries: int = 0
    result: msgspec.Raw = NOTHING
    adopted: bool = False
    """found done by its probe, so that `result` is not what `run` returned"""
    stale: bool = False
    """not done yet, and what the probe sees may come from earlier inputs: its yes does not count"""
    inputs: dict[str, str] | None = None
    reads: dict[str, str] | None = None
    note: str = ""
    error: str = ""
    code: str = ""
    retries: tuple[str, ...] = ()
    at_least_once: bool = False
    begun_before: bool = False


class StepLog(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """What one run did with one step, for people: kept with the run."""

    step: str
    outcome: Literal["finished", "failed", "in flight"]
    at: float = 0.0
    seconds: float = 0.0
    tries: int = 0
    reason: str = ""
    note: str = ""
    error: str = ""
    code: str = ""
    retries: tuple[str, ...] = ()
    at_least_once: bool = False
    begun_before: bool = False
    """an earlier run died or failed in it, after it had begun"""


class RunRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One run of a workflow; `skipped` groups the names of skipped steps by reason."""

    id: str
    workflow: str
    command: str
    subject: str = ""
    tool: str = ""
    pid: int = 0
    host: str = ""
    boot: str = ""
    born: int = 0
    """with `pid` and `boot`: which process it was, when its number was given to another one"""
    started: float = 0.0
    outcome: Literal["running", "finished", "failed", "interrupted", "died"] = "running"
    seconds: float = 0.0
    step: str = ""
    error: str = ""
    code: str = ""
    hint: str = ""
    steps: list[StepLog] = []
    skipped: dict[str, list[str]] = {}
    damage: list[StoreDamaged] = []
    """what was wrong with the store when this run used it, and what was lost by that"""


def new_run_id() -> str:
    """A short id that tells people when, and machines which."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + os.urandom(3).hex()


def pack(step: str, value: Any, vault: Vault) -> msgspec.Raw:
    """A result in the form it is kept in; refuses what cannot be kept, is too large, or holds a secret."""
    if value is None:
        return NOTHING
    try:
        raw = _to_bytes(value)
    except _SecretFoundError as error:
        raise SecretLeakError(f"step {step!r} returned {error}, and secrets are not stored") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError(
            f"what step {step!r} returned cannot be stored: {error}",
            hint="Return what JSON can hold: mappings, lists, texts, numbers, true, false, nothing.",
        ) from error
    if len(raw) > LARGEST_RESULT:
        raise ResultError(
            f"step {step!r} returned {len(raw):,} bytes, and at most {LARGEST_RESULT:,} are stored",
            hint="Write it to a file and return the path.",
        )
    found = vault.found_in(raw.decode())
    if found is not None:
        raise SecretLeakError(f"what step {step!r} returned holds {found}, and secrets are not stored")
    return msgspec.Raw(raw)


class _SecretFoundError(Exception):
    pass


def _refuse(value: object) -> NoReturn:
    if isinstance(value, Secret):
        raise _SecretFoundError(repr(value))
    raise TypeError(f"{type(value).__name__} is not JSON")


_to_text = json.JSONEncoder(
    allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_refuse
).encode
_quickly = msgspec.json.Encoder(enc_hook=_refuse).encode
_back = msgspec.json.Decoder().decode


def _to_bytes(value: Any) -> bytes:
    """Quickly, if it comes back the same; else the strict way: the quick one takes more than JSON has."""
    try:
        raw = _quickly(value)
        if _back(raw) == value:
            return raw
    except (TypeError, ValueError, RecursionError):
        pass
    return _to_text(value).encode()
