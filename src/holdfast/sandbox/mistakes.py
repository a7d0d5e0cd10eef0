"""What is wrong with a request for a sandbox, in one line: the field and the reason.

The gateway's API says it to every client, and the SDK before it asks. Not here: the bounds (wire.py).
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.sandbox.reserved import in_one_line, shortened, why_reserved
from holdfast.sandbox.wire import LabelKey, VariableName

_KEYS: dict[str, tuple[Any, str]] = {
    "labels": (LabelKey, "is no key for a label"),
    "env": (VariableName, "is no name for a variable"),
}


def mistake(error: msgspec.ValidationError, given: Any) -> str:
    """The first thing that is wrong with what was given."""
    words, _, place = str(error).partition(" - at `")
    field = place.rpartition("$")[2].rstrip("`").lstrip(".")
    if place.startswith("key`") and field in _KEYS:
        return f"{field}: {_bad_key(field, given)}"
    if "matching regex" in words:
        words = "it does not have the form that is asked for"
    return f"{field}: {words[:1].lower()}{words[1:]}" if field else words


def _bad_key(field: str, given: Any) -> str:
    kind, words = _KEYS[field]
    for key in given[field]:
        try:
            msgspec.convert(key, kind)
        except msgspec.ValidationError:
            why = why_reserved(str(key)) if field == "labels" else ""
            return (
                f"{in_one_line(str(key))} is reserved: {why}" if why else f"{shortened(str(key))!r} {words}"
            )
    return "a key does not have the form that is asked for"
