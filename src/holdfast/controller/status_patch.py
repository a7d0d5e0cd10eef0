"""The smallest merge patch from one status to another, and whether it can wait."""

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


def only_words(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a status says the same in other words: then it may change once more before it is written."""
    return bool(_wordless(old) == _wordless(new))


def _wordless(status: Mapping[str, Any]) -> dict[str, Any]:
    rows = [{**row, "message": ""} for row in status.get("conditions") or ()]
    return {**status, "conditions": rows}
