"""Find PersistentVolumes that are pinned to nodes that do not exist, and decide which can be migrated.

A volume is migrated only if everything about it is understood: its path, its PVC, its node affinity and its
finalizers. All others are reported with the reason and not changed.

Volumes whose migration has begun are in the write-ahead list: a ConfigMap with the manifest of each. Between
the deletion of a volume object and its recreation, the list holds the only copy of the manifest. It is in the
same datastore as the object, so that the next command finds it from any machine.
"""

from __future__ import annotations

import copy
import posixpath
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.kube import OPERATION_ID_ANNOTATION

if TYPE_CHECKING:
    from holdfast.kube import Objects

HOSTNAME_LABEL = "kubernetes.io/hostname"
INTENTS_CONFIG_MAP, INTENTS_NAMESPACE = "holdfast-repin", "kube-system"
PV_PROTECTION_FINALIZER = "kubernetes.io/pv-protection"
# On a recreated volume: the uid of the object that it replaces.
REPLACES_ANNOTATION = "holdfast.dev/replaces-volume"
# On a volume in migration, until its PVC is bound: the reclaim policy to restore.
RESTORE_POLICY_ANNOTATION = "holdfast.dev/restore-reclaim-policy"
RETAIN = "Retain"
_SELECTED_NODE_ANNOTATION = "local.path.provisioner/selected-node"
_NAME_FIELD = "metadata.name"
_KEPT_METADATA = ("name", "labels", "ownerReferences")
_PVC_GONE = "its PVC does not exist"

_Object = dict[str, Any]
# Returns those of the given directories that exist in the node.
FilterExisting = Callable[[Sequence[str]], Collection[str]]


def metadata(obj: _Object) -> _Object:
    """Return the metadata of an object; empty if it has none."""
    fields: _Object = obj.get("metadata") or {}
    return fields


def object_annotations(obj: _Object) -> dict[str, str]:
    """Return a copy of the annotations of an object."""
    return dict(metadata(obj).get("annotations") or {})


def pinned_node_names(volume: _Object) -> frozenset[str]:
    """The node names that a volume is pinned to; empty if any term allows other nodes too."""
    names = [_term_node_names(term) for term in _node_selector_terms(volume)]
    return frozenset().union(*names) if names and all(names) else frozenset()


def is_stranded(volume: _Object, node_names: Collection[str]) -> bool:
    """Whether a volume is pinned to nodes none of which exists."""
    names = pinned_node_names(volume)
    return bool(names) and names.isdisjoint(node_names)


def volume_path(volume: _Object) -> str:
    """The directory of a hostPath or local volume; empty for other volume types."""
    source = volume["spec"].get("hostPath") or volume["spec"].get("local") or {}
    return str(source.get("path") or "")


def migration_blocker(volume: _Object, directory: str) -> str:
    """Describe why a stranded volume cannot be migrated; empty if it can.

    Args:
        volume: The PersistentVolume.
        directory: The directory in the node that holds the gateway's volumes.
    """
    path = volume_path(volume)
    if not path:
        return "it is not a directory of a node"
    if not _is_inside(path, directory):
        return f"{path} is not on the gateway's volume"
    if metadata(volume).get("deletionTimestamp"):
        return "it is being deleted"
    claim = volume["spec"].get("claimRef") or {}
    if not claim.get("uid") or (volume.get("status") or {}).get("phase") in ("Released", "Failed"):
        return _PVC_GONE
    if any(len(_term_requirements(term)) > 1 for term in _node_selector_terms(volume)):
        return "its node affinity has more requirements than the node name"
    finalizers = other_finalizers(volume)
    return f"it has the finalizers {', '.join(finalizers)}" if finalizers else ""


def other_finalizers(volume: _Object) -> list[str]:
    """The finalizers of a volume except Kubernetes' own protection."""
    return [name for name in metadata(volume).get("finalizers") or () if name != PV_PROTECTION_FINALIZER]


def pvc_reference(volume: _Object) -> tuple[str, str, str]:
    """Namespace, name and uid of the PVC that a volume is bound to."""
    claim = volume["spec"]["claimRef"]
    return claim["namespace"], claim["name"], claim["uid"]


def original_reclaim_policy(volume: _Object) -> str:
    """The reclaim policy that the volume had before its migration began."""
    current = str(volume["spec"]["persistentVolumeReclaimPolicy"])
    return object_annotations(volume).get(RESTORE_POLICY_ANNOTATION) or current


def replacement_volume(old: _Object, hostname: str) -> _Object:
    """The manifest of the same volume on another node: same path and PVC, reclaim policy Retain."""
    spec = copy.deepcopy(old["spec"])
    spec["claimRef"].pop("resourceVersion", None)
    # Until its PVC is bound again, a volume with the policy Delete could be released and its files deleted.
    spec["persistentVolumeReclaimPolicy"] = RETAIN
    expression = {"key": HOSTNAME_LABEL, "operator": "In", "values": [hostname]}
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    annotations = object_annotations(old)
    annotations.pop(OPERATION_ID_ANNOTATION, None)
    if _SELECTED_NODE_ANNOTATION in annotations:
        annotations[_SELECTED_NODE_ANNOTATION] = hostname
    annotations[REPLACES_ANNOTATION] = metadata(old)["uid"]
    annotations[RESTORE_POLICY_ANNOTATION] = original_reclaim_policy(old)
    kept = {key: metadata(old)[key] for key in _KEPT_METADATA if metadata(old).get(key)}
    fields = {**copy.deepcopy(kept), "annotations": annotations, "finalizers": [PV_PROTECTION_FINALIZER]}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": fields, "spec": spec}


def is_replacement_of(volume: _Object, old: _Object) -> bool:
    """Whether a volume was created to replace the other one."""
    return bool(object_annotations(volume).get(REPLACES_ANNOTATION) == metadata(old)["uid"])


def _node_selector_terms(volume: _Object) -> list[_Object]:
    required = ((volume["spec"].get("nodeAffinity") or {}).get("required")) or {}
    return list(required.get("nodeSelectorTerms") or ())


def _term_requirements(term: _Object) -> list[_Object]:
    return [*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ())]


def _term_node_names(term: _Object) -> frozenset[str]:
    """The node names that a term selects; empty if it does not select by name."""
    keys = {"matchExpressions": HOSTNAME_LABEL, "matchFields": _NAME_FIELD}
    for field, key in keys.items():
        for requirement in term.get(field) or ():
            if requirement.get("key") == key and requirement.get("operator") == "In":
                return frozenset(requirement.get("values") or ())
    return frozenset()


def _is_inside(path: str, directory: str) -> bool:
    """Whether a path is below a directory; a path with `..` never is."""
    # Clients that may create PersistentVolumes control the path: `..` could leave the gateway's volume.
    if ".." in path.split("/"):
        return False
    return posixpath.normpath(path).startswith(posixpath.normpath(directory) + "/")


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Volumes by what has to be done with them.

    Attributes:
        node_names: Names and hostnames of all nodes.
        intents: Volumes that an earlier run began to migrate, as they were before; they are finished first.
        stranded: Volumes to migrate.
        to_restore: Migrated volumes whose reclaim policy is not restored yet.
        unused_intents: Entries of the write-ahead list whose migration never began.
        skipped: Stranded volumes that cannot be migrated, with the reason.
    """

    node_names: frozenset[str] = frozenset()
    intents: dict[str, _Object] = {}
    stranded: tuple[str, ...] = ()
    to_restore: tuple[str, ...] = ()
    unused_intents: tuple[str, ...] = ()
    skipped: dict[str, str] = {}

    @property
    def pending(self) -> tuple[str, ...]:
        """The names of all volumes that have to be changed, in order."""
        return tuple(dict.fromkeys((*self.intents, *self.stranded, *self.to_restore)))

    def describe_skipped(self) -> str:
        return "; ".join(f"{name} cannot be migrated: {reason}" for name, reason in self.skipped.items())


def plan_migration(
    cluster: Objects, node_names: Collection[str], directory: str, filter_existing: FilterExisting
) -> MigrationPlan:
    """Read all volumes and decide what to do with each.

    PVCs and directories are read only for stranded volumes.

    Args:
        cluster: The cluster to read from.
        node_names: Names and hostnames of all nodes.
        directory: The directory in the node that holds the gateway's volumes.
        filter_existing: Returns those of the given directories that exist in the node.
    """
    all_intents = read_intents(cluster)
    volumes = {metadata(volume)["name"]: volume for volume in cluster.list("PersistentVolume").items}
    intents = {
        name: intent for name, intent in all_intents.items() if not is_untouched(intent, volumes.get(name))
    }
    others = {name: volume for name, volume in volumes.items() if name not in intents}
    stranded = {name: volume for name, volume in others.items() if is_stranded(volume, node_names)}
    skipped = _skipped_volumes(cluster, stranded, directory, filter_existing)
    to_migrate = tuple(name for name in stranded if name not in skipped)
    return MigrationPlan(
        node_names=frozenset(node_names),
        intents=intents,
        stranded=to_migrate,
        to_restore=tuple(
            name
            for name, volume in others.items()
            if RESTORE_POLICY_ANNOTATION in object_annotations(volume) and name not in stranded
        ),
        # Also of skipped volumes: if an administrator deletes such a volume, `up` must not recreate it.
        unused_intents=tuple(name for name in all_intents if name not in intents and name not in to_migrate),
        skipped=skipped,
    )


def read_intents(cluster: Objects) -> dict[str, _Object]:
    """Read the write-ahead list, by volume name; entries that cannot be decoded are ignored."""
    config_map = cluster.get("ConfigMap", INTENTS_CONFIG_MAP, namespace=INTENTS_NAMESPACE) or {}
    intents = {}
    for name, text in (config_map.get("data") or {}).items():
        with suppress(msgspec.MsgspecError):
            intents[name] = msgspec.json.decode(text, type=_Object)
    return intents


def is_untouched(intent: _Object, live: _Object | None) -> bool:
    """Whether the migration of a volume never began, so that it is planned again from its current state."""
    if live is None:
        return False
    # Kubernetes cannot undo a deletion: once it is requested, the migration has to be finished.
    return metadata(live)["uid"] == metadata(intent)["uid"] and not metadata(live).get("deletionTimestamp")


def _skipped_volumes(
    cluster: Objects, stranded: dict[str, _Object], directory: str, filter_existing: FilterExisting
) -> dict[str, str]:
    skipped: dict[str, str] = {}
    for name, volume in stranded.items():
        reason = migration_blocker(volume, directory)
        if not reason and not has_matching_pvc(cluster, volume):
            reason = _PVC_GONE
        if reason:
            skipped[name] = reason
    paths = {name: volume_path(volume) for name, volume in stranded.items() if name not in skipped}
    existing = set(filter_existing(sorted(set(paths.values())))) if paths else set()
    return skipped | {name: f"{path} does not exist" for name, path in paths.items() if path not in existing}


def has_matching_pvc(cluster: Objects, volume: _Object) -> bool:
    """Whether the PVC that a volume refers to exists under the same uid and refers to this volume."""
    namespace, name, uid = pvc_reference(volume)
    claim = cluster.get("PersistentVolumeClaim", name, namespace=namespace)
    if claim is None:
        return False
    # A PVC that was deleted and created again has another uid; the files are not its own.
    return bool(metadata(claim)["uid"] == uid and claim["spec"].get("volumeName") == metadata(volume)["name"])
