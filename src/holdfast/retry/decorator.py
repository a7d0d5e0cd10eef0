"""`@retry(policy)`: a function of the same type that is called under a policy, sync and async alike.

Not here: generators. Calling one runs nothing, so there is nothing to retry, and it is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from holdfast.errors import ArgumentKindError
from holdfast.retry.drivers import adriven, driven
from holdfast.retry.policy import Policy, Sink, name_of

F = TypeVar("F", bound=Callable[..., Any])

# Flags of code objects, as in `inspect`, which is slow to import.
_GENERATOR, _COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200


class Decorator(Protocol):
    """Takes a function and returns one that looks the same to checkers, editors and callers."""

    def __call__(self, fn: F, /) -> F: ...


def retry(
    policy: Policy | None = None, /, *, operation: str | None = None, on_retry: Sink | None = None
) -> Decorator:
    """Call the decorated function under `policy` (by default: four attempts on errors that may pass).

    `operation` names it in events, `on_retry` is told of each retry; both override the policy's.
    """
    if policy is None:
        policy = Policy()
    if not isinstance(policy, Policy):
        raise ArgumentKindError("policy", f"must be a Policy, not {policy!r}; write @retry(Policy(...))")
    chosen = policy if on_retry is None else policy.with_(on_retry=on_retry)

    def decorate(fn: F, /) -> F:
        return _wrap(chosen, operation, fn)

    return decorate


def _wrap(policy: Policy, operation: str | None, fn: F) -> F:
    name = operation or policy.operation or name_of(fn)
    wrapper = adriven(policy, name, fn) if is_async(fn) else driven(policy, name, fn)
    # The same signature, which no checker can follow through a closure.
    return functools.update_wrapper(wrapper, fn)  # type: ignore[return-value]


def is_async(fn: Any) -> bool:
    """Whether calling `fn` gives something to await; refuses what cannot be retried by calling it again."""
    if isinstance(fn, staticmethod | classmethod):
        raise ArgumentKindError("fn", f"put @retry below @{type(fn).__name__}, next to the function")
    if not callable(fn):
        raise ArgumentKindError("fn", f"must be callable, not {fn!r}")
    while isinstance(fn, functools.partial | functools.partialmethod):
        fn = fn.func
    code = getattr(fn, "__code__", None) or getattr(type(fn).__call__, "__code__", None)
    flags = getattr(code, "co_flags", 0)
    if flags & (_GENERATOR | _ASYNC_GENERATOR) and not flags & _ITERABLE_COROUTINE:
        raise ArgumentKindError("fn", "is a generator: calling it runs nothing that could be retried")
    return bool(flags & (_COROUTINE | _ITERABLE_COROUTINE))
