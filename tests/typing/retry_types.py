"""Checked by mypy and pyright, never run: a decorated function is what it was."""

from collections.abc import Callable, Coroutine
from typing import Any, assert_type

from holdfast import Policy, retry
from holdfast.errors import TemporaryError
from holdfast.events import RetryScheduled
from holdfast.retry import Attempt, Budget, Deadline, current_deadline, exponential, retry as same_retry

policy = Policy(
    attempts=4, backoff=exponential(0.2, cap=10), deadline=60.0, retry_on=(OSError, TemporaryError)
)


@retry(policy)
def plain(a: int, *, b: str = "") -> list[int]:
    return [a, len(b)]


@retry(policy)
async def later(a: int) -> bytes:
    return bytes(a)


class Thing:
    @same_retry(policy, operation="method")
    def method(self, a: int) -> str:
        return str(a)


plain_again: Callable[[int], list[int]] = plain
later_again: Callable[[int], Coroutine[Any, Any, bytes]] = later

assert_type(plain(1, b="x"), list[int])
assert_type(Thing().method(1), str)
assert_type(policy.call(plain, 1, b="x"), list[int])
plain("x")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
policy.call(plain, "x")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
Policy(retry_on="OSError")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def use() -> None:
    assert_type(await later(1), bytes)
    assert_type(await policy.acall(later, 1), bytes)
    async for attempt in policy.retry_context("x"):
        assert_type(attempt, Attempt)


for each in policy.retry_context("x"):
    with each:
        assert_type(each.deadline, Deadline)

assert_type(current_deadline(), Deadline | None)


def sink(event: RetryScheduled) -> None: ...


assert_type(policy.replace(on_retry=sink, budget=Budget(10)), Policy)
retry(attempts=3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
