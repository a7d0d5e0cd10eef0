"""The two loops: make the call, ask what to do about its failure, sleep, make it again.

Thin on purpose: nothing is decided here. `except Exception` is as wide as it gets: Ctrl-C, SystemExit and
cancellation pass through calls and sleeps alike. No attempt runs inside the `except` block of the one before,
so that errors do not chain up. Both are closures that make a `Call` only when one is needed: a success pays
for one look at the clock and one scope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from holdfast.retry import clock
from holdfast.retry.call import Call
from holdfast.retry.deadline import SCOPE, Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from holdfast.retry.policy import Policy

P = ParamSpec("P")
R = TypeVar("R")


def driven(policy: Policy, operation: str, fn: Callable[P, R]) -> Callable[P, R]:
    """A function that calls `fn` until it succeeds or the policy has had enough."""
    span, until, guarded, stop, budget = policy.span, policy.until, policy.guarded, policy.stop, policy.budget
    enter, leave, around = SCOPE.set, SCOPE.reset, SCOPE.get

    def call_again(*args: P.args, **kwargs: P.kwargs) -> R:
        outer = around()
        scope: Scope = (clock.monotonic(), span, until, outer, [])
        token = enter(scope)
        call = None
        try:
            if outer is not None or (guarded and policy.must_ask(scope[0])):
                call = Call(policy, operation, scope)
                for delay in call.opening():
                    clock.pause(delay, stop)
            while True:
                try:
                    result = fn(*args, **kwargs)
                except Exception as error:
                    call = call or Call(policy, operation, scope)
                    if not call.failed(error):
                        raise
                else:
                    if budget is not None:
                        budget.answered()
                    return result
                for delay in call.waits():
                    clock.pause(delay, stop)
        finally:
            leave(token)

    return call_again


def adriven(
    policy: Policy, operation: str, fn: Callable[P, Awaitable[R]]
) -> Callable[P, Coroutine[Any, Any, R]]:
    """A coroutine function that awaits `fn` until it succeeds or the policy has had enough."""
    span, until, guarded, stop, budget = policy.span, policy.until, policy.guarded, policy.stop, policy.budget
    enter, leave, around = SCOPE.set, SCOPE.reset, SCOPE.get

    async def call_again(*args: P.args, **kwargs: P.kwargs) -> R:
        outer = around()
        scope: Scope = (clock.monotonic(), span, until, outer, [])
        token = enter(scope)
        call = None
        try:
            if outer is not None or (guarded and policy.must_ask(scope[0])):
                call = Call(policy, operation, scope)
                for delay in call.opening():
                    await clock.apause(delay, stop)
            while True:
                try:
                    result = await fn(*args, **kwargs)
                except Exception as error:
                    call = call or Call(policy, operation, scope)
                    if not call.failed(error):
                        raise
                else:
                    if budget is not None:
                        budget.answered()
                    return result
                for delay in call.waits():
                    await clock.apause(delay, stop)
        finally:
            leave(token)

    return call_again
