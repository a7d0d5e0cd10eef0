"""The loop form: the attempts of a policy as an iterator of context managers, for blocks of code.

    for attempt in policy.tries("read the token"):
        with attempt:
            token = path.read_text()

The same object serves `async for`. Not here: anything that is decided (`call`, `decision`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from holdfast.errors import UsageError
from holdfast.retry import clock
from holdfast.retry.call import Call
from holdfast.retry.deadline import SCOPE, Deadline, Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextvars import Token
    from types import TracebackType

    from holdfast.retry.policy import Policy


class Attempt:
    """One attempt: the block inside `with attempt:`."""

    __slots__ = ("_call", "_scope", "_token", "again", "number")

    def __init__(self, call: Call, scope: Scope, number: int) -> None:
        self.number = number
        self._scope = scope
        self.again: bool | None = None
        self._call = call
        self._token: Token[Scope | None] | None = None

    @property
    def deadline(self) -> Deadline:
        """When the time for all attempts is over; infinitely far if there is no limit."""
        return Deadline(self._call.expires)

    def __enter__(self) -> Self:
        self._token = SCOPE.set(self._scope)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> bool:
        if self._token is not None:
            SCOPE.reset(self._token)
            self._token = None
        if error is None:
            self._call.succeeded()
            self.again = False
        else:
            self.again = isinstance(error, Exception) and self._call.failed(error)
        return self.again

    def left_off(self) -> bool:
        """Whether the loop is over. Refuses a loop whose body never entered the attempt: it would not end."""
        if self.again is None:
            raise UsageError("the body of the loop must be inside `with attempt:`")
        return not self.again


class Tries:
    """What `policy.tries()` returns: iterate over it once."""

    __slots__ = ("_operation", "_policy")

    def __init__(self, policy: Policy, operation: str) -> None:
        self._policy = policy
        self._operation = operation

    def __iter__(self) -> Iterator[Attempt]:
        scope: Scope = (clock.monotonic(), self._policy.span, self._policy.until, SCOPE.get(), [])
        call = Call(self._policy, self._operation, scope)
        for delay in call.opening():
            clock.pause(delay, self._policy.stop)
        number = 0
        while True:
            number += 1
            attempt = Attempt(call, scope, number)
            yield attempt
            if attempt.left_off():
                return
            for delay in call.waits():
                clock.pause(delay, self._policy.stop)

    async def __aiter__(self) -> AsyncIterator[Attempt]:
        scope: Scope = (clock.monotonic(), self._policy.span, self._policy.until, SCOPE.get(), [])
        call = Call(self._policy, self._operation, scope)
        for delay in call.opening():
            await clock.apause(delay, self._policy.stop)
        number = 0
        while True:
            number += 1
            attempt = Attempt(call, scope, number)
            yield attempt
            if attempt.left_off():
                return
            for delay in call.waits():
                await clock.apause(delay, self._policy.stop)
