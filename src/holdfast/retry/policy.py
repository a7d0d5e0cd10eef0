"""Retry policies: what to retry, how often, how fast and until when.

A policy is immutable, validated on creation, and has no state: threads and tasks can share it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from holdfast.errors import ArgumentTypeError, InvalidArgumentError, TemporaryError
from holdfast.retry import argument_checks
from holdfast.retry.backoff import Backoff, exponential
from holdfast.retry.budget import Budget
from holdfast.retry.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.events import RetryScheduled
    from holdfast.retry.clock import StopEvent
    from holdfast.retry.runner import RetryContext

P = ParamSpec("P")
R = TypeVar("R")

RetryOn: TypeAlias = "type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool | None]"
RetryListener: TypeAlias = "Callable[[RetryScheduled], None]"

# Errors that are transient regardless of their origin.
TRANSIENT: tuple[type[Exception], ...] = (TemporaryError, ConnectionError, TimeoutError)

_MAX_REASON_LENGTH = 200


def describe(error: BaseException) -> str:
    """Describe an error in one line: its type and the first line of its message."""
    try:
        text = str(error).strip().split("\n", 1)[0]
    except Exception:  # noqa: BLE001 - `__str__` of an exception may raise
        text = ""
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:_MAX_REASON_LENGTH]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a failed call is retried.

    Attributes:
        attempts: The maximum number of attempts, including the first; None means until the deadline.
        backoff: The delay between attempts.
        deadline: Seconds for the whole call, including sleeps, or a shared `Deadline`. An enclosing deadline
            is never exceeded.
        retry_on: Exception types, or a predicate, for errors that are retried. A predicate returns None if an
            error is not retried and does not show whether the endpoint works; the budget ignores it.
        retry_after: Returns the seconds that the server requested with an error; see `parse_retry_after`.
        budget: Shared with other callers of the same endpoint.
        on_retry: Called before each retry.
        stop: An event that ends a wait immediately, with OperationCancelledError.
        describe: Describes an error in one line for events and notes; replace it if messages contain secrets.
        operation: The name of the call in events and notes; by default the qualified name of the function.
    """

    attempts: int | None = 4
    backoff: Backoff = field(default_factory=exponential)
    deadline: float | Deadline | None = None
    retry_on: RetryOn = TRANSIENT
    retry_after: Callable[[Exception], float | None] | None = None
    budget: Budget | None = None
    on_retry: RetryListener | None = None
    stop: StopEvent | None = None
    describe: Callable[[BaseException], str] = describe
    operation: str | None = None
    # Derived: relative and absolute deadline.
    total_timeout: float = field(init=False, repr=False, compare=False, default=math.inf)
    expires: float = field(init=False, repr=False, compare=False, default=math.inf)

    def __post_init__(self) -> None:
        if self.attempts is not None:
            argument_checks.check_count("attempts", self.attempts)
        elif self.deadline is None and self.stop is None:
            raise InvalidArgumentError("attempts", "must be a number if neither deadline nor stop is set")
        if isinstance(self.deadline, Deadline):
            object.__setattr__(self, "expires", self.deadline.expires)
        elif self.deadline is not None:
            object.__setattr__(
                self, "total_timeout", argument_checks.check_seconds("deadline", self.deadline)
            )
        _check_parts(self)

    def replace(self, **changes: Any) -> Policy:
        """Copy the policy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def is_retryable(self, error: Exception) -> bool | None:
        """Whether a call is retried after this error, as long as attempts and time are left."""
        if isinstance(self.retry_on, type | tuple):
            return isinstance(error, self.retry_on)
        return self.retry_on(error)

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `fn` under this policy."""
        from holdfast.retry.runner import is_async, wrap_sync

        if is_async(fn):
            raise ArgumentTypeError(
                "fn", f"{operation_name(fn)} is a coroutine function: use `await policy.acall(...)`"
            )
        return wrap_sync(self, self.operation or operation_name(fn), fn)(*args, **kwargs)

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call and await `fn` under this policy."""
        from holdfast.retry.runner import wrap_async

        return await wrap_async(self, self.operation or operation_name(fn), fn)(*args, **kwargs)

    def retry_context(self, operation: str | None = None) -> RetryContext:
        """Iterate over attempts: `for attempt in policy.retry_context("read"):`, then `with attempt:`."""
        from holdfast.retry.runner import RetryContext

        return RetryContext(self, operation or self.operation or "block")


def operation_name(fn: Any) -> str:
    """The name of `fn` in events."""
    while hasattr(fn, "func") and not hasattr(fn, "__qualname__"):  # functools.partial
        fn = fn.func
    module = getattr(fn, "__module__", None)
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    name = name.replace("<locals>.", "")
    return f"{module}.{name}" if module else name


def _check_parts(policy: Policy) -> None:
    if not callable(getattr(policy.backoff, "delay", None)):
        raise ArgumentTypeError("backoff", f"must be a backoff such as exponential(), not {policy.backoff!r}")
    _check_retry_on(policy.retry_on)
    if policy.budget is not None and not isinstance(policy.budget, Budget):
        raise ArgumentTypeError("budget", f"must be a Budget, not {policy.budget!r}")
    for name in ("retry_after", "on_retry"):
        value = getattr(policy, name)
        if value is not None and not callable(value):
            raise ArgumentTypeError(name, f"must be callable, not {value!r}")
    if policy.stop is not None and not callable(getattr(policy.stop, "is_set", None)):
        raise ArgumentTypeError("stop", f"must be an event, not {policy.stop!r}")
    if not callable(policy.describe):
        raise ArgumentTypeError("describe", f"must be callable, not {policy.describe!r}")


def _check_retry_on(retry_on: Any) -> None:
    types = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    if isinstance(retry_on, tuple) and not retry_on:
        raise InvalidArgumentError("retry_on", "is empty; use attempts=1 to disable retries")
    for each in types:
        if isinstance(each, type):
            if not issubclass(each, Exception):
                raise ArgumentTypeError(
                    "retry_on",
                    f"{each.__name__} is not an Exception; Ctrl-C and cancellation are never retried",
                )
        elif isinstance(retry_on, tuple) or not callable(each):
            raise ArgumentTypeError("retry_on", f"must be exception types or a predicate, not {retry_on!r}")
