"""Retry: policies, backoffs, one deadline, a shared budget. No product word in it.

    from holdfast.retry import Policy, exponential, retry

    @retry(Policy(attempts=4, backoff=exponential(0.2, cap=10), deadline=60, retry_on=ConnectionError))
    def fetch() -> bytes: ...

    policy.call(fetch)                       # the same, at the place of the call
    await policy.acall(afetch)
    for attempt in policy.tries("fetch"):    # the same, for a block
        with attempt:
            ...

Only this package sleeps. The module itself can be called like the decorator, so that
`from holdfast import retry` gives both (docs/decisions/0010-retry-is-a-callable-module.md).
Not here: what is transient at any boundary.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from holdfast.retry.backoff import Backoff, constant, decorrelated, exponential, linear
from holdfast.retry.budget import Budget
from holdfast.retry.causes import causes
from holdfast.retry.clock import VirtualClock, apause, pause, testing_mode
from holdfast.retry.deadline import Deadline, current_deadline
from holdfast.retry.decorator import Decorator, retry
from holdfast.retry.policy import PASSING, Policy, describe
from holdfast.retry.retry_after import parse_retry_after
from holdfast.retry.tries import Attempt, Tries

if TYPE_CHECKING:
    from holdfast.retry.policy import Sink

__all__ = [
    "PASSING",
    "Attempt",
    "Backoff",
    "Budget",
    "Deadline",
    "Decorator",
    "Policy",
    "Tries",
    "VirtualClock",
    "apause",
    "causes",
    "constant",
    "current_deadline",
    "decorrelated",
    "describe",
    "exponential",
    "linear",
    "parse_retry_after",
    "pause",
    "retry",
    "testing_mode",
]


class _CallableModule(ModuleType):
    """This package, callable as its decorator."""

    def __call__(
        self, policy: Policy | None = None, /, *, operation: str | None = None, on_retry: Sink | None = None
    ) -> Decorator:
        return retry(policy, operation=operation, on_retry=on_retry)


sys.modules[__name__].__class__ = _CallableModule
