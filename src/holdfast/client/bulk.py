"""One operation on several sandboxes: concurrent, and a failure of one does not stop the others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast.errors import ArgumentTypeError, HoldfastError, PermanentError, TemporaryError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

T = TypeVar("T")

# Below the limit of the gateway's API for one client: 64 open streams.
_MAX_CONCURRENT = 24
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
        async with slots:
            try:
                outcome = BulkOutcome(name=name, result=await operate(name))
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
