"""The smallest merge patch from one status to another, and whether it can wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.sandbox.api import Condition, Reason

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


def can_wait(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a status says nothing that anybody waits for: then it may change again before it is written.

    That is so for other words, and for how far a sandbox has come that is on its way to be ready.
    """
    if not _is_on_its_way(new):
        return bool(old) and _gist(old) == _gist(new)
    return not old or (_is_on_its_way(old) and _gist(old, _STATIONS) == _gist(new, _STATIONS))


_STATIONS = frozenset({"nodeName", "podIPs", Condition.POD_SCHEDULED.value})
"""What is said on the way; all of it is said again at the end."""


def _is_on_its_way(status: Mapping[str, Any]) -> bool:
    rows = status.get("conditions") or ()
    return any(
        row["type"] == Condition.READY and row["reason"] == Reason.DEPENDENCIES_NOT_READY for row in rows
    )


def _gist(status: Mapping[str, Any], without: frozenset[str] = frozenset()) -> dict[str, Any]:
    rows = [{**row, "message": ""} for row in status.get("conditions") or () if row["type"] not in without]
    return {**{key: value for key, value in status.items() if key not in without}, "conditions": rows}
