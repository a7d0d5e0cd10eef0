"""What a step sees while it is asked or run, and what all steps of one run share.

Not here: the decisions (`decide`) and the order of things (`runner`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine.record import NOTHING
from holdfast.engine.secret import Secret, Vault
from holdfast.errors import CancelledError, ResultError, WorkflowError
from holdfast.events import Bus, RetryScheduled, StepProgress

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.graph import Graph
    from holdfast.engine.lock import Lock
    from holdfast.engine.step import Step
    from holdfast.engine.verdict import Verdict
    from holdfast.retry import Policy

_MISSING: Any = object()
_decode = msgspec.json.Decoder().decode


class NotYetError(Exception):
    """A preview asked for a result that only a run can bring; never leaves this package."""


class Session:
    """What the steps of one run share."""

    def __init__(self, graph: Graph, params: Any, bus: Bus, lock: Lock, run_id: str) -> None:
        self.graph = graph
        self.params = params
        self.bus = bus
        self.lock = lock
        self.run_id = run_id
        self.shared: dict[str, Any] = {}
        self.results: dict[str, msgspec.Raw] = {}
        self.lookup: Callable[[Session, str], msgspec.Raw] | None = None
        """where results come from that are not of steps of this graph (an undo)"""
        self.produce: Callable[[str, str], None] | None = None
        """has the result of a step that nobody kept, for a reader, or raises; a preview has none"""
        self.vault = Vault(self.results)
        self.stop = threading.Event()
        self.halted = False
        """the run is ending: what has not begun does not begin"""
        self.previewing = False
        self.silent = False

    def result_of(self, name: str, reader: str) -> msgspec.Raw:
        """The stored form of a result, as a step may read it."""
        if self.lookup is not None:
            return self.lookup(self, name)
        if name not in self.graph.ancestors(reader):
            raise WorkflowError(
                f"step {reader!r} reads the result of {name!r}, which need not be done by then",
                hint=f"Put {name!r} into its `needs`.",
            )
        raw = self.results.get(name)
        if raw is None:
            if self.produce is None:
                raise NotYetError(name)
            # In place: the reader may have had its effect by now, and must not be begun a second time.
            self.produce(name, reader)
            raw = self.results[name]
        return raw


class Context:
    """One step's view of the run.

    `params` is what the run was started with; `shared` is memory that lives as long as the run. While `run`
    is at work, `verdict` is what the probe said just before, `in_flight` whether an earlier run died or
    failed in this step, `previous` what it returned the last time it was done, `attempt` the number of this
    attempt.
    """

    __slots__ = (
        "_session", "attempt", "in_flight", "noted", "previous_raw", "reads", "retries", "step", "verdict",
    )  # fmt: skip

    def __init__(self, session: Session, step: Step) -> None:
        self._session = session
        self.step = step
        self.verdict: Verdict | None = None
        self.in_flight = False
        self.previous_raw = NOTHING
        self.attempt = 0
        self.reads: set[str] = set()
        self.retries: list[str] = []
        self.noted = ""

    @property
    def params(self) -> Any:
        return self._session.params

    @property
    def shared(self) -> dict[str, Any]:
        return self._session.shared

    @property
    def run_id(self) -> str:
        return self._session.run_id

    @property
    def previous(self) -> Any:
        return _decode(self.previous_raw)

    @property
    def previewing(self) -> bool:
        """Whether this is a preview: nothing is run, so nothing may be changed."""
        return self._session.previewing

    def result(self, name: str, default: Any = _MISSING) -> Any:
        """What an earlier step returned; it must be among the needs, or theirs. A fresh copy each time."""
        raw = self._session.result_of(name, self.step.name)
        self.reads.add(name)
        value = _decode(raw)
        if value is None:
            if default is _MISSING:
                raise ResultError(
                    f"step {self.step.name!r} reads the result of {name!r}, which returned nothing",
                    hint=f"Return what is needed in {name!r}, or give a default where it is read.",
                )
            return default
        return value

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Say what the step is at, and how far (0 to 1) where that is known."""
        text = self._session.vault.redact(message)
        self._session.bus.emit(StepProgress(step=self.step.name, message=text, fraction=fraction))

    def note(self, words: str) -> None:
        """Say in a few words what the effect was, for the line that stays; else the reason stands there."""
        self.noted = words

    def secret(self, ref: str, value: str | bytes) -> Secret:
        """A secret known by its reference; its value is kept out of results, events and logs from now on."""
        secret = Secret(ref, value)
        self._session.vault.learn(secret)
        return secret

    def check_lock(self) -> None:
        """Raise unless the lock is still ours; asked before each effect, and by long ones in between."""
        self._session.lock.check()

    def check_stop(self) -> None:
        """Raise `CancelledError` if the user asked to stop: for the safe points of a long effect."""
        if self._session.stop.is_set():
            raise CancelledError(f"stopped in {self.step.name!r}")

    @property
    def stop(self) -> threading.Event:
        """Set when the user asked to stop; to be handed to whatever waits."""
        return self._session.stop

    def retry(self, policy: Policy) -> Policy:
        """The same policy, telling of its retries on the bus and ending its waits on Ctrl-C."""
        vault, describe = self._session.vault, policy.describe
        return policy.with_(
            stop=policy.stop or self._session.stop,
            on_retry=self._told(policy.on_retry),
            operation=policy.operation or self.step.name,
            describe=lambda error: vault.redact(describe(error)),
        )

    def _told(self, also: Callable[[RetryScheduled], None] | None) -> Callable[[RetryScheduled], None]:
        def tell(event: RetryScheduled) -> None:
            self.retries.append(event.reason)
            self._session.bus.emit(event)
            if also is not None:
                also(event)

        return tell
