"""Objects of a sandbox as the published API defines them: names, tracking labels, owners and manifests.

The UID of the controller reference decides who owns an object. Tracking labels only find candidates.
"""

from __future__ import annotations

import itertools
from enum import Enum
from typing import TYPE_CHECKING, Any

from holdfast.api import (
    ADOPTABLE_LABEL,
    API_VERSION,
    CREATED_BY_LABEL,
    EXTENSIONS_GROUP,
    GROUP,
    NAME_HASH_LABEL,
    POD_NAME_ANNOTATION,
    PROPAGATED_ANNOTATIONS_ANNOTATION,
    PROPAGATED_LABELS_ANNOTATION,
    SANDBOX_CLAIM_UID_LABEL,
    TEMPLATE_REF_HASH_LABEL,
    TRACE_CONTEXT_ANNOTATION,
    WARM_POOL_LABEL,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FNV_OFFSET, _FNV_PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_RESERVED_PREFIXES = (f"{GROUP}/", f"{EXTENSIONS_GROUP}/")
_CONTROLLER_LABELS = (WARM_POOL_LABEL, TEMPLATE_REF_HASH_LABEL, SANDBOX_CLAIM_UID_LABEL, CREATED_BY_LABEL)
_KNOWN_CREATORS = frozenset({"python-client", "go-client", "controller"})
_PROPAGATED_KEYS = {"labels": PROPAGATED_LABELS_ANNOTATION, "annotations": PROPAGATED_ANNOTATIONS_ANNOTATION}


def name_hash(name: str) -> str:
    """32-bit FNV-1a hash of a name, as eight hexadecimal digits."""
    # Part of the published API: other controllers compute the same label value.
    value = _FNV_OFFSET
    for byte in name.encode():
        value = ((value ^ byte) * _FNV_PRIME) & _MASK
    return f"{value:08x}"


def tracking_labels(name: str) -> dict[str, str]:
    """Labels on the pod, PVCs and Service of a sandbox."""
    return {NAME_HASH_LABEL: name_hash(name)}


def tracking_selector(name: str) -> str:
    """Label selector for the objects of a sandbox."""
    return f"{NAME_HASH_LABEL}={name_hash(name)}"


def pod_name(sandbox: Mapping[str, Any]) -> str:
    """Name of a sandbox's pod: the sandbox's name, unless an annotation of an older controller differs."""
    metadata = sandbox["metadata"]
    return str((metadata.get("annotations") or {}).get(POD_NAME_ANNOTATION) or metadata["name"])


def pvc_name(template: str, sandbox: str) -> str:
    """Name of the PVC created from one volume claim template of a sandbox."""
    return f"{template}-{sandbox}"


class Ownership(Enum):
    """Relation between a sandbox and an existing object whose name the sandbox needs."""

    OWNED = "owned"
    ADOPTABLE = "adoptable"
    FOREIGN = "foreign"


def resolve_ownership(obj: Mapping[str, Any], sandbox: Mapping[str, Any]) -> Ownership:
    """Determine whether a sandbox owns an object, may adopt it, or must leave it alone."""
    # A controller reference outweighs every label: two controllers must not manage the same object.
    if controller_of(obj) is not None:
        return Ownership.OWNED if is_controlled_by(obj, sandbox) else Ownership.FOREIGN
    labels = obj["metadata"].get("labels") or {}
    tracked = labels.get(NAME_HASH_LABEL) == name_hash(sandbox["metadata"]["name"])
    return Ownership.ADOPTABLE if tracked or labels.get(ADOPTABLE_LABEL) == "true" else Ownership.FOREIGN


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference of an object's controller, if it has one."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def is_controlled_by(obj: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Whether `owner` is the controller of an object."""
    controller = controller_of(obj)
    return controller is not None and controller.get("uid") == owner["metadata"]["uid"]


def owner_reference(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Controller reference to `owner`; the garbage collector deletes the object with its owner."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner.get("apiVersion") or API_VERSION,
        "kind": owner.get("kind") or "Sandbox",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        # A foreground deletion of the owner waits until this object is gone.
        "blockOwnerDeletion": True,
    }


def network_policy_name(sandbox: str) -> str:
    """Name of the NetworkPolicy of a sandbox whose request has rules."""
    return f"{sandbox}-sandbox-policy"


def pod_manifest(sandbox: Mapping[str, Any]) -> dict[str, Any]:
    """Pod of a sandbox."""
    spec = dict(sandbox["spec"]["podTemplate"]["spec"])
    volumes = _pod_volumes(spec.pop("volumes", None) or (), sandbox)
    metadata = {
        "name": sandbox["metadata"]["name"],
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
    """Labels and annotations of a pod: the template's, their keys, and the labels that the controller sets.

    The template's keys in the domains of the sandbox API do not reach the pod: they would hide it from the
    controller's watch, or add it to the objects of another sandbox.
    """
    template = sandbox["spec"]["podTemplate"].get("metadata") or {}
    copied: dict[str, dict[str, str]] = {}
    lists = {}
    for field, annotation in _PROPAGATED_KEYS.items():
        entries = (template.get(field) or {}).items()
        copied[field] = {key: value for key, value in entries if not _is_reserved(key)}
        if copied[field]:
            lists[annotation] = ",".join(sorted(copied[field]))
    labels = {
        **copied["labels"],
        **tracking_labels(sandbox["metadata"]["name"]),
        **_extension_labels(sandbox),
        **_created_by_label(sandbox),
    }
    return {"labels": labels, "annotations": {**copied["annotations"], **lists}}


def _is_reserved(key: str) -> bool:
    return key.startswith(_RESERVED_PREFIXES) or key == TRACE_CONTEXT_ANNOTATION


def _extension_labels(sandbox: Mapping[str, Any]) -> dict[str, str]:
    """Labels of a sandbox from a template that its pod gets too."""
    owner, labels = controller_of(sandbox) or {}, sandbox["metadata"].get("labels") or {}
    if not str(owner.get("apiVersion")).startswith(f"{EXTENSIONS_GROUP}/"):
        return {}
    of_owner = {"SandboxWarmPool": WARM_POOL_LABEL, "SandboxClaim": SANDBOX_CLAIM_UID_LABEL}
    keys = (TEMPLATE_REF_HASH_LABEL, of_owner.get(str(owner.get("kind")), ""))
    return {key: labels[key] for key in keys if key in labels}


def _created_by_label(sandbox: Mapping[str, Any]) -> dict[str, str]:
    value = (sandbox["metadata"].get("labels") or {}).get(CREATED_BY_LABEL)
    return {} if value is None else {CREATED_BY_LABEL: normalized_creator(value)}


def normalized_creator(value: str) -> str:
    """The value of the created-by label, or `unknown` for a program that the published API does not know."""
    return value if value in _KNOWN_CREATORS else "unknown"


def pod_metadata_patch(pod: Mapping[str, Any], sandbox: Mapping[str, Any]) -> dict[str, Any]:
    """Merge patch that brings a pod's metadata to its template's.

    The pod records which keys came from the template; the patch removes only those, and labels that the
    controller sets.

    Returns:
        The patch; empty if nothing differs.
    """
    desired, actual = pod_metadata(sandbox), pod["metadata"]
    recorded = actual.get("annotations") or {}
    own = {"labels": _CONTROLLER_LABELS, "annotations": tuple(_PROPAGATED_KEYS.values())}
    managed: dict[str, dict[str, str]] = {}
    for field, annotation in _PROPAGATED_KEYS.items():
        keys = {*desired[field], *recorded.get(annotation, "").split(","), *own[field]}
        managed[field] = {key: value for key, value in (actual.get(field) or {}).items() if key in keys}
    changes = merge_patch(managed, desired)
    return {"metadata": changes} if changes else {}


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge patch from one object to another: lists are replaced, removed keys become null."""
    patch: dict[str, Any] = {}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := merge_patch(before, value):
                patch[key] = inner
        elif before != value:
            patch[key] = value
    patch.update({key: None for key in old if key not in new})
    return patch


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
    name, labels, ports = (
        sandbox["metadata"]["name"],
        tracking_labels(sandbox["metadata"]["name"]),
        service_ports(sandbox),
    )
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": sandbox["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [owner_reference(sandbox)],
        },
        "spec": {"clusterIP": "None", "selector": labels, **({"ports": ports} if ports else {})},
    }


def service_ports(sandbox: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Ports of the Service: those of all containers that run as long as the pod, each once."""
    pod = sandbox["spec"]["podTemplate"]["spec"]
    sidecars = [one for one in pod.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    names: dict[tuple[int, str], list[str]] = {}
    for container in (*(pod.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            key = (int(port["containerPort"]), str(port.get("protocol") or "TCP"))
            names.setdefault(key, []).extend([port["name"]] if port.get("name") else [])
    ports: list[dict[str, Any]] = []
    for (number, protocol), given in sorted(names.items()):
        taken = {port["name"] for port in ports}
        default = f"p-{number}-{protocol.lower()}"
        numbered = (f"{default}-{count}" for count in itertools.count(2))
        name = next(
            one for one in (*given, default, *itertools.islice(numbered, len(taken) + 1)) if one not in taken
        )
        ports.append({"name": name, "port": number, "protocol": protocol, "targetPort": number})
    return ports


def service_patch(
    service: Mapping[str, Any], sandbox: Mapping[str, Any], *, with_ports: bool
) -> dict[str, Any]:
    """Merge patch that repairs the label, the selector and, if requested, the ports of a Service."""
    labels, spec = tracking_labels(sandbox["metadata"]["name"]), service["spec"]
    actual_labels = service["metadata"].get("labels") or {}
    patch: dict[str, Any] = {}
    if not labels.items() <= actual_labels.items():
        patch["metadata"] = {"labels": labels}
    change: dict[str, Any] = {}
    if selector := merge_patch(spec.get("selector") or {}, labels):
        change["selector"] = selector
    ports = service_ports(sandbox)
    if with_ports and [_port_fields(port) for port in spec.get("ports") or ()] != ports:
        change["ports"] = ports or None
    return patch | ({"spec": change} if change else {})


def _port_fields(port: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Service's port that the controller sets."""
    return {
        "name": port.get("name"),
        "port": port["port"],
        "protocol": port.get("protocol") or "TCP",
        "targetPort": port.get("targetPort"),
    }


def _pod_volumes(volumes: Sequence[Mapping[str, Any]], sandbox: Mapping[str, Any]) -> list[Any]:
    """The pod's volumes; a volume claim template replaces a volume of the same name."""
    templates = sandbox["spec"].get("volumeClaimTemplates") or ()
    names = [name for template in templates if (name := (template.get("metadata") or {}).get("name"))]
    return [volume for volume in volumes if volume.get("name") not in names] + [
        {"name": name, "persistentVolumeClaim": {"claimName": pvc_name(name, sandbox["metadata"]["name"])}}
        for name in names
    ]
