"""A running pod's metadata follows its template: labels and annotations, never the spec.

The pod remembers which keys came from the template, so that only those are ever taken away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.sandbox.api import PROPAGATED_ANNOTATIONS, PROPAGATED_LABELS
from holdfast.sandbox.parts import pod_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

_REMEMBERED = {"labels": PROPAGATED_LABELS, "annotations": PROPAGATED_ANNOTATIONS}


def metadata_patch(pod: Mapping[str, Any], sandbox: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that makes the pod's metadata like the template's; empty when it is."""
    wanted = pod_metadata(sandbox)
    remembered = pod["metadata"].get("annotations") or {}
    changes: dict[str, Any] = {}
    for part, annotation in _REMEMBERED.items():
        has = pod["metadata"].get(part) or {}
        wants = wanted[part]
        came = {key for key in remembered.get(annotation, "").split(",") if key}
        change: dict[str, str | None] = {key: value for key, value in wants.items() if has.get(key) != value}
        change.update({key: None for key in came if key not in wants and key in has})
        if change:
            changes[part] = change
    return {"metadata": changes} if changes else {}
