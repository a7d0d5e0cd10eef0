"""The state of one call under a policy: its failed attempts, the waits before the next one, its cause chain.

Neither calls nor sleeps: both loops of `runner` iterate over `initial_waits()` and `retry_waits()`.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from holdfast.errors import DeadlineExceededError, InvalidArgumentError, OperationCancelledError
from holdfast.retry import clock, retry_decision
from holdfast.retry.backoff import random_fraction
from holdfast.retry.deadline import Scope, current_expiry, record_exhausted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from holdfast.retry.policy import Policy


# Bounds hostile or broken cause chains.
_MAX_DEPTH = 100


def causes(error: BaseException | None, *, exclude: Collection[int] = ()) -> Iterator[BaseException]:
    """Iterate over an error and its causes, depth first, each once.

    Follows `__cause__`, `__context__` unless suppressed, and `reason` if it is an exception (urllib3). Skips
    errors whose `id` is in `exclude`.
    """
    seen: set[int] = set()
    todo = [error]
    while todo and len(seen) < _MAX_DEPTH:
        each = todo.pop()
        if each is None or id(each) in seen or id(each) in exclude:
            continue
        seen.add(id(each))
        yield each
        reason = getattr(each, "reason", None)
        if isinstance(reason, BaseException):
            todo.append(reason)
        if not each.__suppress_context__:
            todo.append(each.__context__)
        todo.append(each.__cause__)


# A call that is retried until a deadline may fail thousands of times; the last failures suffice.
_MAX_LINES = 8
_NOTE_PREFIX = "retry: "


class History:
    """The attempts of one call so far.

    Stores texts, not errors: an error would keep its traceback and all frames of the attempt alive.
    """

    __slots__ = ("_lines", "_remarks", "attempt", "delay", "last_error", "reason", "started", "was_shortened")

    def __init__(self, started: float) -> None:
        self.started = started
        self.attempt = 0
        self.delay = 0.0
        self.reason = ""
        self.was_shortened = False
        self.last_error: Exception | None = None
        """the error of the last attempt, until the next one begins"""
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._remarks: list[str] = []

    def add(self, error: Exception, reason: str, delay: float, *, was_shortened: bool) -> None:
        self.last_error = error
        self.reason = reason
        self.delay = delay
        self.was_shortened = was_shortened
        self._lines.append(f"  attempt {self.attempt}: {reason}; waited {delay:.2f} s")

    def add_remark(self, text: str) -> None:
        if text not in self._remarks:
            self._remarks.append(text)

    def write_note(self, error: BaseException, operation: str, give_up_reason: str, now: float) -> None:
        """Add the history to the error as a note; replaces the note of an earlier call that raised it."""
        if self.attempt <= 1 and not self._lines and not self._remarks:
            return
        times = "1 attempt" if self.attempt == 1 else f"{self.attempt} attempts"
        omitted = self.attempt - 1 - len(self._lines)
        lines = [
            f"{_NOTE_PREFIX}{operation}: gave up after {times} in {now - self.started:.2f} s: {give_up_reason}"  # noqa: E501
        ]
        if omitted > 0:
            lines.append(f"  ({omitted} earlier attempts left out)")
        lines += [*self._lines, *(f"  {remark}" for remark in self._remarks)]
        notes = getattr(error, "__notes__", None)
        if isinstance(notes, list):
            own = f"{_NOTE_PREFIX}{operation}: "
            notes[:] = [note for note in notes if not (isinstance(note, str) and note.startswith(own))]
        error.add_note("\n".join(lines))


# Shorter waits for the budget are not reported.
_MIN_REPORTED_WAIT = 1.0
_BLOCK_JITTER = 0.1
_MAX_BLOCKED_WAIT = retry_decision.MAX_RETRY_AFTER * (1 + _BLOCK_JITTER)
_NOT_RETRYABLE = "not retryable"


class CallState:
    """One call, from its first attempt to its result or its last error."""

    __slots__ = ("_attempt_started", "_exhausted", "_history", "_outer", "expires", "operation", "policy")

    def __init__(self, policy: Policy, operation: str, scope: Scope) -> None:
        self.policy = policy
        self.operation = operation
        self.expires = current_expiry(scope)
        self._attempt_started, _, _, self._outer, self._exhausted = scope
        self._history: History | None = None

    def _get_history(self) -> History:
        history = self._history
        if history is None:
            history = self._history = History(self._attempt_started)
        return history

    def initial_waits(self) -> Iterator[float]:
        """The waits before the first attempt: none, unless the shared budget reports failures."""
        stop, budget = self.policy.stop, self.policy.budget
        if self.expires <= self._attempt_started:
            raise DeadlineExceededError(f"{self.operation}: not started: no time left")
        if stop is not None and stop.is_set():
            raise OperationCancelledError(f"{self.operation}: stopped before the first attempt")
        if budget is not None:
            yield from self._budget_waits(take=budget.is_failing)
        self._attempt_started = clock.monotonic()

    def record_success(self) -> None:
        """Report to the budget that the endpoint works."""
        if self.policy.budget is not None:
            self.policy.budget.record_success()

    def handle_failure(self, error: Exception) -> bool:
        """Return whether the call is retried; `retry_waits` then yields the waits."""
        policy = self.policy
        now = clock.monotonic()
        history = self._get_history()
        history.attempt += 1
        retryable = self._is_retryable(error)
        if not retryable:
            # Only retryable failures count as an outage: a rejected call must not make other callers wait.
            # With None, the predicate does not know whether the endpoint works.
            if retryable is not None:
                self.record_success()
            self._give_up(error, _NOT_RETRYABLE, now)
            return False
        if policy.budget is not None:
            policy.budget.record_failure()
        attempts = clock.effective_attempts(policy.attempts)
        # Nested policies must not multiply their attempts. A policy without a number of attempts continues
        # until its deadline.
        if attempts is not None and self._is_exhausted(error):
            self._give_up(error, "an inner policy has exhausted the attempts", now)
            return False
        left = self.expires - now
        retry_after = self._retry_after(error, now)
        duration = now - self._attempt_started
        failure = retry_decision.FailedAttempt(
            history.attempt, duration, left, history.delay, retry_after, history.was_shortened
        )
        decision = retry_decision.decide_retry(attempts, policy.backoff, failure, random_fraction)
        if decision.give_up_reason is not None:
            self._give_up(error, decision.give_up_reason, now)
            return False
        reason = _describe_error(policy, error)
        history.add(error, reason, decision.delay, was_shortened=decision.was_shortened)
        self._notify(decision.delay, history.reason)
        return True

    def retry_waits(self) -> Iterator[float]:
        """The waits until the next attempt; raises the last error if the time does not suffice."""
        history = self._get_history()
        if history.delay > 0:
            yield history.delay
        yield from self._budget_waits(take=True)
        # Both refer to errors of the previous attempt. Kept, they would keep its frames alive, and could end
        # the call wrongly.
        history.last_error = None
        self._exhausted.clear()
        self._attempt_started = clock.monotonic()

    def _budget_waits(self, *, take: bool) -> Iterator[float]:
        """The waits for the shared budget: while it is blocked, and for a token."""
        self._check_stop_and_deadline()
        budget = self.policy.budget
        if budget is None:
            return
        max_token_wait = math.inf if self.policy.attempts is None else budget.max_wait
        # One Retry-After may exceed the maximum wait for a token; repeated ones must not block forever.
        blocked_limit = clock.monotonic() + _MAX_BLOCKED_WAIT + max_token_wait
        while True:
            now = clock.monotonic()
            longest = min(self.expires - now, max_token_wait)
            blocked = budget.blocked_for(now)
            if blocked > 0:
                # Jitter: blocked callers must not resume simultaneously.
                wait: float | None = blocked + blocked * _BLOCK_JITTER * random_fraction()
                longest = min(self.expires, blocked_limit) - now
            elif take:
                # Reserve one token only. After that wait, the loop waits only for a later Retry-After.
                wait, take = budget.reserve(now, max_wait=longest), False
            else:
                return
            if wait is None or wait >= longest:
                self._raise_last_error("the shared retry budget is exhausted")
            elif wait > 0:
                if wait >= _MIN_REPORTED_WAIT:
                    self._notify(wait, "waits for the shared retry budget: the endpoint is failing")
                yield wait
                # The sleep returns early if `stop` is set.
                self._check_stop_and_deadline()

    def _check_stop_and_deadline(self) -> None:
        """Raise if `stop` is set or the deadline has passed."""
        stop = self.policy.stop
        if stop is not None and stop.is_set():
            last = self._take_last_error()
            raise OperationCancelledError(f"{self.operation}: stopped while waiting", cause=last)
        if clock.monotonic() >= self.expires:
            self._raise_last_error("no time left")

    def _raise_last_error(self, reason: str) -> None:
        """Raise the last error, or DeadlineExceededError before the first attempt."""
        error = self._take_last_error()
        if error is None:
            raise DeadlineExceededError(f"{self.operation}: not started: {reason}")
        self._give_up(error, reason, clock.monotonic())
        try:
            raise error
        finally:
            del error  # breaks the reference cycle of error, traceback and frame

    def _take_last_error(self) -> Exception | None:
        """Return the error of the last attempt and drop the reference to it."""
        history = self._history
        if history is None:
            return None
        error, history.last_error = history.last_error, None
        return error

    def _is_retryable(self, error: Exception) -> bool | None:
        try:
            return self.policy.is_retryable(error)
        except Exception as broken:
            raise InvalidArgumentError(
                "retry_on", f"the predicate raised {type(broken).__name__} for {type(error).__name__}"
            ) from broken

    def _retry_after(self, error: Exception, now: float) -> float | None:
        find, budget = self.policy.retry_after, self.policy.budget
        if find is None:
            return None
        try:
            seconds = find(error)
        except Exception as broken:
            raise InvalidArgumentError(
                "retry_after", f"raised {type(broken).__name__} for {type(error).__name__}"
            ) from broken
        if seconds is None or not retry_decision.MIN_RETRY_AFTER <= seconds < math.inf:
            return None
        seconds = min(seconds, retry_decision.MAX_RETRY_AFTER)
        if budget is not None:
            budget.block_until(now + seconds)
        return seconds

    def _is_exhausted(self, error: Exception) -> bool:
        return bool(self._exhausted) and any(each is one for each in causes(error) for one in self._exhausted)

    def _give_up(self, error: Exception, reason: str, now: float) -> None:
        history = self._get_history()
        history.write_note(error, self.operation, reason, now)
        self._exhausted.clear()
        if reason != _NOT_RETRYABLE:
            # The enclosing policy finds the error in its own scope, even as the cause of another error.
            record_exhausted(self._outer, error)

    def _notify(self, delay: float, reason: str) -> None:
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
            attempts=self.policy.attempts,
        )
        try:
            sink(event)
        except Exception as broken:  # noqa: BLE001 - a listener must not break the call
            if history is not None:
                history.add_remark(f"on_retry raised {type(broken).__name__}")


def _describe_error(policy: Policy, error: Exception) -> str:
    """Describe an error with the policy's function, or by its type if that fails."""
    try:
        return policy.describe(error)
    except Exception as broken:  # noqa: BLE001 - a user's function
        return f"{type(error).__name__} (describe raised {type(broken).__name__})"
