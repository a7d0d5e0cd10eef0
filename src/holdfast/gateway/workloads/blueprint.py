"""What the manifests depend on, and the parts that all of them share: labels, and least privilege.

Not here: any particular workload.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from holdfast import __version__

GATEWAY_IMAGE = f"holdfast/gateway:{__version__}"
"""The image that all workloads of a gateway run from."""

MANAGED = {"app.kubernetes.io/managed-by": "holdfast", "app.kubernetes.io/part-of": "holdfast"}
TEMPLATE = "holdfast.dev/template"
"""The annotation of pods that says from which template they were made."""
IMAGE_DIGEST = "holdfast.dev/image"
BUNDLE_DIGEST = "holdfast.dev/certificates"

_USER = 65532


class Blueprint(msgspec.Struct, frozen=True, kw_only=True):
    """What decides how the workloads of one gateway look.

    The digests are there for their own sake: a pod template that names them is another one when they change,
    and another template is a rollout. So a rotated certificate, or an image built anew under the same name,
    restarts what uses it, once, and nothing else does.
    """

    gateway: str
    namespace: str
    host_port: int
    image_digest: str
    bundle_digest: str
    image: str = GATEWAY_IMAGE
    sandbox_namespace: str = "default"
    workspace_size: str = "2Gi"
    storage_class: str = ""


def pod_security() -> dict[str, Any]:
    """Nobody in particular, with nothing that a program of ours needs to ask of the kernel."""
    return {
        "runAsNonRoot": True,
        "runAsUser": _USER,
        "runAsGroup": _USER,
        "fsGroup": _USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    """No way up, and nothing to write to."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def stamped(template: dict[str, Any], digests: dict[str, str]) -> dict[str, Any]:
    """A pod template that says what it was made of; the same content has the same stamp."""
    plain = {**template, "metadata": {**template["metadata"], "annotations": digests}}
    stamp = hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()[:16]
    metadata = {**template["metadata"], "annotations": {**digests, TEMPLATE: stamp}}
    return {**template, "metadata": metadata}
