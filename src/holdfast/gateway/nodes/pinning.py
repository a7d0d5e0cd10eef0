"""Reads PersistentVolumes: to which nodes they are pinned, whether they can be pinned anew, and how.

Pure. A volume is pinned anew only where everything about it is understood: its place, its claim, the way it
is pinned and what holds it. All others are named with the reason and left alone.
Not here: whether the directory and the claim are still there (`survey`), and doing it (`repin`).
"""

from __future__ import annotations

import copy
import posixpath
from typing import TYPE_CHECKING, Any

from holdfast.gateway.nodes.membership import HOSTNAME_LABEL
from holdfast.kube.stamp import OPERATION

if TYPE_CHECKING:
    from collections.abc import Collection

PROTECTION = "kubernetes.io/pv-protection"
REPLACES = "holdfast.dev/replaces-volume"
"""On a volume that was made anew: the uid of the object it stands in for."""
RESTORE_POLICY = "holdfast.dev/restore-reclaim-policy"
"""On a volume that was made anew, until its claim is bound again: the reclaim policy it had."""
RETAIN = "Retain"

_PROVISIONERS_NODE = "local.path.provisioner/selected-node"
_NAME_FIELD = "metadata.name"
_Object = dict[str, Any]


def metadata(obj: _Object) -> _Object:
    found: _Object = obj.get("metadata") or {}
    return found


def notes_of(obj: _Object) -> dict[str, str]:
    """Its annotations."""
    return dict(metadata(obj).get("annotations") or {})


def pinned_to(volume: _Object) -> frozenset[str]:
    """The names that a volume is pinned to; none if it may also be used where no name is asked for."""
    terms = _terms(volume)
    names = [_names(term) for term in terms]
    return frozenset().union(*names) if names and all(names) else frozenset()


def is_stranded(volume: _Object, hosts: Collection[str]) -> bool:
    """Whether a volume is pinned to nodes of which none is there."""
    names = pinned_to(volume)
    return bool(names) and names.isdisjoint(hosts)


def path_of(volume: _Object) -> str:
    """The directory of a hostPath or local volume; nothing for every other kind."""
    spec = volume["spec"]
    source = spec.get("hostPath") or spec.get("local") or {}
    return str(source.get("path") or "")


def why_not(volume: _Object, folder: str) -> str:
    """What about a stranded volume keeps it from being pinned anew; empty if nothing does."""
    path = path_of(volume)
    if not path:
        return "it is no directory of a node"
    if not _is_below(path, folder):
        return f"{path} is not on the gateway's volume"
    if metadata(volume).get("deletionTimestamp"):
        return "somebody is deleting it"
    claim = volume["spec"].get("claimRef") or {}
    if not claim.get("uid") or (volume.get("status") or {}).get("phase") in ("Released", "Failed"):
        return "its claim is gone"
    if any(len(_all_of(term)) > 1 for term in _terms(volume)):
        return "it is pinned by more than a node's name"
    others = [each for each in metadata(volume).get("finalizers") or () if each != PROTECTION]
    return f"it is held by {', '.join(others)}" if others else ""


def claim_of(volume: _Object) -> tuple[str, str, str]:
    """Namespace, name and uid of the claim that a volume belongs to."""
    claim = volume["spec"]["claimRef"]
    return claim["namespace"], claim["name"], claim["uid"]


def policy_of(volume: _Object) -> str:
    """The reclaim policy that its owner wants, also while it is set aside."""
    return notes_of(volume).get(RESTORE_POLICY) or str(volume["spec"]["persistentVolumeReclaimPolicy"])


def repinned(old: _Object, hostname: str) -> _Object:
    """The same volume for the same path and claim on another node, kept whatever happens to its claim."""
    spec = copy.deepcopy(old["spec"])
    spec["claimRef"].pop("resourceVersion", None)
    spec["persistentVolumeReclaimPolicy"] = RETAIN
    expression = {"key": HOSTNAME_LABEL, "operator": "In", "values": [hostname]}
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    notes = {key: value for key, value in notes_of(old).items() if key != OPERATION}
    if _PROVISIONERS_NODE in notes:
        notes[_PROVISIONERS_NODE] = hostname
    notes |= {REPLACES: metadata(old)["uid"], RESTORE_POLICY: policy_of(old)}
    kept = {
        key: metadata(old)[key] for key in ("name", "labels", "ownerReferences") if metadata(old).get(key)
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {**copy.deepcopy(kept), "annotations": notes, "finalizers": [PROTECTION]},
        "spec": spec,
    }


def stands_in_for(volume: _Object, old: _Object) -> bool:
    """Whether a volume is the one that was made in the place of another."""
    return bool(notes_of(volume).get(REPLACES) == metadata(old)["uid"])


def _terms(volume: _Object) -> list[_Object]:
    required = ((volume["spec"].get("nodeAffinity") or {}).get("required")) or {}
    return list(required.get("nodeSelectorTerms") or ())


def _all_of(term: _Object) -> list[_Object]:
    return [*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ())]


def _names(term: _Object) -> frozenset[str]:
    """The names of which one is asked for by a term."""
    by_label = [each for each in term.get("matchExpressions") or () if each.get("key") == HOSTNAME_LABEL]
    by_field = [each for each in term.get("matchFields") or () if each.get("key") == _NAME_FIELD]
    asked = [each for each in (*by_label, *by_field) if each.get("operator") == "In"]
    return frozenset(asked[0].get("values") or ()) if asked else frozenset()


def _is_below(path: str, folder: str) -> bool:
    """Whether a path is inside a folder, as written: dots that lead out of it do not count as inside."""
    if ".." in path.split("/"):
        return False
    return posixpath.normpath(path).startswith(posixpath.normpath(folder) + "/")
