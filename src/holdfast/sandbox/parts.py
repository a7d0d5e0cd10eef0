"""The objects of a sandbox as manifests: its pod, its claims and its Service.

Pure functions from a Sandbox to what the API server is asked for. Not here: when they are made (decide.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.sandbox.api import PROPAGATED_ANNOTATIONS, PROPAGATED_LABELS
from holdfast.sandbox.names import claim_name, pod_name, tracking
from holdfast.sandbox.ownership import owner_reference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def pod(sandbox: Mapping[str, Any]) -> dict[str, Any]:
    """The pod that a sandbox asks for."""
    template = sandbox["spec"]["podTemplate"]
    spec = dict(template["spec"])
    spec["volumes"] = _volumes(spec.get("volumes") or (), sandbox)
    if not spec["volumes"]:
        del spec["volumes"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(sandbox),
            "namespace": sandbox["metadata"]["namespace"],
            "ownerReferences": [owner_reference(sandbox)],
            **pod_metadata(sandbox),
        },
        "spec": spec,
    }


def pod_metadata(sandbox: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Labels and annotations of a pod: the template's, their keys, and the tracking label."""
    given = sandbox["spec"]["podTemplate"].get("metadata") or {}
    labels, annotations = dict(given.get("labels") or {}), dict(given.get("annotations") or {})
    return {
        "labels": {**labels, **tracking(sandbox["metadata"]["name"])},
        "annotations": {
            **annotations,
            PROPAGATED_LABELS: ",".join(sorted(labels)),
            PROPAGATED_ANNOTATIONS: ",".join(sorted(annotations)),
        },
    }


def claims(sandbox: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One claim for each template, made once and then left alone: the data is in it."""
    metadata = sandbox["metadata"]
    made = []
    for template in sandbox["spec"].get("volumeClaimTemplates") or ():
        given = template.get("metadata") or {}
        own: dict[str, Any] = {
            "name": claim_name(given.get("name", ""), metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": {**(given.get("labels") or {}), **tracking(metadata["name"])},
            "ownerReferences": [owner_reference(sandbox)],
        }
        if given.get("annotations"):
            own["annotations"] = dict(given["annotations"])
        made.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": own,
                "spec": template["spec"],
            }
        )
    return made


def service(sandbox: Mapping[str, Any]) -> dict[str, Any]:
    """A name in DNS that leads to the sandbox's pod."""
    metadata = sandbox["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": tracking(metadata["name"]),
            "ownerReferences": [owner_reference(sandbox)],
        },
        "spec": {"clusterIP": "None", "selector": tracking(metadata["name"])},
    }


def _volumes(given: Sequence[Mapping[str, Any]], sandbox: Mapping[str, Any]) -> list[Any]:
    """A template's claim takes the place of a pod's volume of the same name."""
    own = {
        name: {
            "name": name,
            "persistentVolumeClaim": {"claimName": claim_name(name, sandbox["metadata"]["name"])},
        }
        for template in sandbox["spec"].get("volumeClaimTemplates") or ()
        if (name := (template.get("metadata") or {}).get("name", ""))
    }
    return [volume for volume in given if volume.get("name") not in own] + list(own.values())
