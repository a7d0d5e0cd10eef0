"""Whether an object that is there is what was sent: every sent field is alike, the others are the server's.

Or, where a whole object was sent to take the place of another, the caller's too (`is_exactly`).

Names paths only, never values: the object may be a Secret. Not here: what follows from a difference
(`ensure`).
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

Alike: TypeAlias = Callable[[Any, Any], bool]

_QUANTITY = re.compile(
    r"([+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?"
)
_UNITS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
# Written by the server, or by us for this attempt only.
_IGNORED = {
    "status",
    "metadata.annotations.holdfast.dev/operation-id",
    "metadata.annotations.holdfast.dev/owner",
    "metadata.creationTimestamp",
    "metadata.generateName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
    "metadata.uid",
}
# Below these, and these themselves, strings are quantities; elsewhere "1.10" is not "1.1".
_QUANTITY_MAPS = {"resources", "limits", "requests", "capacity", "allocatable", "hard", "overhead"}
_QUANTITY_FIELDS = {"sizeLimit", "divisor", "averageValue", "maximumVolumeSize", "storage"}
# Left out by the server when they are false or zero, which is what their absence means.
_ZERO_IS_ABSENT = {
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPort",
    "initialDelaySeconds",
    "minReadySeconds",
    "paused",
    "publishNotReadyAddresses",
    "readOnly",
    "stdin",
    "stdinOnce",
    "tty",
    "unschedulable",
}
# What of an object's metadata a caller owns, beside its name.
_OWN_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
_NOT_CONTENT = {"apiVersion", "kind", "metadata", "status"}
# Maps with keys of the user's choice: nothing is meant by such a key, and an empty text is a value.
_FREE_MAPS = {"data", "binaryData", "annotations", "labels", "matchLabels", "nodeSelector"}
_MOST = 20
_LONGEST = 40


def differences(sent: Any, live: Any) -> list[str]:
    """The paths at which `live` is not what was `sent`; empty if it is. At most twenty."""
    found: list[str] = []
    _walk(normal(sent), normal(live), "", found)
    return found[:_MOST]


def is_exactly(sent: Any, live: Any) -> bool:
    """Whether a whole object that was sent is there, and nothing of an earlier one with it."""
    return not differences(sent, live) and not differences(_owned(normal(live)), sent)


def _owned(live: Any) -> Any:
    metadata = live.get("metadata") or {}
    own = {key: metadata[key] for key in _OWN_METADATA if metadata.get(key)}
    return {**{key: value for key, value in live.items() if key not in _NOT_CONTENT}, "metadata": own}


def _alike_in(key: str, inside: str, alike: Alike, value: Any) -> Alike:
    """How values at `key` are compared, given how those around them are, and at which key those stand."""
    if inside in _FREE_MAPS:
        return _same
    by_amount = isinstance(value, dict | list) if key in _QUANTITY_MAPS else key in _QUANTITY_FIELDS
    return _same_amount if by_amount or (inside, key) == ("target", "value") else alike


def normal(value: Any) -> Any:
    """A Secret with all of its content in `data`, as the server stores it."""
    if not isinstance(value, dict) or value.get("kind") != "Secret" or not value.get("stringData"):
        return value
    strings = {
        key: base64.b64encode(str(text).encode()).decode() for key, text in value["stringData"].items()
    }
    rest = {key: each for key, each in value.items() if key != "stringData"}
    return {**rest, "data": {**(value.get("data") or {}), **strings}}


def _walk(
    sent: Any, live: Any, path: str, found: list[str], alike: Alike | None = None, inside: str = ""
) -> None:
    alike = alike or _same
    if path in _IGNORED or len(found) >= _MOST or _is_nothing(sent):
        return
    if live is None and isinstance(sent, dict | list):
        live = type(sent)()
    if isinstance(sent, dict) and isinstance(live, dict):
        for key, value in sent.items():
            there = live.get(key)
            if there is None and inside not in _FREE_MAPS and _is_left_out(key, value):
                continue
            below = _alike_in(key, inside, alike, value)
            _walk(value, there, f"{path}.{key}".lstrip("."), found, below, key)
    elif isinstance(sent, list) and isinstance(live, list):
        _walk_list(sent, live, path, found, alike)
    elif not alike(sent, live):
        found.append(path or ".")


def _walk_list(sent: list[Any], live: list[Any], path: str, found: list[str], alike: Alike) -> None:
    """Items are matched by a name that only one has; else any alike will do: servers add some."""
    if all(isinstance(item, dict) for item in sent):
        there = [each for each in live if isinstance(each, dict)]
        for index, item in enumerate(sent):
            name = item.get("name")
            partners = [each for each in there if name is not None and each.get("name") == name]
            shared = len(partners) > 1 or [each.get("name") for each in sent].count(name) > 1
            if name is not None and not shared:
                _walk(item, partners[0] if partners else {}, f"{path}[{name}]", found, alike)
            elif not any(_is_within(item, each, alike) for each in there):
                found.append(f"{path}[{index}]")
    elif len(sent) != len(live) or not all(map(alike, sent, live)):
        found.append(path)


def _is_within(sent: Any, live: Any, alike: Alike) -> bool:
    found: list[str] = []
    _walk(sent, live, "", found, alike)
    return not found


def _is_left_out(key: str, value: Any) -> bool:
    """Whether the server leaves out such a field as empty."""
    return value == "" or (key in _ZERO_IS_ABSENT and isinstance(value, int) and not value)


def _is_nothing(value: Any) -> bool:
    return value is None or value in ({}, [])


def _same(sent: Any, live: Any) -> bool:
    return bool(sent == live) and isinstance(sent, bool) == isinstance(live, bool)


def _same_amount(sent: Any, live: Any) -> bool:
    if _same(sent, live):
        return True
    one, other = quantity(sent), quantity(live)
    return one is not None and one == other


def quantity(value: Any) -> Decimal | None:
    """A resource quantity as a number: `500m` and `0.5` are one and the same to the server."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(str(value)) if math.isfinite(value) else None
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) and len(value) <= _LONGEST else None
    if match is None:
        return None
    number, unit = Decimal(match[1]), match[2] or ""
    if unit in _BINARY:
        return number * Decimal(1024) ** _BINARY[unit]
    if unit in _UNITS:
        return number.scaleb(_UNITS[unit])
    return number.scaleb(int(unit[1:]))
