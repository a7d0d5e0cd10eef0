"""What a claim wants to change about the sandbox it gets, and whether its template lets it.

Refusals are reasons of the published API with words for people. Not here: its labels and annotations
(claim_metadata.py), and which sandbox it gets (claim.py).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from holdfast.sandbox.api import ClaimReason
from holdfast.sandbox.blueprint import sandbox_spec, template_metadata
from holdfast.sandbox.claim_metadata import Refusal, bad_metadata, with_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def needs_own_sandbox(claim: Mapping[str, Any]) -> bool:
    """Whether what the claim asks for cannot be had from a sandbox that runs already."""
    return bool(claim["spec"].get("env") or claim["spec"].get("volumeClaimTemplates"))


def refusal(
    claim: Mapping[str, Any], template: Mapping[str, Any], policies: Sequence[Mapping[str, Any]] = ()
) -> Refusal | None:
    """The first thing that is wrong with a claim, or None."""
    metadata = bad_metadata(claim, template_metadata(template), policies)
    return metadata or _bad_variables(claim, template) or _bad_claims(claim, template)


def changed_spec(claim: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a sandbox that is made for this claim; only for claims that are not refused."""
    spec = sandbox_spec(template)
    spec["podTemplate"]["metadata"] = with_metadata(template_metadata(template), claim)
    for variable in claim["spec"].get("env") or ():
        _set_variable(_container(spec["podTemplate"]["spec"], variable), variable)
    added = claim["spec"].get("volumeClaimTemplates") or ()
    names = {_name(entry) for entry in added}
    kept = [entry for entry in spec.get("volumeClaimTemplates") or () if _name(entry) not in names]
    if kept or added:
        spec["volumeClaimTemplates"] = [*kept, *copy.deepcopy(list(added))]
    return spec


def _bad_variables(claim: Mapping[str, Any], template: Mapping[str, Any]) -> Refusal | None:
    wanted = claim["spec"].get("env") or ()
    policy = template["spec"].get("envVarsInjectionPolicy") or "Disallowed"
    if wanted and policy == "Disallowed":
        return Refusal(ClaimReason.ENV_REJECTED, "the template lets no claim set environment variables")
    pod, given = template["spec"]["podTemplate"]["spec"], set[tuple[str, str]]()
    for variable in wanted:
        container = _container(pod, variable)
        if container is None:
            words = f"the template has no container {variable.get('containerName')!r}"
        else:
            words = _more_than_added(container, variable["name"], given) if policy == "Allowed" else ""
        if words:
            return Refusal(ClaimReason.ENV_REJECTED, words)
    return None


def _more_than_added(container: Mapping[str, Any], name: str, given: set[tuple[str, str]]) -> str:
    """Why a variable may override another one; those of the claim itself are noted in `given`."""
    if container.get("envFrom"):
        return f"the container {container['name']} has variables from elsewhere that {name} might override"
    known = {entry["name"] for entry in container.get("env") or ()}
    if name in known or (container["name"], name) in given:
        return f"{name} is set already, and the template lets no claim override it"
    given.add((container["name"], name))
    return ""


def _bad_claims(claim: Mapping[str, Any], template: Mapping[str, Any]) -> Refusal | None:
    wanted = claim["spec"].get("volumeClaimTemplates") or ()
    policy = template["spec"].get("volumeClaimTemplatesPolicy") or "Disallowed"
    if wanted and policy == "Disallowed":
        words = "the template lets no claim bring volume claim templates"
        return Refusal(ClaimReason.CLAIM_TEMPLATES_ERROR, words)
    there = {_name(entry) for entry in template["spec"].get("volumeClaimTemplates") or ()}
    names = [_name(entry) for entry in wanted]
    for number, entry in enumerate(wanted, start=1):
        if not _name(entry):
            words = f"volume claim template {number} has no name"
            return Refusal(ClaimReason.CLAIM_TEMPLATES_ERROR, words)
        if names.count(_name(entry)) > 1:
            words = f"two volume claim templates are called {_name(entry)!r}"
            return Refusal(ClaimReason.CLAIM_TEMPLATES_ERROR, words)
        if policy == "Allowed" and _name(entry) in there:
            words = f"the template has a claim template {_name(entry)!r} and lets no claim override it"
            return Refusal(ClaimReason.CLAIM_TEMPLATES_ERROR, words)
    return None


def _container(pod: Mapping[str, Any], variable: Mapping[str, Any]) -> Any:
    """The container that is named, be it one that runs first; the first of those that stay where none is."""
    staying = pod.get("containers") or ()
    wanted = variable.get("containerName")
    if not wanted:
        return next(iter(staying), None)
    return next(
        (each for each in (*(pod.get("initContainers") or ()), *staying) if each["name"] == wanted), None
    )


def _set_variable(container: dict[str, Any], variable: Mapping[str, Any]) -> None:
    """In the place of one of the same name: others may be made of it."""
    new = {"name": variable["name"], "value": variable["value"]}
    there = list(container.get("env") or ())
    replaced = [new if each["name"] == new["name"] else each for each in there]
    container["env"] = replaced if new in replaced else [*there, new]


def _name(entry: Mapping[str, Any]) -> str:
    return str((entry.get("metadata") or {}).get("name") or "")
