"""The retry loops: for functions (`@retry(policy)`), and for blocks of code (`policy.retry_context()`).

The loops decide nothing (`state`, `retry_decision`). Ctrl-C, SystemExit and cancellation pass through. No
attempt runs inside the `except` block of the previous one, so that errors do not chain. A successful call
costs one clock read and one scope; a `CallState` is created only on failure.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Never, ParamSpec, Protocol, Self, TypeVar

from holdfast.errors import ArgumentTypeError, UsageError
from holdfast.retry import clock
from holdfast.retry.deadline import CURRENT_SCOPE, Deadline, Scope
from holdfast.retry.policy import Policy, RetryListener, operation_name
from holdfast.retry.state import CallState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
    from contextvars import Token
    from types import TracebackType


P = ParamSpec("P")
R = TypeVar("R")


def wrap_sync(policy: Policy, operation: str, fn: Callable[P, R]) -> Callable[P, R]:
    """Wrap `fn` so that it is retried under a policy."""
    # Local variables: each attribute that a successful call reads would cost it time.
    total_timeout, expires, stop, budget = policy.total_timeout, policy.expires, policy.stop, policy.budget
    is_limited = stop is not None or budget is not None or expires < math.inf
    get_scope, set_scope, reset_scope = CURRENT_SCOPE.get, CURRENT_SCOPE.set, CURRENT_SCOPE.reset

    def call_with_retries(*args: P.args, **kwargs: P.kwargs) -> R:
        outer, now = get_scope(), clock.monotonic()
        scope: Scope = (now, total_timeout, expires, outer, [])
        # A context variable: policies and deadlines inside `fn` find the scope at any depth. Other threads
        # and tasks are not affected.
        token = set_scope(scope)
        call = None
        try:
            # Most first attempts need no check. Inside another scope they do: its deadline may have passed.
            if outer or (
                is_limited and (stop is not None or expires < now or (budget and budget.must_wait(now)))
            ):
                call = CallState(policy, operation, scope)
                for delay in call.initial_waits():
                    clock.sleep(delay, stop)
            while True:
                try:
                    result = fn(*args, **kwargs)
                except Exception as error:
                    call = call or CallState(policy, operation, scope)
                    if not call.handle_failure(error):
                        raise
                else:
                    if budget and budget.consecutive_failures:
                        budget.record_success()
                    return result
                for delay in call.retry_waits():
                    clock.sleep(delay, stop)
        finally:
            reset_scope(token)

    return call_with_retries


def wrap_async(
    policy: Policy, operation: str, fn: Callable[P, Awaitable[R]]
) -> Callable[P, Coroutine[Any, Any, R]]:
    """Wrap a coroutine function so that it is retried under a policy."""
    # Local variables: each attribute that a successful call reads would cost it time.
    total_timeout, expires, stop, budget = policy.total_timeout, policy.expires, policy.stop, policy.budget
    is_limited = stop is not None or budget is not None or expires < math.inf
    get_scope, set_scope, reset_scope = CURRENT_SCOPE.get, CURRENT_SCOPE.set, CURRENT_SCOPE.reset

    async def call_with_retries(*args: P.args, **kwargs: P.kwargs) -> R:
        outer, now = get_scope(), clock.monotonic()
        scope: Scope = (now, total_timeout, expires, outer, [])
        token = set_scope(scope)
        call = None
        try:
            if outer or (
                is_limited and (stop is not None or expires < now or (budget and budget.must_wait(now)))
            ):
                call = CallState(policy, operation, scope)
                for delay in call.initial_waits():
                    await clock.asleep(delay, stop)
            while True:
                try:
                    result = await fn(*args, **kwargs)
                except Exception as error:
                    call = call or CallState(policy, operation, scope)
                    if not call.handle_failure(error):
                        raise
                else:
                    if budget and budget.consecutive_failures:
                        budget.record_success()
                    return result
                for delay in call.retry_waits():
                    await clock.asleep(delay, stop)
        finally:
            reset_scope(token)

    return call_with_retries


F = TypeVar("F", bound=Callable[..., Any])

# Code flags as in `inspect`, which is slow to import.
_GENERATOR, _COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200


class RetryDecorator(Protocol):
    """A decorator that preserves the type of the function."""

    def __call__(self, fn: F, /) -> F: ...


def retry(
    policy: Policy | None = None,
    /,
    *,
    operation: str | None = None,
    on_retry: RetryListener | None = None,
    **options: Never,
) -> RetryDecorator:
    """Decorate a function so that it is called under `policy`.

    Args:
        policy: By default four attempts for transient errors.
        operation: The name in events; overrides that of the policy.
        on_retry: Called before each retry; overrides that of the policy.
        **options: None; the error for an option of `Policy` names the correct form.
    """
    for name in options:
        raise ArgumentTypeError(name, f"not an option of retry; write @retry(Policy({name}=...))")
    if policy is None:
        policy = Policy()
    if not isinstance(policy, Policy):
        raise ArgumentTypeError("policy", f"must be a Policy, not {policy!r}; write @retry(Policy(...))")
    chosen = policy if on_retry is None else policy.replace(on_retry=on_retry)

    def decorate(fn: F, /) -> F:
        return _wrap(chosen, operation, fn)

    return decorate


def _wrap(policy: Policy, operation: str | None, fn: F) -> F:
    name = operation or policy.operation or operation_name(fn)
    wrapper = wrap_async(policy, name, fn) if is_async(fn) else wrap_sync(policy, name, fn)
    return functools.update_wrapper(wrapper, fn)  # type: ignore[return-value]


def is_async(fn: Any) -> bool:
    """Whether `fn` is a coroutine function; raises if it cannot be retried."""
    if isinstance(fn, staticmethod | classmethod):
        raise ArgumentTypeError("fn", f"must be a function: put @retry below @{type(fn).__name__}")
    if not callable(fn):
        raise ArgumentTypeError("fn", f"must be callable, not {fn!r}")
    while isinstance(fn, functools.partial | functools.partialmethod):
        fn = fn.func
    code = getattr(fn, "__code__", None) or getattr(type(fn).__call__, "__code__", None)
    flags = getattr(code, "co_flags", 0)
    if flags & (_GENERATOR | _ASYNC_GENERATOR) and not flags & _ITERABLE_COROUTINE:
        raise ArgumentTypeError("fn", "must not be a generator function: a call runs nothing to retry")
    return bool(flags & (_COROUTINE | _ITERABLE_COROUTINE))


class Attempt:
    """One attempt; `with attempt:` runs the block."""

    __slots__ = ("_scope", "_state", "_token", "number", "will_retry")

    def __init__(self, state: CallState, scope: Scope, number: int) -> None:
        self.number = number
        self._scope = scope
        self.will_retry: bool | None = None
        self._state = state
        self._token: Token[Scope | None] | None = None

    @property
    def deadline(self) -> Deadline:
        """The deadline for all attempts; infinite if there is none."""
        return Deadline(self._state.expires)

    def __enter__(self) -> Self:
        # Not in `__iter__`: a generator runs in the context of its caller, so the scope would outlive a
        # `break` out of the loop.
        self._token = CURRENT_SCOPE.set(self._scope)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> bool:
        if self._token is not None:
            CURRENT_SCOPE.reset(self._token)
            self._token = None
        if error is None:
            self._state.record_success()
            self.will_retry = False
        else:
            self.will_retry = isinstance(error, Exception) and self._state.handle_failure(error)
        return self.will_retry

    def is_final(self) -> bool:
        """Whether the loop is over.

        Raises:
            UsageError: The loop body did not enter the attempt; the loop would never end.
        """
        if self.will_retry is None:
            raise UsageError("the loop body must be inside `with attempt:`")
        return not self.will_retry


class RetryContext:
    """The attempts of a policy; iterate over it once."""

    __slots__ = ("_operation", "_policy")

    def __init__(self, policy: Policy, operation: str) -> None:
        self._policy = policy
        self._operation = operation

    def _begin(self) -> tuple[CallState, Scope]:
        policy = self._policy
        scope: Scope = (clock.monotonic(), policy.total_timeout, policy.expires, CURRENT_SCOPE.get(), [])
        return CallState(policy, self._operation, scope), scope

    def __iter__(self) -> Iterator[Attempt]:
        call, scope = self._begin()
        for delay in call.initial_waits():
            clock.sleep(delay, self._policy.stop)
        for number in itertools.count(1):
            attempt = Attempt(call, scope, number)
            yield attempt
            if attempt.is_final():
                return
            for delay in call.retry_waits():
                clock.sleep(delay, self._policy.stop)

    async def __aiter__(self) -> AsyncIterator[Attempt]:
        call, scope = self._begin()
        for delay in call.initial_waits():
            await clock.asleep(delay, self._policy.stop)
        for number in itertools.count(1):
            attempt = Attempt(call, scope, number)
            yield attempt
            if attempt.is_final():
                return
            for delay in call.retry_waits():
                await clock.asleep(delay, self._policy.stop)
