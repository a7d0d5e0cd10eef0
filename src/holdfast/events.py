"""What happens, as frozen values: everything that is shown to anybody is an event first.

One `Bus` carries them; the terminal, the JSON stream, stores, traces and pages are its subscribers.
Not here: how an event is drawn, and any secret: events name things and never carry their contents.
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
    """Base of all events: when it happened, in seconds since the epoch."""

    at: float = msgspec.field(default_factory=time.time)


class RetryScheduled(Event, frozen=True, kw_only=True, tag="retry.scheduled"):
    """A call failed in a way that may pass, and will be made again after `delay` seconds."""

    operation: str
    attempt: int
    delay: float
    reason: str
    time_left: float | None = None


class RunStarted(Event, frozen=True, kw_only=True, tag="run.started"):
    """A command has begun its work on a subject (a gateway, a user's workflow)."""

    run: str
    command: str
    subject: str
    steps: tuple[str, ...] = ()


class RunFinished(Event, frozen=True, kw_only=True, tag="run.finished"):
    """All steps of a run are done."""

    run: str
    seconds: float
    changed: int


class RunFailed(Event, frozen=True, kw_only=True, tag="run.failed"):
    """A run ended early; what was done stays done."""

    run: str
    seconds: float
    step: str | None
    code: str
    error: str
    hint: str = ""


class StepStarted(Event, frozen=True, kw_only=True, tag="step.started"):
    """A step is about to have its effect."""

    step: str
    title: str


class StepProgress(Event, frozen=True, kw_only=True, tag="step.progress"):
    """A step is under way: what it is at, and how far where that is known (0 to 1)."""

    step: str
    message: str
    fraction: float | None = None


class StepSkipped(Event, frozen=True, kw_only=True, tag="step.skipped"):
    """A step had nothing to do, and why."""

    step: str
    title: str
    reason: str
    seconds: float = 0.0


class StepFinished(Event, frozen=True, kw_only=True, tag="step.finished"):
    """A step had its effect; `note` says what it was, in a few words."""

    step: str
    title: str
    seconds: float
    note: str = ""


class StepFailed(Event, frozen=True, kw_only=True, tag="step.failed"):
    """A step could not have its effect."""

    step: str
    title: str
    seconds: float
    code: str
    error: str


class StoreDamaged(Event, frozen=True, kw_only=True, tag="store.damaged"):
    """A store could not be believed and was set aside; what was lost is named, the run goes on."""

    path: str
    aside: str
    reason: str
    kept: int
    lost: tuple[str, ...] = ()


Subscriber: TypeAlias = Callable[[Event], None]


class EventBus:
    """Hands every event to every subscriber, in the order of their subscription.

    Safe to emit from several threads: one event is delivered to all before the next begins. Whoever listens
    has no say in what happens: a subscriber that raises hears no more, and its error is kept in `failures`.
    """

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = list(subscribers)
        self._lock = threading.RLock()
        self.subscriber_errors: list[Exception] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        with self._lock:
            self._subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        with self._lock:
            for subscriber in self._subscribers:
                try:
                    subscriber(event)
                except Exception as error:  # noqa: BLE001  whatever it is, the effect it tells of has happened
                    self._unsubscribe(subscriber, error)

    def _unsubscribe(self, subscriber: Subscriber, error: Exception) -> None:
        # A new list: the one at hand is being walked through.
        self._subscribers = [each for each in self._subscribers if each is not subscriber]
        self.subscriber_errors.append(error)
        if not isinstance(error, OSError):  # a reader that hung up is no flaw of anybody's
            with suppress(Warning):
                warnings.warn(
                    f"a subscriber of events failed and hears no more: {error!r}",
                    RuntimeWarning,
                    stacklevel=3,
                )
