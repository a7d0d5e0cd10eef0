"""Counts what each rule matches and draws whether its fault strikes: pure, seeded, nothing is sent here.

Each rule has a generator of its own, so that for one seed and one order of requests the faults are the same,
whatever other rules stand beside it. Not here: what a fault does (`inject`).
"""

from __future__ import annotations

import random
import re
import threading
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.testing.faults.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.testing.faults.rules import Fault, Rule


_WATCH = re.compile(r"(?i)(^|&)watch=(true|1|t)(&|$)")


class Request(NamedTuple):
    """What a rule can see of a request."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def is_watch(self) -> bool:
        return _WATCH.search(self.query) is not None


class _Armed:
    """A rule with its counts and its generator."""

    def __init__(self, rule: Rule, seed: str) -> None:
        self.rule = rule
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._path, self._query = re.compile(rule.path), re.compile(rule.query)
        self._header = re.compile(rule.header) if rule.header else None
        self._seen = 0
        self._struck = 0

    def strike(self, request: Request) -> Fault | None:
        faults = self._fitting(request)
        if not faults or not self._matches(request):
            return None
        self._seen += 1
        rule = self.rule
        if rule.probability < 1 and self._random.random() >= rule.probability:
            return None
        if self._seen <= rule.after or (rule.nth and self._seen - rule.after not in rule.nth):
            return None
        if rule.count is not None and self._struck >= rule.count:
            return None
        self._struck += 1
        return self._drawn(faults)

    def _matches(self, request: Request) -> bool:
        if self.rule.methods and request.method not in self.rule.methods:
            return False
        if not self._path.search(request.path) or not self._query.search(request.query):
            return False
        if self._header is None:
            return True
        return any(self._header.search(f"{name.lower()}: {value}") for name, value in request.headers)

    def _fitting(self, request: Request) -> tuple[Fault, ...]:
        if request.is_watch:
            return self.rule.faults
        return tuple(fault for fault in self.rule.faults if not KINDS[fault.kind].watch)

    def _drawn(self, faults: tuple[Fault, ...]) -> Fault:
        fault = faults[0] if len(faults) == 1 else self._random.choice(faults)
        forms = fault.retry_after_forms
        if len(forms) > 1:
            fault = msgspec.structs.replace(fault, retry_after=self._random.choice(forms))
        return fault


class Decider:
    """The rules in force; safe to ask and to change from several threads."""

    def __init__(self, rules: Iterable[Rule] = (), seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._seed = seed
        self._armed: list[_Armed] = []
        self.replace(rules)

    def replace(self, rules: Iterable[Rule]) -> None:
        """Put other rules in force; all counts and generators begin anew."""
        armed = [_Armed(rule, f"{self._seed}/{number}") for number, rule in enumerate(rules)]
        with self._lock:
            self._armed = armed

    def decide(self, request: Request) -> tuple[Rule, Fault] | None:
        """The fault that strikes this request, with the rule it comes from."""
        with self._lock:
            for armed in self._armed:
                fault = armed.strike(request)
                if fault is not None:
                    return armed.rule, fault
        return None
