"""Wait for an event in another thread or process that cannot be awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from holdfast.retry import Policy, constant

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def eventually(observe: Callable[[], T], *, seconds: float = 20.0) -> T:
    """Return the first true result of `observe`; fail if there is none in time."""

    def check() -> T:
        result = observe()
        assert result, f"{result!r} for {seconds:g} s"
        return result

    waiting = Policy(attempts=None, deadline=seconds, backoff=constant(0.01), retry_on=AssertionError)
    return waiting.call(check)
