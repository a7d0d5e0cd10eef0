"""The network policy of one sandbox: made before it, so that its pod never runs without, and then its own.

A policy that somebody else made is never changed. Not here: what is in it (the sandbox floor), and those of
templates (the controller).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import ObjectConflictError
from holdfast.sandbox.api import API_VERSION
from holdfast.sandbox.ownership import owner_reference
from holdfast.server.problems import ApiError, conflict

if TYPE_CHECKING:
    from holdfast.server.cluster import Cluster


async def prepare(cluster: Cluster, policy: dict[str, Any], name: str) -> None:
    """Make the policy of a sandbox that is not there yet; until then it is nobody's.

    The same policy without an owner is one that an earlier attempt left.
    """
    found = await _ensured(cluster, policy)
    owners = _owners(found)
    if not owners:
        return
    sandbox = await cluster.sandbox(name)
    if sandbox is None or sandbox["metadata"]["uid"] not in owners:
        raise _taken(policy)


async def hand_over(cluster: Cluster, policy: dict[str, Any], sandbox: dict[str, Any]) -> None:
    """The policy is the sandbox's and goes with it; sent again, a request makes up for a lost one."""
    uid, name = sandbox["metadata"]["uid"], policy["metadata"]["name"]
    owner = owner_reference({**sandbox, "apiVersion": API_VERSION, "kind": "Sandbox"})
    owned = {**policy, "metadata": {**policy["metadata"], "ownerReferences": [owner]}}
    found = await cluster.objects.get("NetworkPolicy", name, namespace=cluster.namespace)
    if found is not None and uid in _owners(found):
        await cluster.objects.apply(owned, force=True)
        return
    found = await _ensured(cluster, owned if found is None else policy)
    owners = _owners(found)
    if uid in owners:
        return
    if owners:
        raise _taken(policy)
    done = await cluster.objects.patch(
        "NetworkPolicy",
        name,
        {"metadata": {"ownerReferences": [owner]}},
        namespace=cluster.namespace,
        uid=found["metadata"]["uid"],
    )
    if done is None:
        raise conflict("policy-gone", f"the network policy {name} was just deleted", "Send it again.")


async def _ensured(cluster: Cluster, policy: dict[str, Any]) -> dict[str, Any]:
    try:
        return (await cluster.objects.ensure(policy)).object
    except ObjectConflictError as error:
        raise _taken(policy) from error


def _owners(policy: dict[str, Any]) -> set[str]:
    return {str(each.get("uid")) for each in policy["metadata"].get("ownerReferences") or ()}


def _taken(policy: dict[str, Any]) -> ApiError:
    name = policy["metadata"]["name"]
    return conflict(
        "policy-taken",
        f"a network policy {name} is there, and is not this sandbox's",
        "If a sandbox of this name was just deleted, wait a moment; else delete that policy.",
    )
