"""The labels and annotations that a claim adds to its pod: which it may, and what the pod's are then.

A claim adds and never overrides: what its template says stays as it is, and what the controller, Services and
network policies select by is not the claim's to set. Not here: what else a claim may ask for
(claim_changes.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.sandbox.api import CLAIM_UID, MANAGED_BY, SANDBOX_ID, ClaimReason
from holdfast.sandbox.network import opened_by
from holdfast.sandbox.reserved import is_router, why_reserved, why_reserved_annotation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
PARTS = ("labels", "annotations")


class Refusal(msgspec.Struct, frozen=True):
    """Why a claim cannot be served as it is."""

    reason: ClaimReason
    message: str


def added(claim: Mapping[str, Any], part: str) -> dict[str, str]:
    """The labels or annotations that a claim asks for."""
    return dict((claim["spec"].get("additionalPodMetadata") or {}).get(part) or {})


def found_by(claim: Mapping[str, Any]) -> dict[str, str]:
    """The claim's own labels that its sandbox gets too, so that both are found by them and have one id."""
    labels = claim["metadata"].get("labels") or {}
    kept = (SANDBOX_ID, MANAGED_BY)
    return {key: value for key, value in labels.items() if key in kept or not why_reserved(key)}


def with_metadata(base: Mapping[str, Any] | None, claim: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """A pod template's metadata with the claim's, and the label by which the claim's pod is found."""
    own = base or {}
    whole = {part: {**(own.get(part) or {}), **added(claim, part)} for part in PARTS}
    whole["labels"][CLAIM_UID] = claim["metadata"]["uid"]
    return {part: entries for part, entries in whole.items() if entries}


def metadata_change(before: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch from one metadata to another; empty when they are alike."""
    changes: dict[str, Any] = {}
    for part in PARTS:
        has, wants = (before or {}).get(part) or {}, wanted.get(part) or {}
        change: dict[str, str | None] = {key: value for key, value in wants.items() if has.get(key) != value}
        change |= {key: None for key in has if key not in wants}
        if change:
            changes[part] = change
    return changes


def bad_metadata(
    claim: Mapping[str, Any],
    base: Mapping[str, Any] | None,
    policies: Sequence[Mapping[str, Any]],
    given: Mapping[str, Any] | None = None,
) -> Refusal | None:
    """The first label or annotation that the claim may not add to this metadata, or None.

    `given`: what the pod has already. A policy or a rule that came later is no matter of that.
    """
    says = "the template says" if given is None else "the sandbox has"
    for part in PARTS:
        has, there = ((each or {}).get(part) or {} for each in (base, given))
        for key, value in added(claim, part).items():
            if there.get(key) == value:
                continue
            words = _bad_form(part, key, value) or _not_its_own(part, key, value)
            if not words and has.get(key, value) != value:
                words = f"{says} {key}={has[key]}, and a claim cannot say {key}={value}"
            if words:
                return Refusal(ClaimReason.INVALID_METADATA, f"additionalPodMetadata.{part}: {words}")
    return _opens_a_way(claim, base, policies, (given or {}).get("labels") or {})


def _bad_form(part: str, key: str, value: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if not _LABEL_NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
        return f"{key!r} is no key for {part}"
    if part == "labels" and not _LABEL_VALUE.fullmatch(value):
        return f"{value!r} cannot be the value of the label {key!r}"
    return ""


def _not_its_own(part: str, key: str, value: str) -> str:
    why = why_reserved(key) if part == "labels" else why_reserved_annotation(key)
    if why:
        return f"{key} is reserved: {why}"
    routes = part == "labels" and is_router(key, value)
    return f"{key}={value} is reserved: sandboxes let pods with it in" if routes else ""


def _opens_a_way(
    claim: Mapping[str, Any],
    base: Mapping[str, Any] | None,
    policies: Sequence[Mapping[str, Any]],
    given: Mapping[str, str],
) -> Refusal | None:
    known = {**((base or {}).get("labels") or {}), **given}
    new = {key: value for key, value in added(claim, "labels").items() if known.get(key) != value}
    for policy in policies:
        key = opened_by(new, policy, namespace=claim["metadata"]["namespace"])
        if key is not None:
            named = f"{policy['metadata']['namespace']}/{policy['metadata']['name']}"
            words = f"additionalPodMetadata.labels: the network policy {named} lets pods through by {key}"
            return Refusal(ClaimReason.INVALID_METADATA, words)
    return None
