"""The volume claims of a sandbox: let go of when its data is to stay, and taken up by the next of its name.

What is written is bound to what was seen, for deletes and creates of one name may run at the same time. Not
here: making claims and adopting them, which is the controller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import ObjectConflictError
from holdfast.sandbox.api import NAME_HASH
from holdfast.sandbox.names import claim_name, name_hash
from holdfast.sandbox.workspace import VOLUME
from holdfast.server import views
from holdfast.server.problems import conflict

if TYPE_CHECKING:
    from holdfast.server.cluster import Cluster

KEPT = "holdfast.dev/kept-workspace"
"""Label of a volume claim whose sandbox was deleted without it: the hash of that sandbox's name."""


async def held(cluster: Cluster, sandbox: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims with a sandbox's data that are there, its workspace first."""
    found = [await cluster.volume_claim(name) for name in views.claim_names(sandbox)]
    return [each for each in found if each is not None]


def owns(sandbox: dict[str, Any], volume: dict[str, Any]) -> bool:
    """Whether the claim goes when the sandbox goes."""
    uid = sandbox["metadata"]["uid"]
    return any(each.get("uid") == uid for each in volume["metadata"].get("ownerReferences") or ())


async def disown(cluster: Cluster, sandbox: dict[str, Any], volume: dict[str, Any]) -> None:
    """Nobody's any more, and not to be adopted either: the controller would take it back at once."""
    uid = sandbox["metadata"]["uid"]
    others = [each for each in volume["metadata"].get("ownerReferences") or () if each.get("uid") != uid]
    labels = {NAME_HASH: None, KEPT: name_hash(sandbox["metadata"]["name"])}
    await _patch(cluster, volume, {"ownerReferences": others or None, "labels": labels})


async def is_kept(cluster: Cluster, sandbox: dict[str, Any], volume: dict[str, Any]) -> bool:
    """Whether a claim outlives its deleted sandbox; one that was taken back meanwhile is let go of again."""
    about = volume["metadata"]
    now = await cluster.volume_claim(about["name"])
    if now is None or now["metadata"]["uid"] != about["uid"] or now["metadata"].get("deletionTimestamp"):
        return False
    if owns(sandbox, now):
        await disown(cluster, sandbox, now)
    return True


async def take_up(cluster: Cluster, name: str) -> None:
    """A new sandbox gets the workspace that was kept for its name.

    Only where there is no sandbox of that name: one that is about to be deleted would take the data along.
    """
    volume = await cluster.volume_claim(claim_name(VOLUME, name))
    if volume is None or not _is_kept_for(volume, name) or await cluster.sandbox(name) is not None:
        return
    try:
        await _patch(cluster, volume, {"labels": {KEPT: None, NAME_HASH: name_hash(name)}})
    except ObjectConflictError:
        now = await cluster.volume_claim(claim_name(VOLUME, name))
        if now is None or _is_kept_for(now, name):
            raise
        # The same request, sent twice at once: the other one has taken it up.


def _is_kept_for(volume: dict[str, Any], name: str) -> bool:
    return (volume["metadata"].get("labels") or {}).get(KEPT) == name_hash(name)


async def _patch(cluster: Cluster, volume: dict[str, Any], change: dict[str, Any]) -> None:
    metadata = volume["metadata"]
    done = await cluster.objects.patch(
        "PersistentVolumeClaim",
        metadata["name"],
        # Bound to the version that was seen: what somebody else changes meanwhile is not lost.
        {"metadata": {"resourceVersion": metadata["resourceVersion"], **change}},
        namespace=cluster.namespace,
        uid=metadata["uid"],
    )
    if done is None:
        words = f"the volume claim {metadata['name']} has just been deleted by somebody else"
        raise conflict("workspace-gone", words, "Look at the sandbox again.")
