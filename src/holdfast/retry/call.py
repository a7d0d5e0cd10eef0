"""The state of one call under a policy: what has failed so far, and which waits come next.

Asks the clock, the budget and `decision`; tells `on_retry`. It neither calls nor sleeps: the drivers do, and
both walk the same `opening()`, `failed()` and `waits()`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.errors import ArgumentError, CancelledError, DeadlineError
from holdfast.retry import clock, decision
from holdfast.retry.backoff import chance
from holdfast.retry.causes import causes
from holdfast.retry.deadline import Scope, expires, remember_spent
from holdfast.retry.history import History

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.retry.policy import Policy

# A wait for a turn that is shorter than this is not worth a line of its own.
_WORTH_TELLING = 1.0
_SPREAD = 0.1
_LONGEST_CLOSED = decision.LONGEST_ASKED * (1 + _SPREAD)
_FINAL = "it will not pass"


class Call:
    """One call, from its first attempt to its result or its last error."""

    __slots__ = ("_history", "_outer", "_spent", "_tried_at", "expires", "operation", "policy")

    def __init__(self, policy: Policy, operation: str, scope: Scope) -> None:
        self.policy = policy
        self.operation = operation
        self.expires = expires(scope)
        self._tried_at, _, _, self._outer, self._spent = scope
        self._history: History | None = None

    def _troubles(self) -> History:
        history = self._history
        if history is None:
            history = self._history = History(self._tried_at)
        return history

    def opening(self) -> Iterator[float]:
        """The waits before the first attempt: none, unless the shared budget finds the endpoint ailing."""
        stop, budget = self.policy.stop, self.policy.budget
        if self.expires <= self._tried_at:
            raise DeadlineError(f"{self.operation} was not begun: no time left")
        if stop is not None and stop.is_set():
            raise CancelledError(f"{self.operation} was stopped before it was begun")
        if budget is not None:
            yield from self._turns(take=budget.ailing)
        self._tried_at = clock.monotonic()

    def succeeded(self) -> None:
        """Tell the budget, if there is one, that the endpoint is well."""
        if self.policy.budget is not None:
            self.policy.budget.answered()

    def failed(self, error: Exception) -> bool:
        """Whether the call is made again; `waits` then says after how long."""
        policy = self.policy
        now = clock.monotonic()
        history = self._troubles()
        history.attempt += 1
        if not self._may_pass(error):
            self.succeeded()
            self._give_up(error, _FINAL, now)
            return False
        if policy.budget is not None:
            policy.budget.failed()
        attempts = clock.attempts_allowed(policy.attempts)
        if attempts is not None and self._is_spent(error):
            self._give_up(error, "its attempts were spent further in", now)
            return False
        left = self.expires - now
        asked = self._asked(error, now)
        failure = decision.Failure(
            history.attempt, now - self._tried_at, left, history.delay, asked, history.squeezed
        )
        verdict = decision.decide(attempts, policy.backoff, failure, chance)
        if verdict.gave_up is not None:
            self._give_up(error, verdict.gave_up, now)
            return False
        history.add(error, _told(policy, error), verdict.delay, squeezed=verdict.squeezed)
        self._tell(verdict.delay, history.reason)
        return True

    def waits(self) -> Iterator[float]:
        """The waits until the next attempt. Raises the last error if there cannot be one after all."""
        history = self._troubles()
        if history.delay > 0:
            yield history.delay
        yield from self._turns(take=True)
        history.last = None
        self._spent.clear()
        self._tried_at = clock.monotonic()

    def _turns(self, *, take: bool) -> Iterator[float]:
        """The waits for the shared budget: first its gate, then a turn, then a gate that closed meanwhile."""
        self._check()
        budget = self.policy.budget
        if budget is None:
            return
        patience = math.inf if self.policy.attempts is None else budget.max_wait
        # What a server may ask for is waited for, whatever the patience with a queue; a gate that is closed
        # again and again is not.
        gate_until = clock.monotonic() + _LONGEST_CLOSED + patience
        while True:
            now = clock.monotonic()
            longest = min(self.expires - now, patience)
            closed = budget.closed_for(now)
            if closed > 0:
                # Those who wait for the gate come through it one after another, not all at once.
                wait: float | None = closed + closed * _SPREAD * chance()
                longest = min(self.expires, gate_until) - now
            elif take:
                wait, take = budget.take(now, longest=longest), False
            else:
                return
            if wait is None or wait >= longest:
                self._end("no turn from the shared budget in time")
            elif wait > 0:
                if wait >= _WORTH_TELLING:
                    self._tell(wait, "waits for its turn: the endpoint is failing for everybody")
                yield wait
                self._check()

    def _check(self) -> None:
        """End here if somebody said stop, or if the sleep has used up the time."""
        stop = self.policy.stop
        if stop is not None and stop.is_set():
            last = self._forget()
            raise CancelledError(f"{self.operation} was stopped while it waited", cause=last)
        if clock.monotonic() >= self.expires:
            self._end("no time left")

    def _end(self, why: str) -> None:
        """Raise the last error as itself; before the first attempt there is none, and nothing was done."""
        error = self._forget()
        if error is None:
            raise DeadlineError(f"{self.operation} was not begun: {why}")
        self._give_up(error, why, clock.monotonic())
        try:
            raise error
        finally:
            del error  # else the error, its traceback and this frame would keep each other alive

    def _forget(self) -> Exception | None:
        """Hand over the error of the last attempt and keep no hold of it."""
        history = self._history
        if history is None:
            return None
        error, history.last = history.last, None
        return error

    def _may_pass(self, error: Exception) -> bool:
        retry_on = self.policy.retry_on
        if isinstance(retry_on, type | tuple):
            return isinstance(error, retry_on)
        try:
            return bool(retry_on(error))
        except Exception as broken:
            raise ArgumentError(
                "retry_on",
                f"the predicate raised {type(broken).__name__} when asked about {type(error).__name__}",
            ) from broken

    def _asked(self, error: Exception, now: float) -> float | None:
        find, budget = self.policy.retry_after, self.policy.budget
        if find is None:
            return None
        try:
            asked = find(error)
        except Exception as broken:
            raise ArgumentError(
                "retry_after", f"raised {type(broken).__name__} when asked about {type(error).__name__}"
            ) from broken
        if asked is None or not decision.SHORTEST_ASKED <= asked < math.inf:
            return None
        asked = min(asked, decision.LONGEST_ASKED)
        if budget is not None:
            budget.close(now + asked)
        return asked

    def _is_spent(self, error: Exception) -> bool:
        return bool(self._spent) and any(each is one for each in causes(error) for one in self._spent)

    def _give_up(self, error: Exception, why: str, now: float) -> None:
        history = self._troubles()
        history.write_note(error, self.operation, why, now)
        self._spent.clear()
        if why != _FINAL:
            remember_spent(self._outer, error)

    def _tell(self, delay: float, reason: str) -> None:
        sink, history = self.policy.on_retry, self._history
        if sink is None:
            return
        from holdfast.events import RetryScheduled

        left = self.expires - clock.monotonic()
        event = RetryScheduled(
            operation=self.operation,
            attempt=0 if history is None else history.attempt,
            delay=delay,
            reason=reason,
            time_left=None if math.isinf(left) else max(0.0, left),
        )
        try:
            sink(event)
        except Exception as broken:  # noqa: BLE001 - whoever listens must not decide over the call
            if history is not None:
                history.remark(f"on_retry raised {type(broken).__name__}")


def _told(policy: Policy, error: Exception) -> str:
    """The error in the policy's own words; words that cannot be found do not take its place."""
    try:
        return policy.describe(error)
    except Exception as broken:  # noqa: BLE001 - a user's function
        return f"{type(error).__name__} (describe raised {type(broken).__name__})"
