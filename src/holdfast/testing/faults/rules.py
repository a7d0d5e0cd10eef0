"""When which fault strikes: rules in the order they were given, the first that strikes wins.

A rule counts the requests that it matches; `after`, `nth`, `probability` and `count` then decide.
Not here: counting and drawing (`decide`), and reading rules from a file (`script`).
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias, TypeVar

import msgspec

from holdfast.errors import UsageError
from holdfast.testing.faults.kinds import KINDS

T = TypeVar("T")

# An hour and a gibibyte are more than any test can want, and keep a typing error from hanging one.
_BOUNDS = {"seconds": (0, 3600), "bytes": (0, 2**30), "events": (0, 2**30), "status": (200, 599)}
_DATE = re.compile(r"date:[+-]\d+")


class FaultScriptError(UsageError, ValueError):
    """A fault or rule that cannot be meant like that; the message names the key."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that goes wrong. `retry_after` may name several forms, one of which is drawn each time."""

    kind: str
    commit: bool | None = None
    seconds: float | None = None
    bytes: int | None = None
    status: int | None = None
    events: int | None = None
    retry_after: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        kind = KINDS.get(self.kind)
        if kind is None:
            raise FaultScriptError(f"kind: {self.kind!r} is no fault; there are {', '.join(KINDS)}")
        for key in ("commit", "seconds", "bytes", "status", "events", "retry_after"):
            if getattr(self, key) is not None and key not in kind.takes:
                raise FaultScriptError(
                    f"{key}: means nothing to {self.kind}, which takes {_listed(kind.takes)}"
                )
        for key, (least, most) in _BOUNDS.items():
            value = getattr(self, key)
            if value is not None and not least <= value <= most:
                raise FaultScriptError(f"{key}: {value!r} is not between {least} and {most}")
        for form in self.retry_after_forms:
            if form.startswith("date:") and not _DATE.fullmatch(form):
                raise FaultScriptError(f"retry_after: {form!r} is not of the form date:+SECONDS")
            if not form.isascii() or not form.isprintable():
                raise FaultScriptError(f"retry_after: {form!r} cannot stand in a header")

    @property
    def retry_after_forms(self) -> tuple[str, ...]:
        if self.retry_after is None:
            return ()
        return (self.retry_after,) if isinstance(self.retry_after, str) else self.retry_after


FaultLike: TypeAlias = Fault | str


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests, and which fault; with several faults one is drawn.

    `path` and `query` are regular expressions searched in the two parts of the target, `header` is searched
    in each `name: value` line with the name in lower case. Faults inside a stream strike watches only.
    """

    faults: tuple[Fault, ...]
    name: str = ""
    methods: tuple[str, ...] = ()
    path: str = ""
    query: str = ""
    header: str = ""
    after: int = 0
    nth: tuple[int, ...] = ()
    count: int | None = None
    probability: float = 1.0

    def __post_init__(self) -> None:
        if not self.faults:
            raise FaultScriptError("faults: a rule needs at least one")
        for key in ("path", "query", "header"):
            try:
                re.compile(getattr(self, key))
            except re.error as error:
                raise FaultScriptError(f"{key}: no regular expression: {error}") from None
        for method in self.methods:
            if not method.isalpha() or method != method.upper():
                raise FaultScriptError(f"methods: {method!r} is no HTTP method in capitals")
        if any(number < 1 for number in self.nth):
            raise FaultScriptError("nth: requests are counted from 1")
        if self.after < 0:
            raise FaultScriptError(f"after: {self.after!r} is below 0")
        if self.count is not None and self.count < 1:
            raise FaultScriptError(f"count: {self.count!r} is below 1")
        if not 0 <= self.probability <= 1:
            raise FaultScriptError(f"probability: {self.probability!r} is not between 0 and 1")


_FAULT_SETTINGS = frozenset(Fault.__struct_fields__) - {"kind"}


def rule(*faults: FaultLike | dict[str, Any], **settings: Any) -> Rule:
    """A rule in one line: `rule("reset-after", methods="POST", probability=0.3)`.

    Settings of a fault (`seconds`, `retry_after`, …) may stand here too; each fault takes those it knows.
    """
    shared = {key: settings.pop(key) for key in tuple(settings) if key in _FAULT_SETTINGS}
    for key in shared:
        if not any(isinstance(fault, str) and _takes(fault, key) for fault in faults):
            raise FaultScriptError(f"{key}: means nothing to any fault of this rule")
    made = [_fault(fault, shared) for fault in faults]
    for key in ("methods", "nth"):
        if isinstance(settings.get(key), str | int):
            settings[key] = (settings[key],)
    return _converted({"faults": made, **settings}, Rule)


def _fault(fault: FaultLike | dict[str, Any], shared: dict[str, Any]) -> Fault:
    if isinstance(fault, Fault):
        return fault
    if isinstance(fault, dict):
        return _converted(fault, Fault)
    return _converted({"kind": fault, **{k: v for k, v in shared.items() if _takes(fault, k)}}, Fault)


def _takes(kind: str, key: str) -> bool:
    # An unknown kind takes everything here, so that the error is about the kind.
    return kind not in KINDS or key in KINDS[kind].takes


def _listed(words: frozenset[str]) -> str:
    return ", ".join(sorted(words)) if words else "no settings"


def _converted(value: dict[str, Any], into: type[T]) -> T:
    try:
        return msgspec.convert(value, into)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, FaultScriptError):
            raise error.__cause__ from None
        raise FaultScriptError(str(error).replace("`$.", "`")) from None
