"""What to retry, how often, how fast and until when: one immutable value, checked when it is made.

A policy holds no state of any call, so that one policy may serve every thread and task. Not here: the
decision itself (`decision`) and the loops that carry it out (`drivers`).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from holdfast.errors import ArgumentError, ArgumentKindError, TemporaryError
from holdfast.retry import checks
from holdfast.retry.backoff import Backoff, exponential
from holdfast.retry.budget import Budget
from holdfast.retry.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.events import RetryScheduled
    from holdfast.retry.clock import Stop
    from holdfast.retry.tries import Tries

P = ParamSpec("P")
R = TypeVar("R")

RetryOn: TypeAlias = "type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]"
Sink: TypeAlias = "Callable[[RetryScheduled], None]"

# What may pass by itself, whoever raised it.
PASSING: tuple[type[Exception], ...] = (TemporaryError, ConnectionError, TimeoutError)

_LONGEST_REASON = 200


def describe(error: BaseException) -> str:
    """An error in one short line: its type and the first line of what it says."""
    try:
        text = str(error).strip().split("\n", 1)[0]
    except Exception:  # noqa: BLE001 - an error that cannot even be printed still has a type
        text = ""
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:_LONGEST_REASON]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a call that may fail is made again.

    - `attempts`: how often at most, the first one included; None goes on until the deadline.
    - `backoff`: how long to wait between two attempts.
    - `deadline`: seconds for the whole call, sleeps included, or a `Deadline` shared with others. An
      enclosing deadline is never exceeded.
    - `retry_on`: exception types, or a predicate, that say which errors may pass.
    - `retry_after`: finds in an error how many seconds the server asked for (see `parse_retry_after`).
    - `budget`: shared with all other callers of the same endpoint.
    - `on_retry`: is told of every retry.
    - `stop`: an event that ends a wait at once, with CancelledError.
    - `describe`: an error in one line, for events and notes; replace it where messages may hold secrets.
    - `operation`: what events and notes call the call; by default the function's qualified name.
    """

    attempts: int | None = 4
    backoff: Backoff = field(default_factory=exponential)
    deadline: float | Deadline | None = None
    retry_on: RetryOn = PASSING
    retry_after: Callable[[Exception], float | None] | None = None
    budget: Budget | None = None
    on_retry: Sink | None = None
    stop: Stop | None = None
    describe: Callable[[BaseException], str] = describe
    operation: str | None = None
    # Derived from the above: seconds, moment, and whether a first attempt must ask before it begins.
    span: float = field(init=False, repr=False, compare=False, default=math.inf)
    until: float = field(init=False, repr=False, compare=False, default=math.inf)
    guarded: bool = field(init=False, repr=False, compare=False, default=False)

    def __post_init__(self) -> None:
        if self.attempts is not None:
            checks.count("attempts", self.attempts)
        elif self.deadline is None and self.stop is None:
            raise ArgumentError(
                "attempts", "None means until the deadline, and there is no deadline (nor a stop)"
            )
        if isinstance(self.deadline, Deadline):
            object.__setattr__(self, "until", self.deadline.expires)
        elif self.deadline is not None:
            object.__setattr__(self, "span", checks.seconds("deadline", self.deadline))
        _check_parts(self)
        asks = self.budget is not None or self.stop is not None or isinstance(self.deadline, Deadline)
        object.__setattr__(self, "guarded", asks)

    def must_ask(self, now: float) -> bool:
        """Whether a first attempt has anything to wait for, or may not be made at all."""
        if self.stop is not None or self.until < now:
            return True
        return self.budget is not None and self.budget.holds_up(now)

    def with_(self, **changes: Any) -> Policy:
        """The same policy with some of its values replaced."""
        return dataclasses.replace(self, **changes)

    def call(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `fn` under this policy."""
        from holdfast.retry.decorator import is_async
        from holdfast.retry.drivers import driven

        if is_async(fn):
            raise ArgumentKindError("fn", f"{name_of(fn)} is asynchronous: await policy.acall(…) of it")
        return driven(self, self.operation or name_of(fn), fn)(*args, **kwargs)

    async def acall(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call and await `fn` under this policy."""
        from holdfast.retry.drivers import adriven

        return await adriven(self, self.operation or name_of(fn), fn)(*args, **kwargs)

    def tries(self, operation: str | None = None) -> Tries:
        """The attempts one by one: `for attempt in policy.tries("read it"):`, inside it `with attempt:`."""
        from holdfast.retry.tries import Tries

        return Tries(self, operation or self.operation or "block")


def name_of(fn: Any) -> str:
    """What a call of `fn` is called in events."""
    while hasattr(fn, "func") and not hasattr(fn, "__qualname__"):  # functools.partial
        fn = fn.func
    module = getattr(fn, "__module__", None)
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    name = name.replace("<locals>.", "")
    return f"{module}.{name}" if module else name


def _check_parts(policy: Policy) -> None:
    if not callable(getattr(policy.backoff, "delay", None)):
        raise ArgumentKindError("backoff", f"must be a backoff such as exponential(), not {policy.backoff!r}")
    _check_retry_on(policy.retry_on)
    if policy.budget is not None and not isinstance(policy.budget, Budget):
        raise ArgumentKindError("budget", f"must be a Budget, not {policy.budget!r}")
    for name in ("retry_after", "on_retry"):
        value = getattr(policy, name)
        if value is not None and not callable(value):
            raise ArgumentKindError(name, f"must be callable, not {value!r}")
    if policy.stop is not None and not callable(getattr(policy.stop, "is_set", None)):
        raise ArgumentKindError("stop", f"must be an event, not {policy.stop!r}")
    if not callable(policy.describe):
        raise ArgumentKindError("describe", f"must be callable, not {policy.describe!r}")


def _check_retry_on(retry_on: Any) -> None:
    types = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    if isinstance(retry_on, tuple) and not retry_on:
        raise ArgumentError("retry_on", "is empty, so nothing would ever be retried; use attempts=1 for that")
    for each in types:
        if isinstance(each, type):
            if not issubclass(each, Exception):
                raise ArgumentKindError(
                    "retry_on",
                    f"{each.__name__} is not an Exception; Ctrl-C and cancellation are never retried",
                )
        elif isinstance(retry_on, tuple) or not callable(each):
            raise ArgumentKindError("retry_on", f"must be exception types or a predicate, not {retry_on!r}")
