"""Retries: policies, backoffs, deadlines and a shared budget; independent of the rest of the product.

    from holdfast.retry import Policy, exponential, retry

    @retry(Policy(attempts=4, backoff=exponential(0.2, cap=10), deadline=60, retry_on=ConnectionError))
    def fetch() -> bytes: ...

    policy.call(fetch)                       # without a decorator
    await policy.acall(afetch)
    for attempt in policy.retry_context("fetch"):    # for a block of code
        with attempt:
            ...

Only this package sleeps. The module is callable like the decorator, so that `from holdfast import retry`
gives both (docs/decisions/0010-retry-library.md).
"""

from __future__ import annotations

import sys
from types import ModuleType

from holdfast.retry import argument_checks, clock
from holdfast.retry.backoff import Backoff, constant, decorrelated, exponential, linear, random_fraction
from holdfast.retry.budget import Budget
from holdfast.retry.clock import StopEvent, VirtualClock, asleep, sleep, testing_mode
from holdfast.retry.deadline import Deadline, current_deadline
from holdfast.retry.policy import TRANSIENT, Policy, RetryListener
from holdfast.retry.retry_decision import parse_retry_after
from holdfast.retry.runner import Attempt, RetryContext, RetryDecorator, retry
from holdfast.retry.state import causes

__all__ = [
    "TRANSIENT",
    "Attempt",
    "Backoff",
    "Budget",
    "Deadline",
    "Policy",
    "RetryContext",
    "RetryDecorator",
    "RetryListener",
    "StopEvent",
    "VirtualClock",
    "argument_checks",
    "asleep",
    "causes",
    "clock",
    "constant",
    "current_deadline",
    "decorrelated",
    "exponential",
    "linear",
    "parse_retry_after",
    "random_fraction",
    "retry",
    "sleep",
    "testing_mode",
]


class _CallableModule(ModuleType):
    """This package, callable as its decorator."""

    def __call__(
        self,
        policy: Policy | None = None,
        /,
        *,
        operation: str | None = None,
        on_retry: RetryListener | None = None,
    ) -> RetryDecorator:
        return retry(policy, operation=operation, on_retry=on_retry)


sys.modules[__name__].__class__ = _CallableModule
