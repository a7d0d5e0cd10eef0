"""Objects of a sandbox that the server writes: PVCs and network policies.

A workspace can outlive its sandbox: it is released before the sandbox is deleted, and adopted by the next
sandbox of that name. A network policy exists before its sandbox, so that the pod never runs without it.
Requests for one name may run concurrently: every write carries the resourceVersion or uid that was read. The
server never changes a policy that it did not create.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.api import NAME_HASH_LABEL
from holdfast.errors import ObjectConflictError
from holdfast.sandbox import VOLUME_NAME, name_hash, owner_reference, pvc_name
from holdfast.server.errors import ApiError, conflict
from holdfast.server.sandboxes import presenters

if TYPE_CHECKING:
    from holdfast.server.namespace_client import NamespaceClient


KEPT_WORKSPACE_LABEL = "holdfast.dev/kept-workspace"
"""Label of a PVC that outlived its sandbox: the hash of the sandbox name."""


async def list_pvcs(cluster: NamespaceClient, sandbox: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the existing PVCs of a sandbox, the workspace first."""
    pvcs = [await cluster.get("PersistentVolumeClaim", name) for name in presenters.pvc_names(sandbox)]
    return [pvc for pvc in pvcs if pvc is not None]


def owns_pvc(sandbox: dict[str, Any], pvc: dict[str, Any]) -> bool:
    """Return whether the garbage collector deletes the PVC with the sandbox."""
    return sandbox["metadata"]["uid"] in owner_uids(pvc)


async def release_pvc(cluster: NamespaceClient, sandbox: dict[str, Any], pvc: dict[str, Any]) -> None:
    """Remove the owner and the hash label: with the label, the controller would adopt the PVC immediately."""
    uid = sandbox["metadata"]["uid"]
    others = [owner for owner in pvc["metadata"].get("ownerReferences") or () if owner.get("uid") != uid]
    labels = {NAME_HASH_LABEL: None, KEPT_WORKSPACE_LABEL: name_hash(sandbox["metadata"]["name"])}
    # One patch: between two, the controller would adopt the PVC again by its label.
    await _patch_pvc(cluster, pvc, {"ownerReferences": others or None, "labels": labels})


async def ensure_pvc_released(cluster: NamespaceClient, sandbox: dict[str, Any], pvc: dict[str, Any]) -> bool:
    """Return whether a PVC outlives its deleted sandbox; release it again if the controller adopted it
    meanwhile.
    """
    metadata = pvc["metadata"]
    live = await cluster.get("PersistentVolumeClaim", metadata["name"])
    if (
        live is None
        or live["metadata"]["uid"] != metadata["uid"]
        or live["metadata"].get("deletionTimestamp")
    ):
        return False
    if owns_pvc(sandbox, live):
        await release_pvc(cluster, sandbox, live)
    return True


async def adopt_kept_pvc(cluster: NamespaceClient, sandbox_name: str) -> None:
    """Let the controller adopt the workspace that was kept for a sandbox name.

    Does nothing while a sandbox of that name exists: if it is being deleted, the data would be deleted with
    it.
    """
    name = pvc_name(VOLUME_NAME, sandbox_name)
    pvc = await cluster.get("PersistentVolumeClaim", name)
    if pvc is None or not _is_kept_for(pvc, sandbox_name) or await cluster.get("Sandbox", sandbox_name):
        return
    labels = {KEPT_WORKSPACE_LABEL: None, NAME_HASH_LABEL: name_hash(sandbox_name)}
    try:
        # A kill after this patch loses nothing: by the label, the next sandbox of this name adopts the PVC.
        await _patch_pvc(cluster, pvc, {"labels": labels})
    except ObjectConflictError:
        live = await cluster.get("PersistentVolumeClaim", name)
        if live is None or _is_kept_for(live, sandbox_name):
            raise
        # A concurrent request with the same name has adopted it.


def _is_kept_for(pvc: dict[str, Any], sandbox_name: str) -> bool:
    return (pvc["metadata"].get("labels") or {}).get(KEPT_WORKSPACE_LABEL) == name_hash(sandbox_name)


async def _patch_pvc(cluster: NamespaceClient, pvc: dict[str, Any], change: dict[str, Any]) -> None:
    metadata = pvc["metadata"]
    # With the resourceVersion that was read, a concurrent change causes a conflict and is not overwritten.
    patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], **change}}
    if await cluster.patch(pvc, patch) is None:
        message = f"PVC {metadata['name']}: deleted by another client"
        raise conflict("workspace-gone", message, "Check the sandbox and repeat the request.")


async def ensure_network_policy(cluster: NamespaceClient, policy: dict[str, Any], sandbox_name: str) -> None:
    """Create the network policy of a sandbox that does not exist yet.

    An identical policy without an owner comes from an interrupted request and is reused.
    """
    owners = owner_uids(await _create_network_policy(cluster, policy))
    if not owners:
        return
    sandbox = await cluster.get("Sandbox", sandbox_name)
    if sandbox is None or sandbox["metadata"]["uid"] not in owners:
        raise _network_policy_conflict(policy)


async def set_network_policy_owner(
    cluster: NamespaceClient, policy: dict[str, Any], sandbox: dict[str, Any]
) -> None:
    """Make the sandbox the owner of its policy; a repeated request completes an interrupted one."""
    uid, name = sandbox["metadata"]["uid"], policy["metadata"]["name"]
    owner = owner_reference(sandbox)
    owned = {**policy, "metadata": {**policy["metadata"], "ownerReferences": [owner]}}
    live = await cluster.get("NetworkPolicy", name)
    if live is not None and uid in owner_uids(live):
        # The policy belongs to this sandbox: restore its rules, even if another client changed them.
        await cluster.objects.apply(owned, force=True)
        return
    live = await _create_network_policy(cluster, owned if live is None else policy)
    owners = owner_uids(live)
    if uid in owners:
        return
    if owners:
        raise _network_policy_conflict(policy)
    if await cluster.patch(live, {"metadata": {"ownerReferences": [owner]}}) is None:
        raise conflict("policy-gone", f"network policy {name}: deleted meanwhile", "Repeat the request.")


async def _create_network_policy(cluster: NamespaceClient, policy: dict[str, Any]) -> dict[str, Any]:
    try:
        return (await cluster.objects.ensure(policy)).object
    except ObjectConflictError as error:
        raise _network_policy_conflict(policy) from error


def owner_uids(obj: dict[str, Any]) -> set[str]:
    """Return the UIDs of an object's owners."""
    return {str(owner.get("uid")) for owner in obj["metadata"].get("ownerReferences") or ()}


def _network_policy_conflict(policy: dict[str, Any]) -> ApiError:
    name = policy["metadata"]["name"]
    return conflict(
        "policy-taken",
        f"network policy {name}: exists, and does not belong to this sandbox",
        "If a sandbox of this name was just deleted, retry; otherwise delete the policy.",
    )
