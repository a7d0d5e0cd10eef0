"""Whether an object that is there is what was sent: every sent field is alike, the others are the server's.

Names paths only, never values: the object may be a Secret. Not here: what follows from a difference
(`ensure`).
"""

from __future__ import annotations

import base64
import re
from decimal import Decimal
from typing import Any

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
    "metadata.managedFields",
    "metadata.resourceVersion",
    "metadata.uid",
}
_MOST = 20
_LONGEST = 40


def differences(sent: Any, live: Any) -> list[str]:
    """The paths at which `live` is not what was `sent`; empty if it is. At most twenty."""
    found: list[str] = []
    _walk(normal(sent), normal(live), "", found)
    return found[:_MOST]


def normal(value: Any) -> Any:
    """A Secret with all of its content in `data`, as the server stores it."""
    if not isinstance(value, dict) or value.get("kind") != "Secret" or not value.get("stringData"):
        return value
    strings = {
        key: base64.b64encode(str(text).encode()).decode() for key, text in value["stringData"].items()
    }
    rest = {key: each for key, each in value.items() if key != "stringData"}
    return {**rest, "data": {**(value.get("data") or {}), **strings}}


def _walk(sent: Any, live: Any, path: str, found: list[str]) -> None:
    if path in _IGNORED or len(found) >= _MOST or _is_nothing(sent):
        return
    if live is None and isinstance(sent, dict | list):
        live = type(sent)()
    if isinstance(sent, dict) and isinstance(live, dict):
        for key, value in sent.items():
            _walk(value, live.get(key), f"{path}.{key}".lstrip("."), found)
    elif isinstance(sent, list) and isinstance(live, list):
        _walk_list(sent, live, path, found)
    elif not _alike(sent, live):
        found.append(path or ".")


def _walk_list(sent: list[Any], live: list[Any], path: str, found: list[str]) -> None:
    """Items are matched by name where they have one; else any alike will do: servers add some."""
    if all(isinstance(item, dict) for item in sent):
        for index, item in enumerate(sent):
            name = item.get("name")
            if name is not None:
                partner = next(
                    (each for each in live if isinstance(each, dict) and each.get("name") == name), None
                )
                _walk(item, partner if partner is not None else {}, f"{path}[{name}]", found)
            elif not any(_is_within(item, each) for each in live):
                found.append(f"{path}[{index}]")
    elif len(sent) != len(live) or not all(map(_alike, sent, live)):
        found.append(path)


def _is_within(sent: Any, live: Any) -> bool:
    found: list[str] = []
    _walk(sent, live, "", found)
    return not found


def _is_nothing(value: Any) -> bool:
    return value is None or value in ({}, [], "")


def _alike(sent: Any, live: Any) -> bool:
    if sent == live and isinstance(sent, bool) == isinstance(live, bool):
        return True
    if isinstance(sent, bool) or isinstance(live, bool):
        return False
    one, other = quantity(sent), quantity(live)
    return one is not None and one == other


def quantity(value: Any) -> Decimal | None:
    """A resource quantity as a number: `500m` and `0.5` are one and the same to the server."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) and len(value) <= _LONGEST else None
    if match is None:
        return None
    number, unit = Decimal(match[1]), match[2] or ""
    if unit in _BINARY:
        return number * Decimal(1024) ** _BINARY[unit]
    if unit in _UNITS:
        return number.scaleb(_UNITS[unit])
    return number.scaleb(int(unit[1:]))
