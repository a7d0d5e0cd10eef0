"""Map a changed object to the keys that need reconciliation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.api import NAME_HASH_LABEL, TEMPLATE_REF_ANNOTATION, WARM_POOL_LABEL
from holdfast.controller.cache import object_key
from holdfast.sandbox import controller_of, name_hash, template_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.controller.cache import ObjectCache, ObjectKey

RECONCILED_KINDS = ("Sandbox", "SandboxWarmPool", "SandboxClaim", "SandboxTemplate")


def affected_keys(obj: Mapping[str, Any], cache: ObjectCache) -> Iterator[ObjectKey]:
    """Yield every key that may be affected by a change of this object; keys may repeat."""
    kind, namespace, name = object_key(obj)
    if kind in RECONCILED_KINDS:
        yield kind, namespace, name
    owner = controller_of(obj)
    if owner is not None and owner.get("kind") in RECONCILED_KINDS:
        yield owner["kind"], namespace, owner["name"]
        if owner["kind"] == "SandboxWarmPool":
            yield from map(object_key, cache.list_pending_claims(namespace, owner["name"]))
    label = (obj["metadata"].get("labels") or {}).get(NAME_HASH_LABEL)
    # By label too: a sandbox may adopt a labelled object that has no controller yet.
    if label and kind != "Sandbox":
        yield from (object_key(sandbox) for sandbox in cache.list_tracked("Sandbox", namespace, label))
    if kind == "Sandbox":
        yield from _affected_by_sandbox(obj, cache)
    if kind == "SandboxWarmPool":
        # Rejected SandboxClaims too: the pool may have another template, which accepts them.
        yield from map(object_key, cache.list_unbound_claims(namespace, name))
    if kind == "NetworkPolicy":
        yield from _affected_by_network_policy(namespace, name, cache)
        if owner is not None and owner.get("kind") == "SandboxTemplate":
            yield from sandboxes_from_template(namespace, owner["name"], cache)
    if kind == "SandboxTemplate":
        yield from _warm_pools_of_template(namespace, name, cache)


def sandboxes_from_template(namespace: str, template: str, cache: ObjectCache) -> Iterator[ObjectKey]:
    """Yield the sandboxes of a template: their status reports whether its network policy is enforced."""
    for sandbox in cache.iter_kind("Sandbox"):
        annotations = sandbox["metadata"].get("annotations") or {}
        if annotations.get(TEMPLATE_REF_ANNOTATION) == template and object_key(sandbox)[1] == namespace:
            yield object_key(sandbox)


def _affected_by_network_policy(namespace: str, policy: str, cache: ObjectCache) -> Iterator[ObjectKey]:
    """Yield the keys that a network policy may have blocked."""
    # The labels of these SandboxClaims are selected by a policy.
    yield from (object_key(claim) for claim in cache.list_claims_with_invalid_metadata())
    # The policy may have the name that a template needs.
    template = template_name(policy)
    if cache.get("SandboxTemplate", namespace, template) is not None:
        yield "SandboxTemplate", namespace, template


def _warm_pools_of_template(namespace: str, template: str, cache: ObjectCache) -> Iterator[ObjectKey]:
    """Yield the warm pools of a template and their SandboxClaims."""
    for pool in cache.iter_kind("SandboxWarmPool"):
        if (
            pool["metadata"]["namespace"] == namespace
            and pool["spec"]["sandboxTemplateRef"]["name"] == template
        ):
            yield object_key(pool)
            # All of them: the pod metadata of a template reaches the pods of bound SandboxClaims too.
            for claim in cache.iter_kind("SandboxClaim"):
                _, place, _ = key = object_key(claim)
                if (place, claim["spec"]["warmPoolRef"]["name"]) == (namespace, pool["metadata"]["name"]):
                    yield key


def _affected_by_sandbox(sandbox: Mapping[str, Any], cache: ObjectCache) -> Iterator[ObjectKey]:
    """Yield the SandboxClaim of the same name, and the pools that may adopt the sandbox."""
    _, namespace, name = object_key(sandbox)
    if cache.get("SandboxClaim", namespace, name) is not None:
        # The sandbox may have blocked the SandboxClaim that wants its name.
        yield "SandboxClaim", namespace, name
    if controller_of(sandbox) is not None:
        return
    label = (sandbox["metadata"].get("labels") or {}).get(WARM_POOL_LABEL)
    for pool in cache.iter_kind("SandboxWarmPool") if label else ():
        if pool["metadata"]["namespace"] == namespace and name_hash(pool["metadata"]["name"]) == label:
            yield object_key(pool)
