"""One operation on several sandboxes: concurrent, and a failure of one does not stop the others."""

from __future__ import annotations

import asyncio
import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast.client.base import ImagePush, try_push
from holdfast.errors import ArgumentTypeError, HoldfastError, PermanentError, TemporaryError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from holdfast.client.base import ImagePusher
    from holdfast.retry import Deadline

T = TypeVar("T")

# Below the limit of the gateway's API for one client: 64 open streams.
_MAX_CONCURRENT = 24
# Longer than the time after which a wait reports a state that is often temporary.
_TURN_SECONDS = 10.0
_LAST_CHECK_SECONDS = 2.0
_MAX_LISTED_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOutcome(Generic[T]):
    """What happened to one sandbox: either a result or an error.

    Attributes:
        name: name of the sandbox.
        result: what the method of a single sandbox returns.
        error: why the operation failed.
    """

    name: str
    result: T | None = None
    error: HoldfastError | None = None


@dataclass(frozen=True, slots=True)
class BulkResult(Generic[T]):
    """The outcomes of an operation on several sandboxes, in the order of the names."""

    outcomes: list[BulkOutcome[T]]

    def __iter__(self) -> Iterator[BulkOutcome[T]]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    @property
    def failed(self) -> list[BulkOutcome[T]]:
        """The outcomes with an error."""
        return [outcome for outcome in self.outcomes if outcome.error is not None]

    def raise_for_failures(self) -> None:
        """Raise an error that names the sandboxes whose operation failed, if there are any.

        Raises:
            TemporaryError: at least one failure is temporary; its first error is the cause.
            PermanentError: all failures are permanent.
        """
        failed = self.failed
        if not failed:
            return
        omitted = len(failed) - _MAX_LISTED_NAMES
        names = ", ".join(outcome.name for outcome in failed[:_MAX_LISTED_NAMES])
        temporary = [outcome for outcome in failed if not isinstance(outcome.error, PermanentError)]
        # `retry` and scripts repeat a temporary error: that helps if any of the operations may succeed then.
        raise (TemporaryError if temporary else PermanentError)(
            f"{len(failed)} of {len(self.outcomes)} sandboxes: failed: {names}"
            + (f" and {omitted} more" if omitted > 0 else ""),
            hint=failed[0].error.hint if failed[0].error and not temporary else None,
            cause=(temporary or failed)[0].error,
        )


def share_pushes(push: ImagePusher | None) -> ImagePusher | None:
    """Push each image once for several callers, which all get the result.

    Sandboxes with the same missing image ask for it at the same time. Only the first push changes something,
    but the pods of all of them have to be restarted after it.
    """
    if push is None:
        return None
    lock, results = threading.Lock(), dict[str, ImagePush]()

    def push_once(image: str) -> bool:
        with lock:
            if image not in results:
                results[image] = try_push(push, image)
            is_pushed, error = results[image]
        if error is not None:
            raise error
        return is_pushed

    return push_once


async def wait_for_each(
    names: Iterable[str],
    wait: Callable[[str, float], Awaitable[T]],
    deadline: Deadline,
    on_outcome: Callable[[BulkOutcome[T]], None] | None,
) -> BulkResult[T]:
    """Wait for each name, a limited number of them at a time, which take turns.

    Without turns, sandboxes that never become ready would occupy all places until the deadline, and the
    others would be reported as late although they are ready.

    Args:
        names: names of sandboxes.
        wait: waits for one sandbox for a number of seconds, and raises `WaitTimeoutError` after that.
        deadline: of all waits; a sandbox that had no turn before it is still checked once.
        on_outcome: called with each outcome when it is known.
    """
    unique = list(dict.fromkeys(names))
    turn = _TURN_SECONDS if len(unique) > _MAX_CONCURRENT else math.inf
    seen: set[str] = set()

    async def take_turn(name: str) -> T:
        least = 0.0 if name in seen else _LAST_CHECK_SECONDS
        seen.add(name)
        seconds = min(turn, max(least, deadline.remaining()))
        try:
            return await wait(name, seconds)
        except WaitTimeoutError as error:
            if seconds == turn and deadline.remaining() > 0:
                raise _TurnEndedError from error
            raise

    return await run_for_each(unique, take_turn, on_outcome)


class _TurnEndedError(Exception):
    """The time of one turn is over; the wait continues in a later turn."""


async def run_for_each(
    names: Iterable[str],
    operate: Callable[[str], Awaitable[T]],
    on_outcome: Callable[[BulkOutcome[T]], None] | None,
) -> BulkResult[T]:
    """Run an operation for each name, a limited number of them at a time.

    Args:
        names: names of sandboxes; repeated names count once.
        operate: the operation on one sandbox.
        on_outcome: called with each outcome when it is known.
    """
    if isinstance(names, str):
        raise ArgumentTypeError("names", f"must be a list of names, not {names!r}")
    unique = list(dict.fromkeys(names))
    for name in unique:
        if not isinstance(name, str):
            raise ArgumentTypeError("names", f"must contain names, not {name!r}")
    slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def run(name: str) -> BulkOutcome[T]:
        outcome = None
        while outcome is None:
            # First in, first out: after its turn, an operation queues behind all that wait for one.
            async with slots:
                try:
                    outcome = BulkOutcome(name=name, result=await operate(name))
                except _TurnEndedError:
                    continue
                except HoldfastError as error:
                    outcome = BulkOutcome(name=name, error=error)
        if on_outcome is not None:
            on_outcome(outcome)
        return outcome

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(name)) for name in unique]
    except ExceptionGroup as group_error:
        # An error of the callback, or a defect: callers handle it like that of a single call.
        raise group_error.exceptions[0] from group_error
    return BulkResult([task.result() for task in tasks])
