"""PersistentVolumes as the node's storage provisioner makes them, for tests that need no cluster."""

from __future__ import annotations

from holdfast.gateway.pv_migration.find_stranded import PV_PROTECTION_FINALIZER

LOCAL_PATH_DIRECTORY = "/var/lib/holdfast/local-path"


def hostname_term(*values, operator="In"):
    return {
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": operator, "values": list(values)}]
    }


def persistent_volume(*terms, path=f"{LOCAL_PATH_DIRECTORY}/pvc-1_default_work", **changes):
    """A volume as the node's provisioner makes it, pinned to `old` unless terms say otherwise."""
    made = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": "pvc-1",
            "uid": "uid-1",
            "resourceVersion": "355",
            "creationTimestamp": "2026-11-16T00:34:56Z",
            "labels": {"team": "blue"},
            "annotations": {
                "local.path.provisioner/selected-node": "old",
                "pv.kubernetes.io/provisioned-by": "rancher.io/local-path",
                "holdfast.dev/operation-id": "of another operation",
            },
            "finalizers": [PV_PROTECTION_FINALIZER],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "16Mi"},
            "claimRef": {
                "namespace": "default", "name": "work", "uid": "uid-claim", "resourceVersion": "338",
            },
            "hostPath": {"path": path, "type": "DirectoryOrCreate"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": list(terms) or [hostname_term("old")]}},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "local-path",
            "volumeMode": "Filesystem",
        },
        "status": {"phase": "Bound"},
    }  # fmt: skip
    for key, value in changes.items():
        part, _, name = key.partition("__")
        made[part][name] = value
    return made
