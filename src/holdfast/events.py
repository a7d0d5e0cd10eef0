"""Events of commands and workflows as frozen values, and the bus that delivers them.

All output is an event first: the terminal, `--json`, stores and traces are subscribers of an `EventBus`.
Events name objects and never contain their contents, so they contain no secrets.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Base class of all events; `at` is the time in seconds since the epoch."""

    at: float = msgspec.field(default_factory=time.time)


class RetryScheduled(Event, frozen=True, kw_only=True, tag="retry.scheduled"):
    """A call failed with a transient error and will be retried after `delay` seconds.

    `attempt` is the number of failed attempts, and `attempts` their limit, if there is one.
    """

    operation: str
    attempt: int
    delay: float
    reason: str
    time_left: float | None = None
    attempts: int | None = None


class RunStarted(Event, frozen=True, kw_only=True, tag="run.started"):
    """A command has started to work on a subject: a gateway or a user's workflow."""

    run: str
    command: str
    subject: str
    steps: tuple[str, ...] = ()


class RunFinished(Event, frozen=True, kw_only=True, tag="run.finished"):
    """All steps of a run have finished."""

    run: str
    seconds: float
    changed: int


class RunFailed(Event, frozen=True, kw_only=True, tag="run.failed"):
    """A run has failed; finished steps stay finished. `recorded` is false if no history lists it."""

    run: str
    seconds: float
    step: str | None
    code: str
    error: str
    hint: str = ""
    recorded: bool = True


class StepStarted(Event, frozen=True, kw_only=True, tag="step.started"):
    """A step has started."""

    step: str
    title: str


class StepProgress(Event, frozen=True, kw_only=True, tag="step.progress"):
    """Progress of a running step; `fraction` is between 0 and 1, or None if unknown."""

    step: str
    message: str
    fraction: float | None = None


class StepSkipped(Event, frozen=True, kw_only=True, tag="step.skipped"):
    """A step was skipped because its effect exists already; `reason` says why."""

    step: str
    title: str
    reason: str
    seconds: float = 0.0


class StepFinished(Event, frozen=True, kw_only=True, tag="step.finished"):
    """A step has finished; `note` summarizes its effect. A step that only reads has `changed` false."""

    step: str
    title: str
    seconds: float
    note: str = ""
    changed: bool = True


class StepFailed(Event, frozen=True, kw_only=True, tag="step.failed"):
    """A step has failed."""

    step: str
    title: str
    seconds: float
    code: str
    error: str


class StoreDamaged(Event, frozen=True, kw_only=True, tag="store.damaged"):
    """A damaged store was renamed to `backup_path`; the run continues without the records in `lost`."""

    path: str
    backup_path: str
    reason: str
    lost: tuple[str, ...] = ()


Subscriber: TypeAlias = Callable[[Event], None]


class EventBus:
    """Delivers every event to every subscriber, in the order of subscription.

    Threads may emit concurrently: an event is delivered to all subscribers before the next one. A subscriber
    that raises is removed, and its error is added to `subscriber_errors`: it must not fail the emitting step.
    """

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = list(subscribers)
        # Reentrant: a subscriber may emit or subscribe.
        self._lock = threading.RLock()
        self.subscriber_errors: list[Exception] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """Deliver later events to `subscriber` as well."""
        # A new list: `emit` may be iterating over the current one.
        with self._lock:
            self._subscribers = [*self._subscribers, subscriber]

    def emit(self, event: Event) -> None:
        """Deliver an event; never raises an error of a subscriber."""
        # Held during delivery, so that subscribers need no locks and all see the events in one order.
        with self._lock:
            for subscriber in self._subscribers:
                try:
                    subscriber(event)
                except Exception as error:  # noqa: BLE001 - the reported effect has already happened
                    self._unsubscribe(subscriber, error)

    def _unsubscribe(self, subscriber: Subscriber, error: Exception) -> None:
        self._subscribers = [each for each in self._subscribers if each is not subscriber]
        self.subscriber_errors.append(error)
        if not isinstance(error, OSError):  # such as a closed pipe, which is not a defect
            # With `python -W error` the warning is raised, and would fail the step that emitted the event.
            with suppress(Warning):
                warnings.warn(
                    f"event subscriber removed because it raised {error!r}", RuntimeWarning, stacklevel=3
                )
