"""Manifests of a sandbox's pod, PVCs and Service, and the patch that updates a running pod's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.api import PROPAGATED_ANNOTATIONS_ANNOTATION, PROPAGATED_LABELS_ANNOTATION
from holdfast.sandbox.ownership import owner_reference, pod_name, pvc_name, tracking_labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PROPAGATED_KEYS = {"labels": PROPAGATED_LABELS_ANNOTATION, "annotations": PROPAGATED_ANNOTATIONS_ANNOTATION}


def pod_manifest(sandbox: Mapping[str, Any]) -> dict[str, Any]:
    """Pod of a sandbox."""
    spec = dict(sandbox["spec"]["podTemplate"]["spec"])
    volumes = _pod_volumes(spec.pop("volumes", None) or (), sandbox)
    metadata = {
        "name": pod_name(sandbox),
        "namespace": sandbox["metadata"]["namespace"],
        "ownerReferences": [owner_reference(sandbox)],
        **pod_metadata(sandbox),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec | ({"volumes": volumes} if volumes else {}),
    }


def pod_metadata(sandbox: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Labels and annotations of a pod: the template's, their keys, and the tracking label."""
    template = sandbox["spec"]["podTemplate"].get("metadata") or {}
    labels, annotations = dict(template.get("labels") or {}), dict(template.get("annotations") or {})
    return {
        "labels": {**labels, **tracking_labels(sandbox["metadata"]["name"])},
        "annotations": {
            **annotations,
            PROPAGATED_LABELS_ANNOTATION: ",".join(sorted(labels)),
            PROPAGATED_ANNOTATIONS_ANNOTATION: ",".join(sorted(annotations)),
        },
    }


def pod_metadata_patch(pod: Mapping[str, Any], sandbox: Mapping[str, Any]) -> dict[str, Any]:
    """Merge patch that brings a pod's metadata to its template's.

    The pod records which keys came from the template; the patch removes only those.

    Returns:
        The patch; empty if nothing differs.
    """
    desired = pod_metadata(sandbox)
    recorded = pod["metadata"].get("annotations") or {}
    changes: dict[str, Any] = {}
    for field, annotation in _PROPAGATED_KEYS.items():
        actual = pod["metadata"].get(field) or {}
        propagated = {key for key in recorded.get(annotation, "").split(",") if key}
        change: dict[str, str | None] = {
            key: value for key, value in desired[field].items() if actual.get(key) != value
        }
        change.update({key: None for key in propagated if key in actual and key not in desired[field]})
        if change:
            changes[field] = change
    return {"metadata": changes} if changes else {}


def pvc_manifests(sandbox: Mapping[str, Any]) -> list[dict[str, Any]]:
    """PVCs of a sandbox, one for each volume claim template."""
    return [
        _pvc_manifest(template, sandbox) for template in sandbox["spec"].get("volumeClaimTemplates") or ()
    ]


def _pvc_manifest(template: Mapping[str, Any], sandbox: Mapping[str, Any]) -> dict[str, Any]:
    given, owner = template.get("metadata") or {}, sandbox["metadata"]
    metadata: dict[str, Any] = {
        "name": pvc_name(given.get("name", ""), owner["name"]),
        "namespace": owner["namespace"],
        "labels": {**(given.get("labels") or {}), **tracking_labels(owner["name"])},
        "ownerReferences": [owner_reference(sandbox)],
    }
    if given.get("annotations"):
        metadata["annotations"] = dict(given["annotations"])
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": template["spec"],
    }


def service_manifest(sandbox: Mapping[str, Any]) -> dict[str, Any]:
    """Headless Service that gives the sandbox's pod a DNS name."""
    name, labels = sandbox["metadata"]["name"], tracking_labels(sandbox["metadata"]["name"])
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": sandbox["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [owner_reference(sandbox)],
        },
        "spec": {"clusterIP": "None", "selector": labels},
    }


def _pod_volumes(volumes: Sequence[Mapping[str, Any]], sandbox: Mapping[str, Any]) -> list[Any]:
    """The pod's volumes; a volume claim template replaces a volume of the same name."""
    templates = sandbox["spec"].get("volumeClaimTemplates") or ()
    names = [name for template in templates if (name := (template.get("metadata") or {}).get("name"))]
    return [volume for volume in volumes if volume.get("name") not in names] + [
        {"name": name, "persistentVolumeClaim": {"claimName": pvc_name(name, sandbox["metadata"]["name"])}}
        for name in names
    ]
