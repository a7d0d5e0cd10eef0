"""Verb by outcome: what is done after a failure. The one table; docs/reference/kube-outcomes.md explains it.

Not here: how a write is resolved (`writes`), and how long anything waits (`holdfast.retry`).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from holdfast.kube.outcome import Outcome, classify, describe
from holdfast.kube.status import http_status, retry_after
from holdfast.kube.verbs import Verb
from holdfast.retry import Budget, Policy, exponential

if TYPE_CHECKING:
    from collections.abc import Callable


class Action(Enum):
    """What follows."""

    RETRY = "retry"
    RESOLVE = "resolve"
    """make it again; if the server then says that it was done already, look whether it was us"""
    RAISE = "raise"


_R, _S, _N = Action.RETRY, Action.RESOLVE, Action.RAISE
# The columns: not sent, rejected, ambiguous. After a definite outcome nothing is ever repeated.
_TABLE: dict[Verb, tuple[Action, Action, Action]] = {
    Verb.READ: (_R, _R, _R),
    Verb.ASK: (_R, _R, _R),
    Verb.CREATE: (_R, _R, _S),
    Verb.EVICT: (_R, _R, _N),
    Verb.ACT: (_R, _R, _N),
    Verb.REPLACE: (_R, _R, _S),
    Verb.OVERWRITE: (_R, _R, _N),
    Verb.PATCH: (_R, _R, _R),
    Verb.PATCH_ONCE: (_R, _R, _N),
    Verb.DELETE: (_R, _R, _S),
    Verb.DELETE_MANY: (_R, _R, _N),
}
_COLUMNS = {Outcome.NOT_SENT: 0, Outcome.REJECTED: 1, Outcome.AMBIGUOUS: 2}

_TOO_MANY = 429


def action(verb: Verb, outcome: Outcome) -> Action:
    """What the table says."""
    column = _COLUMNS.get(outcome)
    return Action.RAISE if column is None else _TABLE[verb][column]


def may_repeat(verb: Verb) -> Callable[[Exception], bool]:
    """The predicate of a policy for this verb."""

    def predicate(error: Exception) -> bool:
        if verb is Verb.EVICT and http_status(error) == _TOO_MANY:
            # A disruption budget says no, not the transport: only the caller knows how long to insist.
            return False
        return action(verb, classify(error)) is not Action.RAISE

    return predicate


DEFAULT = Policy(attempts=4, backoff=exponential(0.2, cap=10.0))
# Every repeated request to one server takes a turn from one bucket, whoever makes it.
_RATE, _BURST = 50.0, 100
_budgets: dict[str, Budget] = {}


def budget_of(host: str) -> Budget:
    """The budget that all clients of one server in this process share."""
    budget = _budgets.get(host)
    return _budgets.setdefault(host, Budget(_RATE, burst=_BURST)) if budget is None else budget


def policy_for(verb: Verb, base: Policy, operation: str) -> Policy:
    """The caller's numbers with our words: what is transient, how long to wait, what may be told."""
    return base.with_(
        retry_on=may_repeat(verb), retry_after=retry_after, describe=describe, operation=operation
    )
