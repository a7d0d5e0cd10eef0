"""State that the steps of one run share, and the context that each step receives."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import OperationCancelledError, StepResultError, WorkflowError
from holdfast.events import EventBus, RetryScheduled, StepProgress
from holdfast.workflow.secrets import Secret, SecretRedactor
from holdfast.workflow.store import NULL_RESULT

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.retry import Policy
    from holdfast.workflow.graph import Graph
    from holdfast.workflow.lock import Lock
    from holdfast.workflow.step import ProbeResult, Step

_MISSING: Any = object()
_decode = msgspec.json.Decoder().decode


class ResultNotAvailableError(Exception):
    """A preview needs a result that only a run can produce; never leaves this package."""


class RunContext:
    """State that the steps of one run share."""

    def __init__(self, graph: Graph, params: Any, bus: EventBus, lock: Lock, run_id: str) -> None:
        self.graph = graph
        self.params = params
        self.bus = bus
        self.lock = lock
        self.run_id = run_id
        self.shared: dict[str, Any] = {}
        self.results: dict[str, msgspec.Raw] = {}
        # Produces the result of a skipped step for a reader, or raises; None in a preview.
        self.produce_result: Callable[[str, str], None] | None = None
        self.redactor = SecretRedactor(self.results)
        self.stop = threading.Event()
        # The run is ending: no further step starts.
        self.is_ending = False
        self.is_preview = False
        self.is_silent = False

    def read_result(self, name: str, reader: str) -> msgspec.Raw:
        """Return the encoded result of a step for a reader; produce it if it is not known."""
        if name not in self.graph.ancestors(reader):
            raise WorkflowError(
                f"step {reader!r} reads the result of {name!r}, which it does not need",
                hint=f"Add {name!r} to the `needs` of {reader!r}.",
            )
        raw = self.results.get(name)
        if raw is None:
            if self.produce_result is None:
                raise ResultNotAvailableError(name)
            # Synchronously: the reader may already have caused its effect and must not be restarted.
            self.produce_result(name, reader)
            raw = self.results[name]
        return raw


class StepContext:
    """What a step knows about its run.

    Attributes:
        step: the step itself.
        probe_result: the latest result of the probe; None if the step has none.
        in_flight: whether an earlier run died or failed in this step.
        attempt: number of the current attempt of `run`, from 1; 0 before the first.
    """

    __slots__ = (
        "_run_context",
        "attempt",
        "in_flight",
        "note_text",
        "previous_raw",
        "probe_result",
        "reads",
        "retries",
        "step",
    )  # fmt: skip

    def __init__(self, run_context: RunContext, step: Step) -> None:
        self._run_context = run_context
        self.step = step
        self.probe_result: ProbeResult | None = None
        self.in_flight = False
        self.previous_raw = NULL_RESULT
        self.attempt = 0
        self.reads: set[str] = set()
        self.retries: list[str] = []
        self.note_text = ""

    @property
    def params(self) -> Any:
        """The parameters of the run."""
        return self._run_context.params

    @property
    def shared(self) -> dict[str, Any]:
        """Memory that all steps share for the duration of the run."""
        return self._run_context.shared

    @property
    def run_id(self) -> str:
        return self._run_context.run_id

    @property
    def previous_result(self) -> Any:
        """What the step returned when it was last done."""
        return _decode(self.previous_raw)

    @property
    def is_preview(self) -> bool:
        """Whether this is a preview, in which nothing may be changed."""
        return self._run_context.is_preview

    def result(self, name: str, default: Any = _MISSING, *, track: bool = True) -> Any:
        """Return a copy of what an earlier step returned; that step must be a direct or indirect need.

        Args:
            name: the earlier step.
            default: the value to return if that step returned nothing.
            track: run this step again when that result changes.
        """
        raw = self._run_context.read_result(name, self.step.name)
        if track:
            self.reads.add(name)
        value = _decode(raw)
        if value is None:
            if default is _MISSING:
                raise StepResultError(
                    f"step {self.step.name!r} reads the result of {name!r}, which returned nothing",
                    hint=f"Return a value from {name!r}, or pass a default to `ctx.result`.",
                )
            return default
        return value

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Report progress; `fraction` is between 0 and 1, if known."""
        text = self._run_context.redactor.redact(message)
        self._run_context.bus.emit(StepProgress(step=self.step.name, message=text, fraction=fraction))

    def note(self, text: str) -> None:
        """Describe the effect in a few words for the summary line; by default it shows the reason to run."""
        self.note_text = text

    def secret(self, ref: str, value: str | bytes) -> Secret:
        """Register a secret: from now on, its value is kept out of results, events and logs."""
        secret = Secret(ref, value)
        self._run_context.redactor.add(secret)
        return secret

    def check_lock(self) -> None:
        """Raise `LockLostError` unless the run still holds its lock; long effects should call this."""
        self._run_context.lock.check()

    def check_stop(self) -> None:
        """Raise `OperationCancelledError` if the run is stopping; call it at safe points of a long effect."""
        if self._run_context.stop.is_set():
            raise OperationCancelledError(f"stopped in {self.step.name!r}")

    @property
    def stop(self) -> threading.Event:
        """Set when the run is stopping; pass it to functions that wait."""
        return self._run_context.stop

    def retry(self, policy: Policy) -> Policy:
        """Return the policy with its retries reported as events and its waits ended by Ctrl-C."""
        redactor, describe = self._run_context.redactor, policy.describe
        return policy.replace(
            stop=policy.stop or self._run_context.stop,
            on_retry=self._retry_listener(policy.on_retry),
            operation=policy.operation or self.step.name,
            describe=lambda error: redactor.redact(describe(error)),
        )

    def _retry_listener(
        self, listener: Callable[[RetryScheduled], None] | None
    ) -> Callable[[RetryScheduled], None]:
        def report(event: RetryScheduled) -> None:
            self.retries.append(event.reason)
            self._run_context.bus.emit(event)
            if listener is not None:
                listener(event)

        return report
