"""What a claim wants to change about the sandbox it gets, and whether its template lets it.

Refusals are reasons of the published API with words for people. Not here: which sandbox it gets (claim.py).
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.sandbox.api import CLAIM_UID, GROUP, ClaimReason
from holdfast.sandbox.blueprint import sandbox_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_RESERVED = (f"{GROUP}/", "holdfast.dev/", "kubernetes.io/", "k8s.io/")


class Refusal(msgspec.Struct, frozen=True):
    """Why a claim cannot be served as it is."""

    reason: ClaimReason
    message: str


def needs_own_sandbox(claim: Mapping[str, Any]) -> bool:
    """Whether what the claim asks for cannot be had from a sandbox that runs already."""
    return bool(claim["spec"].get("env") or claim["spec"].get("volumeClaimTemplates"))


def refusal(claim: Mapping[str, Any], template: Mapping[str, Any]) -> Refusal | None:
    """The first thing that is wrong with a claim, or None."""
    return _bad_metadata(claim) or _bad_variables(claim, template) or _bad_claims(claim, template)


def pod_metadata(claim: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The labels and annotations that the claim adds to its pod, and the label by which that is found."""
    given = claim["spec"].get("additionalPodMetadata") or {}
    return {
        "labels": {**(given.get("labels") or {}), CLAIM_UID: claim["metadata"]["uid"]},
        "annotations": dict(given.get("annotations") or {}),
    }


def changed_spec(claim: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a sandbox that is made for this claim; only for claims that are not refused."""
    spec = sandbox_spec(template)
    spec["podTemplate"]["metadata"] = with_metadata(spec["podTemplate"].get("metadata"), claim)
    for variable in claim["spec"].get("env") or ():
        _set_variable(_container(spec, variable), variable)
    added = claim["spec"].get("volumeClaimTemplates") or ()
    names = {_name(entry) for entry in added}
    kept = [entry for entry in spec.get("volumeClaimTemplates") or () if _name(entry) not in names]
    if kept or added:
        spec["volumeClaimTemplates"] = [*kept, *copy.deepcopy(list(added))]
    return spec


def with_metadata(given: Mapping[str, Any] | None, claim: Mapping[str, Any]) -> dict[str, Any]:
    """A pod template's metadata with the claim's on top."""
    own, more = given or {}, pod_metadata(claim)
    return {
        part: merged
        for part in ("labels", "annotations")
        if (merged := {**(own.get(part) or {}), **more[part]})
    }


def _bad_metadata(claim: Mapping[str, Any]) -> Refusal | None:
    given = claim["spec"].get("additionalPodMetadata") or {}
    for part in ("labels", "annotations"):
        for key, value in (given.get(part) or {}).items():
            if not _is_key(key):
                return _invalid(f"{key!r} is no key for {part}")
            if key.startswith(_RESERVED):
                return _invalid(f"{part} {key!r} is reserved")
            if part == "labels" and not _LABEL_VALUE.fullmatch(value):
                return _invalid(f"{value!r} cannot be the value of the label {key!r}")
    return None


def _bad_variables(claim: Mapping[str, Any], template: Mapping[str, Any]) -> Refusal | None:
    wanted = claim["spec"].get("env") or ()
    policy = template["spec"].get("envVarsInjectionPolicy") or "Disallowed"
    if wanted and policy == "Disallowed":
        return Refusal(ClaimReason.ENV_REJECTED, "the template lets no claim set environment variables")
    spec = sandbox_spec(template)
    for variable in wanted:
        container = _container(spec, variable)
        if container is None:
            words = f"the template has no container {variable['containerName']!r}"
            return Refusal(ClaimReason.ENV_REJECTED, words)
        there = {entry["name"] for entry in container.get("env") or ()}
        if policy == "Allowed" and variable["name"] in there:
            words = f"the template sets {variable['name']} itself and lets no claim override it"
            return Refusal(ClaimReason.ENV_REJECTED, words)
    return None


def _bad_claims(claim: Mapping[str, Any], template: Mapping[str, Any]) -> Refusal | None:
    wanted = claim["spec"].get("volumeClaimTemplates") or ()
    policy = template["spec"].get("volumeClaimTemplatesPolicy") or "Disallowed"
    if wanted and policy == "Disallowed":
        words = "the template lets no claim bring volume claim templates"
        return Refusal(ClaimReason.CLAIM_TEMPLATES_ERROR, words)
    there = {_name(entry) for entry in template["spec"].get("volumeClaimTemplates") or ()}
    for number, entry in enumerate(wanted, start=1):
        if not _name(entry):
            words = f"volume claim template {number} has no name"
            return Refusal(ClaimReason.CLAIM_TEMPLATES_ERROR, words)
        if policy == "Allowed" and _name(entry) in there:
            words = f"the template has a claim template {_name(entry)!r} and lets no claim override it"
            return Refusal(ClaimReason.CLAIM_TEMPLATES_ERROR, words)
    return None


def _invalid(words: str) -> Refusal:
    return Refusal(ClaimReason.INVALID_METADATA, words)


def _is_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(_LABEL_NAME.fullmatch(name)) and (not slash or bool(_PREFIX.fullmatch(prefix)))


def _container(spec: Mapping[str, Any], variable: Mapping[str, Any]) -> Any:
    containers = spec["podTemplate"]["spec"].get("containers") or ()
    wanted = variable.get("containerName")
    if not wanted:
        return containers[0] if containers else None
    return next((container for container in containers if container["name"] == wanted), None)


def _set_variable(container: dict[str, Any], variable: Mapping[str, Any]) -> None:
    kept = [entry for entry in container.get("env") or () if entry["name"] != variable["name"]]
    container["env"] = [*kept, {"name": variable["name"], "value": variable["value"]}]


def _name(entry: Mapping[str, Any]) -> str:
    return str((entry.get("metadata") or {}).get("name") or "")
