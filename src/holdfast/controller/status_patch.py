"""The smallest merge patch from one status to another; empty when nothing has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def status_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be sent so that the old becomes the new: lists as a whole, what is gone as null."""
    patch: dict[str, Any] = {}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := status_patch(before, value):
                patch[key] = inner
        elif before != value:
            patch[key] = value
    patch.update({key: None for key in old if key not in new})
    return patch
