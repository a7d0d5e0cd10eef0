"""Pure functions that convert SandboxTemplates and SandboxWarmPools to the models of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.api import (
    MANAGED_BY_LABEL,
    ConditionType,
    NetworkPolicy,
    Phase,
    PoolView,
    SandboxClaimReason,
    SandboxReason,
    TemplateView,
    Workspace,
)
from holdfast.sandbox import SEED_CONTAINER, VOLUME_NAME, controller_of, find_condition
from holdfast.server.sandboxes import presenters, template_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.api import UpdateStrategy

_GENERIC_REASONS = frozenset({"", SandboxReason.DEPENDENCIES_NOT_READY})
"""Reasons of a sandbox that is starting: they do not tell what it waits for."""
# Of holdfast's own variables, which are part of every template: the view has those of the user.
_OWN_VARIABLE_PREFIX = "HOLDFAST_"


def present_template(template: Mapping[str, Any], pools: Iterable[Mapping[str, Any]] = ()) -> TemplateView:
    """Convert a template.

    Args:
        template: the SandboxTemplate.
        pools: the SandboxWarmPools of the gateway.
    """
    metadata, pod_template = template["metadata"], template["spec"]["podTemplate"]
    labels = dict((pod_template.get("metadata") or {}).get("labels") or {})
    labels.pop(MANAGED_BY_LABEL, None)
    return TemplateView(
        name=metadata["name"],
        **presenters.container_fields(template),
        env=_variable_names(pod_template["spec"]),
        workspace=_workspace(template["spec"]),
        labels=labels,
        network_policy=_network_policy(template["spec"]),
        pools=[str(pool["metadata"]["name"]) for pool in pools if template_of(pool) == metadata["name"]],
        created=metadata.get("creationTimestamp"),
    )


def _variable_names(pod_spec: Mapping[str, Any]) -> list[str]:
    containers = pod_spec.get("containers") or ()
    variables = (containers[0].get("env") or ()) if containers else ()
    # Variables that holdfast takes from the settings of the gateway's host have no value of their own.
    names = [str(variable["name"]) for variable in variables if "valueFrom" not in variable]
    return sorted(name for name in names if not name.startswith(_OWN_VARIABLE_PREFIX))


def _workspace(spec: Mapping[str, Any]) -> Workspace | None:
    volumes = {
        (volume.get("metadata") or {}).get("name"): volume["spec"]
        for volume in spec.get("volumeClaimTemplates") or ()
    }
    volume = volumes.get(VOLUME_NAME)
    if volume is None:
        return None
    size = ((volume.get("resources") or {}).get("requests") or {}).get("storage")
    init_containers = spec["podTemplate"]["spec"].get("initContainers") or ()
    return Workspace(
        size=str(size),
        storage_class=volume.get("storageClassName"),
        seed=any(container.get("name") == SEED_CONTAINER for container in init_containers),
    )


def _network_policy(spec: Mapping[str, Any]) -> NetworkPolicy | None:
    rules = spec.get("networkPolicy")
    if rules is None or spec.get("networkPolicyManagement") == "Unmanaged":
        return None
    return NetworkPolicy(ingress=rules.get("ingress") or [], egress=rules.get("egress") or [])


def present_pool(
    pool: Mapping[str, Any],
    template: Mapping[str, Any] | None,
    sandboxes: Iterable[Mapping[str, Any]] = (),
) -> PoolView:
    """Convert a pool.

    Args:
        pool: the SandboxWarmPool.
        template: its template; None if it does not exist.
        sandboxes: sandboxes that may explain why the pool is pending; those of other pools are ignored.
    """
    metadata, spec, status = pool["metadata"], pool["spec"], pool.get("status") or {}
    strategy = (spec.get("updateStrategy") or {}).get("type", "OnReplenish")
    phase, reason, message = _pool_state(pool, template, sandboxes)
    return PoolView(
        name=metadata["name"],
        template=template_of(pool),
        image=presenters.container_fields(template).get("image") if template is not None else None,
        phase=phase,
        reason=reason,
        message=message,
        size=int(spec.get("replicas", 1)),
        ready=int(status.get("readyReplicas") or 0),
        available=int(status.get("replicas") or 0),
        update_strategy=cast("UpdateStrategy", strategy),
        conditions=[presenters.present_condition(each) for each in status.get("conditions") or ()],
        created=metadata.get("creationTimestamp"),
    )


def _pool_state(
    pool: Mapping[str, Any], template: Mapping[str, Any] | None, sandboxes: Iterable[Mapping[str, Any]]
) -> tuple[Phase, str, str]:
    """Phase, reason and message of a pool."""
    metadata, status = pool["metadata"], pool.get("status") or {}
    size, ready = int(pool["spec"].get("replicas", 1)), int(status.get("readyReplicas") or 0)
    if metadata.get("deletionTimestamp"):
        return Phase.DELETING, "", "the pool is being deleted"
    if template is None:
        message = f"template {template_of(pool)} does not exist: the pool creates no sandboxes"
        return Phase.PENDING, SandboxClaimReason.TEMPLATE_NOT_FOUND, message
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        return Phase.PENDING, "", "the controller has not seen the latest change yet"
    counts = f"{ready} of {size} sandboxes are ready"
    if ready >= size:
        return Phase.READY, "", counts
    own = [each for each in sandboxes if (controller_of(each) or {}).get("uid") == metadata.get("uid")]
    return Phase.PENDING, *(_rejection(pool) or _explain_members(own, counts))


def _rejection(pool: Mapping[str, Any]) -> tuple[str, str] | None:
    """Reason and message if the API server rejects the pool's sandboxes."""
    ready = find_condition(pool, ConditionType.READY)
    if ready.get("status") != "False":
        return None
    return str(ready.get("reason") or ""), str(ready.get("message") or "")


def _explain_members(sandboxes: Iterable[Mapping[str, Any]], counts: str) -> tuple[str, str]:
    """Reason and message of the first sandbox that tells what it waits for."""
    for sandbox in sandboxes:
        phase, reason, message = presenters.sandbox_phase(sandbox)
        if phase not in (Phase.READY, Phase.DELETING) and reason not in _GENERIC_REASONS:
            return reason, f"{counts}; {sandbox['metadata']['name']}: {message}"
    return "", counts


def is_created_from(claim: Mapping[str, Any], pool: str) -> bool:
    """Return whether a SandboxClaim has got a sandbox from a pool."""
    return bool(claim["spec"]["warmPoolRef"]["name"] == pool) and not presenters.has_no_sandbox(claim)


def with_sandboxes(view: PoolView, claims: Iterable[Mapping[str, Any]]) -> PoolView:
    """Return the view with the names of the sandboxes that SandboxClaims have got from the pool."""
    names = [str(claim["metadata"]["name"]) for claim in claims if is_created_from(claim, view.name)]
    return msgspec.structs.replace(view, sandboxes=names)
