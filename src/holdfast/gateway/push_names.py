"""Image names as the node's runtime keeps them, so that a pod's `image: my-app:dev` finds what was pushed.

Docker and the kubelet write short names; containerd knows full ones only: `docker.io/library/my-app:dev`.
"""

from __future__ import annotations

from holdfast.errors import UsageError

_DEFAULT_REGISTRY = "docker.io"
_OLD_REGISTRY = "index.docker.io"
_OFFICIAL = "library/"


def registry_of(reference: str) -> str:
    """The registry host that a reference means, as settings and logins name it."""
    head, slash, _ = reference.partition("/")
    is_host = bool(slash) and ("." in head or ":" in head or head == "localhost")
    if not is_host or head == _OLD_REGISTRY:
        return _DEFAULT_REGISTRY
    return head


def with_tag(reference: str) -> str:
    """The reference with its tag spelled out: without one, an engine would save every tag of that name."""
    if "@" in reference:
        raise UsageError(
            f"{reference} names an image by its digest, and inside the node it needs a name and tag",
            hint=f"Give it one first: docker tag {reference} NAME:TAG",
        )
    last = reference.rpartition("/")[2]
    return reference if ":" in last else f"{reference}:latest"


def full_name(reference: str) -> str:
    """The name that containerd keeps the image under."""
    tagged, registry = with_tag(reference), registry_of(reference)
    path = tagged.partition("/")[2] if tagged.startswith((f"{registry}/", f"{_OLD_REGISTRY}/")) else tagged
    if registry == _DEFAULT_REGISTRY and "/" not in path:
        path = _OFFICIAL + path
    return f"{registry}/{path}"
