"""Environment variables and volume claim templates of a SandboxClaim, as far as its template allows them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from holdfast.api import SandboxClaimReason
from holdfast.sandbox.claim.metadata import error_condition, find_metadata_conflict, merge_pod_metadata
from holdfast.sandbox.from_template import sandbox_spec, template_metadata
from holdfast.sandbox.status import not_ready_condition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.sandbox.status import ConditionUpdate


def needs_cold_sandbox(sandbox_claim: Mapping[str, Any]) -> bool:
    """Whether a SandboxClaim needs a new sandbox: a running one cannot get other variables or volumes."""
    return bool(sandbox_claim["spec"].get("env") or sandbox_claim["spec"].get("volumeClaimTemplates"))


def find_rejection(
    sandbox_claim: Mapping[str, Any], template: Mapping[str, Any], policies: Sequence[Mapping[str, Any]] = ()
) -> ConditionUpdate | None:
    """Find the first part of a SandboxClaim that its template does not allow, in the published order."""
    return (
        _volumes_rejection(sandbox_claim, template)
        or find_metadata_conflict(sandbox_claim, template_metadata(template), policies)
        or _env_rejection(sandbox_claim, template)
    )


def cold_sandbox_spec(sandbox_claim: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Spec of a sandbox for a SandboxClaim that `find_rejection` accepts."""
    spec = sandbox_spec(template)
    spec["podTemplate"]["metadata"] = merge_pod_metadata(template_metadata(template), sandbox_claim)
    for variable in sandbox_claim["spec"].get("env") or ():
        _set_env_var(_find_container(spec["podTemplate"]["spec"], variable), variable)
    given = {
        _metadata_name(entry): copy.deepcopy(entry)
        for entry in sandbox_claim["spec"].get("volumeClaimTemplates") or ()
    }
    if given:
        # In place: the order of the volumes is part of what makes a sandbox outdated.
        kept = spec.get("volumeClaimTemplates") or ()
        spec["volumeClaimTemplates"] = [given.pop(_metadata_name(entry), entry) for entry in kept]
        spec["volumeClaimTemplates"] += given.values()
    return spec


def _env_rejection(sandbox_claim: Mapping[str, Any], template: Mapping[str, Any]) -> ConditionUpdate | None:
    variables = sandbox_claim["spec"].get("env") or ()
    policy = template["spec"].get("envVarsInjectionPolicy") or "Disallowed"
    if variables and policy == "Disallowed":
        return _env_rejected("environment variable injection is not allowed by the template policy")
    pod, added = template["spec"]["podTemplate"]["spec"], set[tuple[str, str]]()
    problems = (_env_var_rejection(pod, variable, policy, added) for variable in variables)
    return next((problem for problem in problems if problem is not None), None)


def _env_rejected(problem: str) -> ConditionUpdate:
    message = f"environment variable injection rejected: {problem}"
    return not_ready_condition(SandboxClaimReason.ENV_VARS_INJECTION_REJECTED, message)


def _env_var_rejection(
    pod: Mapping[str, Any], variable: Mapping[str, Any], policy: str, added: set[tuple[str, str]]
) -> ConditionUpdate | None:
    """Why a variable cannot be set; records it in `added`, by container and name."""
    container, name = _find_container(pod, variable), variable["name"]
    if container is None:
        target = variable.get("containerName") or ""
        return error_condition(
            f'target container "{target}" not found in template for environment variable "{name}"'
        )
    if policy != "Allowed":
        return None
    # The keys of the ConfigMap or Secret are unknown here: every name may be one of them.
    if container.get("envFrom"):
        return _env_rejected(
            f'container "{container["name"]}" uses EnvFrom sources; Allowed policy cannot safely prevent '
            "overriding EnvFrom-provided variables"
        )
    existing = {entry["name"] for entry in container.get("env") or ()}
    if name in existing or (container["name"], name) in added:
        return error_condition(
            f'environment variable override is not allowed by the template policy for variable "{name}"'
        )
    added.add((container["name"], name))
    return None


def _volumes_rejection(
    sandbox_claim: Mapping[str, Any], template: Mapping[str, Any]
) -> ConditionUpdate | None:
    names, existing = (
        [_metadata_name(entry) for entry in obj["spec"].get("volumeClaimTemplates") or ()]
        for obj in (sandbox_claim, template)
    )
    policy = template["spec"].get("volumeClaimTemplatesPolicy") or "Disallowed"
    problem, prefix = "", "failed to merge volume claim templates: "
    own, theirs = _names_error(existing), _names_error(names)
    override = next((name for name in names if name in existing), "")
    if not names:
        problem, prefix = own, "invalid volume claim templates in template: "
    elif own:
        problem = f"template: {own}"
    elif theirs:
        problem = f"claim: {theirs}"
    elif policy == "Disallowed":
        problem = "volume claim templates are disallowed by the template"
    elif policy == "Allowed" and override:
        problem = (
            "overriding volume claim templates is forbidden by the template: cannot override template "
            f'volume "{override}"'
        )
    if not problem:
        return None
    return not_ready_condition(SandboxClaimReason.VOLUME_CLAIM_TEMPLATES_ERROR, prefix + problem)


def _names_error(names: Sequence[str]) -> str:
    """Why a list of volume claim templates is invalid by itself."""
    problem = ""
    if "" in names:
        problem = f"name at index {names.index('')} is empty"
    elif duplicate := next((name for at, name in enumerate(names) if name in names[:at]), ""):
        problem = f'duplicate name "{duplicate}"'
    return f"invalid volume claim templates: {problem}" if problem else ""


def _find_container(pod: Mapping[str, Any], variable: Mapping[str, Any]) -> Any:
    """The container or init container that a variable names; the first container if it names none."""
    containers, name = pod.get("containers") or (), variable.get("containerName")
    if not name:
        return next(iter(containers), None)
    candidates = (*(pod.get("initContainers") or ()), *containers)
    return next((container for container in candidates if container["name"] == name), None)


def _set_env_var(container: dict[str, Any], variable: Mapping[str, Any]) -> None:
    """Set a variable. An existing one keeps its position: later variables may refer to it."""
    new = {"name": variable["name"], "value": variable["value"]}
    existing = list(container.get("env") or ())
    replaced = [new if entry["name"] == new["name"] else entry for entry in existing]
    container["env"] = replaced if new in replaced else [*existing, new]


def _metadata_name(entry: Mapping[str, Any]) -> str:
    return str((entry.get("metadata") or {}).get("name") or "")
