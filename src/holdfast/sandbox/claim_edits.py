"""What becomes of edits to a claim that has its sandbox already.

Its labels and annotations follow, and so does whether a failed pod is the end. Variables, claim templates and
the pool made the sandbox what it is: an edit of those is left aside, and the claim says so. The sandbox notes
what it has from its claim, so that only that is ever taken away again. Not here: the end of a claim's time,
which is read off the claim itself (claim_lifetime.py).
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.sandbox.api import FAILED_PODS, FROM_CLAIM, Condition
from holdfast.sandbox.claim_lifetime import end_is_final
from holdfast.sandbox.claim_metadata import (
    PARTS,
    Refusal,
    added,
    bad_metadata,
    metadata_change,
    with_metadata,
)
from holdfast.sandbox.status import Said

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FIXED = ("warmPoolRef", "env", "volumeClaimTemplates")
_HASH_LENGTH = 12


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """What an edited claim asks of its sandbox: a merge patch, what it may not ask, and what it cannot."""

    patch: dict[str, Any] = {}
    refused: Refusal | None = None
    ignored: tuple[str, ...] = ()


class _Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a sandbox has from its claim: keys, whether an end is final, and marks of what cannot follow."""

    labels: list[str] = []
    annotations: list[str] = []
    final: bool = False
    fixed: dict[str, str] = {}


def from_claim(claim: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, str]:
    """The annotations of a sandbox that a claim gets now; `base` is its pods' metadata without the claim."""
    final = end_is_final(claim)
    return {FROM_CLAIM: _text(_noted(claim, base, final=bool(final))), **final}


def edited(claim: Mapping[str, Any], own: Mapping[str, Any], policies: Sequence[Mapping[str, Any]]) -> Edited:
    """Compare a claim with the sandbox that it has."""
    annotations = own["metadata"].get("annotations") or {}
    known = _read(annotations.get(FROM_CLAIM, ""))
    note = known or _noted(claim, {}, final=False)
    has = own["spec"]["podTemplate"].get("metadata") or {}
    base = {
        part: {key: value for key, value in (has.get(part) or {}).items() if key not in getattr(note, part)}
        for part in PARTS
    }
    refused = bad_metadata(claim, base, policies, given=has)
    change = {} if refused else metadata_change(has, with_metadata(base, claim))
    ending, final = _ending(claim, annotations.get(FAILED_PODS), note)
    now = _noted(claim, base, final=final)
    if refused:
        now = msgspec.structs.replace(now, labels=note.labels, annotations=note.annotations)
    now = msgspec.structs.replace(now, fixed=note.fixed)
    if now != known and (known or change or ending):
        ending = {**ending, FROM_CLAIM: _text(now)}
    patch: dict[str, Any] = {"metadata": {"annotations": ending}} if ending else {}
    if change:
        patch["spec"] = {"podTemplate": {"metadata": change}}
    return Edited(patch=patch, refused=refused, ignored=_changed(note.fixed, _marks(claim)))


def left_aside(fields: Sequence[str], sandbox: str) -> Said:
    """What a claim says whose sandbox cannot become what the claim asks for now."""
    words = (
        f"{', '.join(fields)}: changed after the sandbox {sandbox} was there, which stays as it was made; "
    )
    words += "a new claim gets what this one says"
    return Said(Condition.EDITS_FOLLOWED, "False", "EditIgnored", words)


def _ending(claim: Mapping[str, Any], has: str | None, note: _Note) -> tuple[dict[str, str | None], bool]:
    """What to write about failed pods, and whether the sandbox has that from its claim then."""
    wanted = end_is_final(claim)
    if wanted and has != wanted[FAILED_PODS]:
        return {**wanted}, True
    if not wanted and note.final:
        return {FAILED_PODS: None}, False
    return {}, note.final


def _noted(claim: Mapping[str, Any], base: Mapping[str, Any], *, final: bool) -> _Note:
    """What is there already is not the claim's, though the claim may say it too."""
    labels, annotations = (
        sorted(added(claim, part).keys() - (base.get(part) or {}).keys()) for part in PARTS
    )
    return _Note(labels=labels, annotations=annotations, final=final, fixed=_marks(claim))


def _marks(claim: Mapping[str, Any]) -> dict[str, str]:
    return {field: _mark(claim["spec"][field]) for field in _FIXED if claim["spec"].get(field)}


def _mark(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(field for field in _FIXED if before.get(field) != now.get(field))


def _text(note: _Note) -> str:
    return msgspec.json.encode(note).decode()


def _read(text: str) -> _Note | None:
    """What is written there; None where there is nothing, or what nobody can read."""
    try:
        return msgspec.json.decode(text, type=_Note) if text else None
    except msgspec.DecodeError:
        return None
