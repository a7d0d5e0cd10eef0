"""Marks what is about to be created with the id of this operation, so that its maker can recognise it later.

Works on copies of models and dicts alike. `generateName` is resolved here: a server that picks the name would
pick another one for each repetition. Not here: comparing (`compare`).
"""

from __future__ import annotations

import copy
import os
import secrets
from typing import Any

OPERATION = "holdfast.dev/operation-id"
OWNER = "holdfast.dev/owner"

# The server's own alphabet: no vowels, so no words, and no digits that look like letters.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_TAIL = 5
_LONGEST_BASE = 63 - _TAIL


def stamped(body: Any, *, owner: str | None = None) -> Any:
    """A copy of an object that carries an operation id (kept if it has one) and a name."""
    if isinstance(body, dict):
        metadata = dict(body.get("metadata") or {})
        annotations = dict(metadata.get("annotations") or {})
        _mark(annotations, owner)
        metadata["annotations"] = annotations
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = name_from(metadata["generateName"])
        return {**body, "metadata": metadata}
    marked = copy.copy(body)
    if getattr(body, "metadata", None) is None:
        return body
    marked.metadata = copy.copy(body.metadata)
    annotations = dict(body.metadata.annotations or {})
    _mark(annotations, owner)
    marked.metadata.annotations = annotations
    if not marked.metadata.name and marked.metadata.generate_name:
        marked.metadata.name = name_from(marked.metadata.generate_name)
    return marked


def _mark(annotations: dict[str, str], owner: str | None) -> None:
    if OPERATION not in annotations:
        annotations[OPERATION] = os.urandom(16).hex()
    if owner is not None:
        annotations.setdefault(OWNER, owner)


def name_from(base: str) -> str:
    """A name that begins like `generateName` and that nobody else has picked."""
    return base[:_LONGEST_BASE] + "".join(secrets.choice(_ALPHABET) for _ in range(_TAIL))


def annotation(body: Any, key: str) -> str | None:
    """One annotation of a model or dict."""
    if isinstance(body, dict):
        metadata = body.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    else:
        annotations = getattr(getattr(body, "metadata", None), "annotations", None)
    value = annotations.get(key) if isinstance(annotations, dict) else None
    return value if isinstance(value, str) else None


def name_of(body: Any) -> str | None:
    """The name of a model or dict."""
    if isinstance(body, dict):
        metadata = body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
    else:
        name = getattr(getattr(body, "metadata", None), "name", None)
    return name if isinstance(name, str) and name else None


def renamed(body: Any) -> Any | None:
    """The same object under another generated name; None if its name was not generated."""
    if isinstance(body, dict):
        base = body["metadata"].get("generateName")
        return None if not base else {**body, "metadata": {**body["metadata"], "name": name_from(base)}}
    base = body.metadata.generate_name
    if not base:
        return None
    again = copy.copy(body)
    again.metadata = copy.copy(body.metadata)
    again.metadata.name = name_from(base)
    return again
