"""Faults, rules that select requests for them, and scripts with rules in TOML.

A rule counts the requests that it matches; `after`, `nth`, `probability` and `count` decide whether it
applies. The first rule that applies wins. Each rule has its own seeded generator: for one seed and one order
of requests its faults are the same, whatever other rules exist. A script has one `[[rule]]` table per rule:

    seed = 7

    [[rule]]
    fault = ["reset-after", "leader-changed"]
    methods = ["POST", "DELETE"]
    probability = 0.3
"""

from __future__ import annotations

import random
import re
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from holdfast.testing.faults.request_log import RequestRecord

    Headers: TypeAlias = Iterable[tuple[str, str]]


class FaultKind(NamedTuple):
    """Description of a fault and the settings that it accepts; some apply to watches only."""

    description: str
    settings: frozenset[str]

    @property
    def is_watch_only(self) -> bool:
        """Whether the fault applies to watches only."""
        return "events" in self.settings


def _fault_kind(description: str, *takes: str) -> FaultKind:
    return FaultKind(description, frozenset(takes))


FAULT_KINDS: dict[str, FaultKind] = {
    # Connection faults
    "reset-before": _fault_kind("reset the connection; the server never sees the request"),
    "reset-after": _fault_kind("forward the request, drop the response, reset the connection"),
    "refuse": _fault_kind(
        "close the port for a while: connections are refused; this request is reset", "seconds"
    ),
    "truncated": _fault_kind("send the head and a part of the body, then close", "bytes"),
    "stall-headers": _fault_kind(
        "send no response for a while, then close; `commit` forwards first", "seconds", "commit"
    ),
    "stall-body": _fault_kind("send the head and a part of the body, wait, then close", "seconds", "bytes"),
    "slow": _fault_kind("wait, then forward and respond as usual", "seconds"),
    # Errors in the wording of the API server or a load balancer
    "unauthorized": _fault_kind("401 Unauthorized"),
    "request-timeout": _fault_kind("408 from a load balancer", "commit"),
    "gone": _fault_kind("410 Expired: the resource version is too old"),
    "too-many-requests": _fault_kind("429 TooManyRequests", "retry_after"),
    "internal-error": _fault_kind("500 InternalError", "commit"),
    "leader-changed": _fault_kind("500 'etcdserver: leader changed'", "commit"),
    "server-timeout": _fault_kind("500 ServerTimeout", "commit", "retry_after"),
    "bad-gateway": _fault_kind("502 from a load balancer, as HTML", "commit"),
    "unavailable": _fault_kind("503 ServiceUnavailable", "commit", "retry_after"),
    "gateway-timeout": _fault_kind("504 Timeout", "commit"),
    # Responses that no API server sends
    "html": _fault_kind("an HTML page", "status", "commit"),
    "empty": _fault_kind("an empty body", "status", "commit"),
    "enormous": _fault_kind("a JSON body without end, up to `bytes`", "status", "commit", "bytes"),
    "invalid-utf8": _fault_kind("JSON with invalid UTF-8", "status", "commit"),
    "wrong-content-type": _fault_kind("the server's response with the type text/plain"),
    # Faults inside a watch, after `events` events of the server
    "event-gone": _fault_kind("an ERROR event with 410, then the stream ends", "events"),
    "event-too-many-requests": _fault_kind(
        "an ERROR event with 429, then the stream ends", "events", "retry_after"
    ),
    "event-garbage": _fault_kind("an invalid JSON line, then the stream ends", "events"),
    "end-stream": _fault_kind("the stream ends as if its time were up", "events"),
    "drop-stream": _fault_kind("the connection is reset in mid-stream", "events"),
}

# Forms that real servers send; `date:+N` is an HTTP date N seconds ahead, `absent` omits the header.
RETRY_AFTER_FORMS = ("1", "0", "-5", "", "soon", "1.5", "date:+1", "date:-30", "absent")


T = TypeVar("T")

# An hour and a gibibyte exceed every use, and keep a typo from blocking a test.
_FAULT_BOUNDS = {"seconds": (0, 3600), "bytes": (0, 2**30), "events": (0, 2**30), "status": (200, 599)}
_RULE_BOUNDS = {"after": (0, 2**30), "count": (1, 2**30), "probability": (0, 1)}
_DEFAULT_SECONDS = {"refuse": 5.0, "slow": 1.0}
_RETRY_AFTER_DATE = re.compile(r"date:[+-]\d+")


class FaultScriptError(UsageError, ValueError):
    """An invalid fault or rule; the message names the key."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault. `retry_after` may list several forms; one is drawn for each response."""

    kind: str
    commit: bool | None = None
    seconds: float | None = None
    bytes: int | None = None
    status: int | None = None
    events: int | None = None
    retry_after: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        kind = FAULT_KINDS.get(self.kind)
        if kind is None:
            raise FaultScriptError(f"kind: {self.kind!r} is not a fault; use one of {', '.join(FAULT_KINDS)}")
        for key in ("commit", "seconds", "bytes", "status", "events", "retry_after"):
            if getattr(self, key) is not None and key not in kind.settings:
                accepted = ", ".join(sorted(kind.settings)) or "no settings"
                raise FaultScriptError(f"{key}: not a setting of {self.kind}, which accepts {accepted}")
        _check_bounds(self, _FAULT_BOUNDS)
        for form in self.retry_after_forms:
            if form.startswith("date:") and not _RETRY_AFTER_DATE.fullmatch(form):
                raise FaultScriptError(f"retry_after: {form!r} is not of the form date:+SECONDS")
            if not form.isascii() or not form.isprintable():
                raise FaultScriptError(f"retry_after: {form!r} is not valid in a header")

    @property
    def duration(self) -> float:
        """How long the fault lasts, in seconds."""
        return _DEFAULT_SECONDS.get(self.kind, 30.0) if self.seconds is None else self.seconds

    @property
    def retry_after_forms(self) -> tuple[str, ...]:
        """The forms of the Retry-After header, of which one is drawn."""
        if self.retry_after is None:
            return ()
        return (self.retry_after,) if isinstance(self.retry_after, str) else self.retry_after


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests and the fault to inject; one of several faults is drawn.

    `path` and `query` are regular expressions for the parts of the request target. `header` is searched in
    each `name: value` line, with the name in lower case. Watch faults apply to watches only.
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
            raise FaultScriptError("faults: must not be empty")
        for key in ("path", "query", "header"):
            try:
                re.compile(getattr(self, key))
            except re.error as error:
                raise FaultScriptError(f"{key}: not a valid regular expression: {error}") from None
        for method in self.methods:
            if not method.isalpha() or method != method.upper():
                raise FaultScriptError(f"methods: {method!r} is not an HTTP method in capitals")
        if any(number < 1 for number in self.nth):
            raise FaultScriptError("nth: requests are counted from 1")
        _check_bounds(self, _RULE_BOUNDS)


def _check_bounds(settings: msgspec.Struct, bounds: dict[str, tuple[int, int]]) -> None:
    for key, (least, most) in bounds.items():
        value = getattr(settings, key)
        if value is not None and not least <= value <= most:
            raise FaultScriptError(f"{key}: {value!r} is not between {least} and {most}")


_FAULT_SETTINGS = frozenset(Fault.__struct_fields__) - {"kind"}


def rule(*faults: Fault | str | dict[str, Any], **settings: Any) -> Rule:
    """Create a rule: `rule("reset-after", methods="POST", probability=0.3)`.

    Args:
        faults: names of faults, `Fault` objects, or tables with a `kind`; one is drawn for each request.
        settings: fields of `Rule`. Settings of faults (`seconds`, `retry_after`, …) are accepted too; each
            fault that is given by name gets those that it accepts.

    Raises:
        FaultScriptError: a fault or a setting is invalid.
    """
    shared = {key: settings.pop(key) for key in tuple(settings) if key in _FAULT_SETTINGS}
    for key in shared:
        if not any(isinstance(fault, str) and _accepts_setting(fault, key) for fault in faults):
            raise FaultScriptError(f"{key}: not a setting of any fault of this rule")
    converted = [_to_fault(fault, shared) for fault in faults]
    for key in ("methods", "nth"):
        if isinstance(settings.get(key), str | int):
            settings[key] = (settings[key],)
    return _convert({"faults": converted, **settings}, Rule)


def _to_fault(fault: Fault | str | dict[str, Any], shared: dict[str, Any]) -> Fault:
    if isinstance(fault, Fault):
        return fault
    if isinstance(fault, dict):
        return _convert(fault, Fault)
    if not isinstance(fault, str):
        raise FaultScriptError(f"fault: {fault!r} is neither a name nor a table with a `kind`")
    return _convert({"kind": fault, **{k: v for k, v in shared.items() if _accepts_setting(fault, k)}}, Fault)


def _accepts_setting(kind: str, key: str) -> bool:
    # Pass all settings to an unknown kind, so that the error names the kind.
    return kind not in FAULT_KINDS or key in FAULT_KINDS[kind].settings


def _convert(value: dict[str, Any], into: type[T]) -> T:
    try:
        return msgspec.convert(value, into)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, FaultScriptError):
            raise error.__cause__ from None
        raise FaultScriptError(str(error).replace("`$.", "`")) from None


class FaultScript(NamedTuple):
    """Rules of a script, and its seed if it has one."""

    rules: tuple[Rule, ...]
    seed: int | None = None


def load_script(path: Path) -> FaultScript:
    """Load a script from a file. Raises `FaultScriptError`, which names the rule and the key."""
    try:
        return parse_script(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FaultScriptError(f"{path}: cannot be read: {error}") from error
    except FaultScriptError as error:
        raise FaultScriptError(f"{path}: {error}") from error


def parse_script(text: str) -> FaultScript:
    """Parse a script in TOML. Raises `FaultScriptError`, which names the rule and the key."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FaultScriptError(f"not TOML: {error}") from error
    parsed = _convert(content, _ScriptFile)
    return FaultScript(tuple(_parse_rule(*entry) for entry in enumerate(parsed.rule, start=1)), parsed.seed)


class _ScriptFile(msgspec.Struct, forbid_unknown_fields=True):
    seed: int | None = None
    rule: list[dict[str, Any]] = []


def _parse_rule(number: int, table: dict[str, Any]) -> Rule:
    try:
        return _rule_from_table(dict(table))
    except FaultScriptError as error:
        name = f" ({table['name']})" if isinstance(table.get("name"), str) else ""
        raise FaultScriptError(f"rule {number}{name}: {error}") from error


def _rule_from_table(settings: dict[str, Any]) -> Rule:
    faults = settings.pop("fault", None)
    if faults is None:
        raise FaultScriptError("fault: is missing")
    if "faults" in settings:
        raise FaultScriptError("faults: unknown key; write `fault`")
    return rule(*(faults if isinstance(faults, list) else [faults]), **settings)


class _RuleState:
    """A rule with its counters and its random generator."""

    def __init__(self, rule: Rule, seed: str) -> None:
        self.rule = rule
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._matched = 0
        self._injected = 0

    def draw_fault(self, request: RequestRecord, headers: Headers) -> Fault | None:
        """Count a matching request, and return a fault if the rule applies to it."""
        rule = self.rule
        faults = [f for f in rule.faults if request.is_watch or not FAULT_KINDS[f.kind].is_watch_only]
        if not faults or not self._matches(request, headers):
            return None
        self._matched += 1
        # Draw for each match, even if another condition fails: the same seed then gives the same faults.
        if rule.probability < 1 and self._random.random() >= rule.probability:
            return None
        if self._matched <= rule.after or (rule.nth and self._matched - rule.after not in rule.nth):
            return None
        if rule.count is not None and self._injected >= rule.count:
            return None
        self._injected += 1
        fault = faults[0] if len(faults) == 1 else self._random.choice(faults)
        forms = fault.retry_after_forms
        if len(forms) > 1:
            fault = msgspec.structs.replace(fault, retry_after=self._random.choice(forms))
        return fault

    def _matches(self, request: RequestRecord, headers: Headers) -> bool:
        rule = self.rule
        return (
            (not rule.methods or request.method in rule.methods)
            and re.search(rule.path, request.path) is not None
            and re.search(rule.query, request.query) is not None
            and (not rule.header or any(re.search(rule.header, f"{k.lower()}: {v}") for k, v in headers))
        )


class FaultSelector:
    """The active rules. Any thread may replace them; only the proxy's thread selects faults."""

    def __init__(self, rules: Iterable[Rule] = (), seed: int = 0) -> None:
        self._seed = seed
        self.replace_rules(rules)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The active rules."""
        return tuple(state.rule for state in self._states)

    def replace_rules(self, rules: Iterable[Rule]) -> None:
        """Replace the rules and reset all counters and generators."""
        # One assignment, so that a selection in progress sees either the old rules or the new ones.
        self._states = [_RuleState(rule, f"{self._seed}/{number}") for number, rule in enumerate(rules)]

    def select_fault(self, request: RequestRecord, headers: Headers) -> Fault | None:
        """Return the fault for a request, if any, and add it and its rule to the record."""
        for state in self._states:
            fault = state.draw_fault(request, headers)
            if fault is not None:
                request.rule, request.fault = state.rule.name, fault.kind
                return fault
        return None
