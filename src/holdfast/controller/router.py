"""Which sandboxes, pools and claims have to be looked at when an object has changed.

Not here: the cache that answers (cache.py), and the look itself (looks.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.controller.cache import key_of
from holdfast.sandbox.api import NAME_HASH, TEMPLATE_REF
from holdfast.sandbox.network import template_of
from holdfast.sandbox.ownership import controller_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.controller.cache import Cache, Key

LOOKED_AT = ("Sandbox", "SandboxWarmPool", "SandboxClaim", "SandboxTemplate")


def touched(found: Mapping[str, Any], cache: Cache) -> Iterator[Key]:
    """Everything that may have to act on a change of this object; some of it may be named twice."""
    kind, namespace, name = key_of(found)
    if kind in LOOKED_AT:
        yield kind, namespace, name
    owner = controller_of(found)
    if owner is not None and owner.get("kind") in LOOKED_AT:
        yield owner["kind"], namespace, owner["name"]
        if owner["kind"] == "SandboxWarmPool":
            yield from _claims_of(namespace, owner["name"], cache)
    label = (found["metadata"].get("labels") or {}).get(NAME_HASH)
    if label and kind != "Sandbox":
        yield from (key_of(sandbox) for sandbox in cache.sandboxes_with_hash(namespace, label))
    if kind == "Sandbox" and cache.get("SandboxClaim", namespace, name) is not None:
        # It may have been in the way of the claim that wants its name.
        yield "SandboxClaim", namespace, name
    if kind == "SandboxWarmPool":
        yield from _claims_of(namespace, name, cache)
    if kind == "NetworkPolicy":
        yield from _beside_policy(namespace, name, cache)
        if owner is not None:
            yield from made_from(namespace, owner["name"], cache)
    if kind == "SandboxTemplate":
        yield from _pools_of(namespace, name, cache)


def made_from(namespace: str, template: str, cache: Cache) -> Iterator[Key]:
    """Sandboxes of a template: they say whether its policy is kept to."""
    for sandbox in cache.all("Sandbox"):
        annotations = sandbox["metadata"].get("annotations") or {}
        if annotations.get(TEMPLATE_REF) == template and key_of(sandbox)[1] == namespace:
            yield key_of(sandbox)


def _beside_policy(namespace: str, policy: str, cache: Cache) -> Iterator[Key]:
    """Who may have been hindered by a network policy, and is not without it."""
    # A label that no claim may have beside one policy.
    yield from (key_of(claim) for claim in cache.claims_with_bad_metadata())
    # A template that asks for one of the same name.
    template = template_of(policy)
    if cache.get("SandboxTemplate", namespace, template) is not None:
        yield "SandboxTemplate", namespace, template


def _pools_of(namespace: str, template: str, cache: Cache) -> Iterator[Key]:
    """Pools of a template, and the claims that wait for them."""
    for pool in cache.all("SandboxWarmPool"):
        _, where, called = key_of(pool)
        if where == namespace and pool["spec"]["sandboxTemplateRef"]["name"] == template:
            yield key_of(pool)
            yield from _claims_of(where, called, cache)


def _claims_of(namespace: str, pool: str, cache: Cache) -> Iterator[Key]:
    """Claims of a pool that have no sandbox yet: only those wait for one."""
    for claim in cache.claims_waiting_for(namespace, pool):
        yield key_of(claim)
