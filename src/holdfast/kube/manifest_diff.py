"""Compares a sent object with the live one: sent fields must be equal, other fields belong to the server.

Reports paths only, never values: the object may be a Secret. `is_identical` also requires that the live
object has no other fields of the caller.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

Comparator: TypeAlias = Callable[[Any, Any], bool]

OPERATION_ID_ANNOTATION = "holdfast.dev/operation-id"
OWNER_ANNOTATION = "holdfast.dev/owner"
_QUANTITY = re.compile(
    r"([+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?"
)
_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENTS = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
# Written by the server, or by this package for one attempt.
_IGNORED_PATHS = {
    "status",
    f"metadata.annotations.{OPERATION_ID_ANNOTATION}",
    f"metadata.annotations.{OWNER_ANNOTATION}",
    "metadata.creationTimestamp",
    "metadata.generateName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
    "metadata.uid",
}
# Strings in these maps and fields are quantities; elsewhere "1.10" differs from "1.1".
_QUANTITY_MAPS = {"resources", "limits", "requests", "capacity", "allocatable", "hard", "overhead"}
_QUANTITY_FIELDS = {"sizeLimit", "divisor", "averageValue", "maximumVolumeSize", "storage"}
# The server omits these fields if they are false or zero.
_OMITTED_WHEN_ZERO = {
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
# Metadata that the caller owns, in addition to the name.
_CALLER_METADATA = ("labels", "annotations", "finalizers", "ownerReferences")
_NON_CONTENT_FIELDS = {"apiVersion", "kind", "metadata", "status"}
# Maps with user-defined keys: a key has no meaning, and an empty string is a value.
_USER_KEYED_MAPS = {"data", "binaryData", "annotations", "labels", "matchLabels", "nodeSelector"}
# Values in a NetworkPolicy that mean the same as no value.
_UNSET: tuple[Any, ...] = (None, [], {}, "TCP")
_MAX_DIFFERENCES = 20
_MAX_QUANTITY_LENGTH = 40


def differences(sent: Any, live: Any) -> list[str]:
    """The paths at which `live` differs from `sent`, at most twenty."""
    paths: list[str] = []
    _collect_differences(normalize_secret(sent), normalize_secret(live), "", paths)
    if not paths and isinstance(sent, dict) and sent.get("kind") == "NetworkPolicy":
        # In a policy, an absent or additional rule has a meaning: the specs must be the same.
        return [] if _stored_policy(sent) == _stored_policy(live) else ["spec"]
    return paths[:_MAX_DIFFERENCES]


def _stored_policy(policy: dict[str, Any]) -> Any:
    """The spec of a NetworkPolicy in one form: without empty fields and defaults, with policy types."""
    spec = policy.get("spec") or {}
    types = spec.get("policyTypes") or (["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])
    return _stored_rules({"podSelector": {}, **spec, "policyTypes": types})


def _stored_rules(value: Any) -> Any:
    if isinstance(value, list):
        return [_stored_rules(each) for each in value]
    if not isinstance(value, dict):
        return value
    # An empty selector selects everything; an absent one selects nothing. TCP is the default protocol.
    kept = {key: each for key, each in value.items() if key.endswith("Selector") or each not in _UNSET}
    return {key: _stored_rules(each) for key, each in kept.items()}


def is_identical(sent: Any, live: Any) -> bool:
    """Whether `live` equals the whole object that was sent, without fields of an earlier version."""
    return not differences(sent, live) and not differences(_caller_fields(normalize_secret(live)), sent)


def _caller_fields(live: Any) -> Any:
    metadata = live.get("metadata") or {}
    own = {key: metadata[key] for key in _CALLER_METADATA if metadata.get(key)}
    return {**{key: value for key, value in live.items() if key not in _NON_CONTENT_FIELDS}, "metadata": own}


def _comparator_for(key: str, parent_key: str, is_equal: Comparator, value: Any) -> Comparator:
    """The comparison for the value at `key`, given its parent key and the comparison of the parent."""
    if parent_key in _USER_KEYED_MAPS:
        return _is_equal
    by_amount = isinstance(value, dict | list) if key in _QUANTITY_MAPS else key in _QUANTITY_FIELDS
    return _is_equal_quantity if by_amount or (parent_key, key) == ("target", "value") else is_equal


def normalize_secret(value: Any) -> Any:
    """Move `stringData` of a Secret to `data`, as the server does."""
    if not isinstance(value, dict) or value.get("kind") != "Secret" or not value.get("stringData"):
        return value
    strings = {
        key: base64.b64encode(str(text).encode()).decode() for key, text in value["stringData"].items()
    }
    rest = {key: each for key, each in value.items() if key != "stringData"}
    return {**rest, "data": {**(value.get("data") or {}), **strings}}


def _collect_differences(
    sent: Any,
    live: Any,
    path: str,
    paths: list[str],
    is_equal: Comparator | None = None,
    parent_key: str = "",
) -> None:
    is_equal = is_equal or _is_equal
    if path in _IGNORED_PATHS or len(paths) >= _MAX_DIFFERENCES or _is_empty(sent):
        return
    # The server omits empty maps and lists.
    if live is None and isinstance(sent, dict | list):
        live = type(sent)()
    if isinstance(sent, dict) and isinstance(live, dict):
        for key, value in sent.items():
            live_value = live.get(key)
            if (
                live_value is None
                and parent_key not in _USER_KEYED_MAPS
                and _is_omitted_by_server(key, value)
            ):
                continue
            comparator = _comparator_for(key, parent_key, is_equal, value)
            _collect_differences(value, live_value, f"{path}.{key}".lstrip("."), paths, comparator, key)
    elif isinstance(sent, list) and isinstance(live, list):
        _collect_list_differences(sent, live, path, paths, is_equal)
    elif not is_equal(sent, live):
        paths.append(path or ".")


def _collect_list_differences(
    sent: list[Any], live: list[Any], path: str, paths: list[str], is_equal: Comparator
) -> None:
    """Match items by unique name; other items need an equal one, since servers add items."""
    if all(isinstance(item, dict) for item in sent):
        live_items = [each for each in live if isinstance(each, dict)]
        for index, item in enumerate(sent):
            name = item.get("name")
            partners = [each for each in live_items if name is not None and each.get("name") == name]
            shared = len(partners) > 1 or [each.get("name") for each in sent].count(name) > 1
            if name is not None and not shared:
                _collect_differences(
                    item, partners[0] if partners else {}, f"{path}[{name}]", paths, is_equal
                )
            elif not any(_is_subset(item, each, f"{path}[{index}]", is_equal) for each in live_items):
                paths.append(f"{path}[{index}]")
    elif len(sent) != len(live) or not all(map(is_equal, sent, live)):
        paths.append(path)


def _is_subset(sent: Any, live: Any, path: str, is_equal: Comparator) -> bool:
    paths: list[str] = []
    _collect_differences(sent, live, path, paths, is_equal)
    return not paths


def _is_omitted_by_server(key: str, value: Any) -> bool:
    """Whether the server omits a field with this value."""
    return value == "" or (key in _OMITTED_WHEN_ZERO and isinstance(value, int) and not value)


def _is_empty(value: Any) -> bool:
    return value is None or value in ({}, [])


def _is_equal(sent: Any, live: Any) -> bool:
    # `True == 1` in Python, but not in JSON.
    return bool(sent == live) and isinstance(sent, bool) == isinstance(live, bool)


def _is_equal_quantity(sent: Any, live: Any) -> bool:
    if _is_equal(sent, live):
        return True
    quantity = parse_quantity(sent)
    return quantity is not None and quantity == parse_quantity(live)


def parse_quantity(value: Any) -> Decimal | None:
    """Parse a resource quantity: `500m` equals `0.5`; None if it is not a quantity."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(str(value)) if math.isfinite(value) else None
    match = (
        _QUANTITY.fullmatch(value) if isinstance(value, str) and len(value) <= _MAX_QUANTITY_LENGTH else None
    )
    if match is None:
        return None
    number, unit = Decimal(match[1]), match[2] or ""
    if unit in _BINARY_EXPONENTS:
        return number * Decimal(1024) ** _BINARY_EXPONENTS[unit]
    if unit in _DECIMAL_EXPONENTS:
        return number.scaleb(_DECIMAL_EXPONENTS[unit])
    return number.scaleb(int(unit[1:]))
