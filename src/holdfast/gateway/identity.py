"""What a gateway and its parts are called. `node_name` is the one place that names nodes.

A node keeps its name for as long as its gateway exists, whatever happens to its container: volumes are
pinned to node names, so a node that came back under another name would lose its sandboxes' files.
"""

from __future__ import annotations

import hashlib
import re

from holdfast.errors import IllegalNameError

PREFIX = "holdfast-"
LONGEST_NODE_NAME = 63
"""A node's name is also its container's hostname and a DNS label: Linux and DNS both end there."""

_FALLBACK = "gateway"
_HASH_LENGTH = 8
_LEGAL = re.compile(r"[A-Za-z0-9_.-]+")
_LONGEST_NAME = 200


def check_name(name: str) -> str:
    """Return the name, or say why it cannot be one: it becomes part of container and file names."""
    if not name:
        raise IllegalNameError("a gateway's name cannot be empty", hint="For example: holdfast up dev")
    if len(name) > _LONGEST_NAME:
        raise IllegalNameError(
            f"a gateway's name has at most {_LONGEST_NAME} characters, this one has {len(name)}",
            hint="Choose a shorter name.",
        )
    if not _LEGAL.fullmatch(name) or name.startswith("-") or not name.strip("-."):
        raise IllegalNameError(
            f"{name!r} cannot be a gateway's name",
            hint="Use letters a-z and A-Z, digits and _ . - (a - not as the first character).",
        )
    return name


def node_name(name: str) -> str:
    """The Kubernetes node name of a gateway: one DNS label, always the same for the same gateway."""
    label = re.sub(r"[^a-z0-9]+", "-", name.lower().encode("ascii", "replace").decode()).strip("-")
    label = label or _FALLBACK
    room = LONGEST_NODE_NAME - len(PREFIX)
    if len(label) > room:
        digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_LENGTH]
        label = f"{label[: room - _HASH_LENGTH - 1].rstrip('-')}-{digest}"
    return PREFIX + label


def object_name(name: str) -> str:
    """What the gateway's container, volume and network are called on the engine."""
    return PREFIX + name


def context_name(name: str) -> str:
    """The gateway's context in a kubeconfig."""
    return PREFIX + name
