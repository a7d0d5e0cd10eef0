"""Steps, probe results, and the context that each step receives.

Decorate functions with `Workflow.step`, or subclass `Step` for each kind of step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from holdfast.errors import OperationCancelledError, StepResultError, WorkflowError
from holdfast.events import EventBus, RetryScheduled, StepProgress
from holdfast.workflow.secrets import Secret, SecretRedactor
from holdfast.workflow.store import NULL_RESULT

if TYPE_CHECKING:
    from holdfast.retry import Policy
    from holdfast.workflow.graph import Graph
    from holdfast.workflow.lock import Lock

# Progress messages that the history of a failed step keeps.
MAX_PROGRESS_MESSAGES = 20

_MISSING: Any = object()
_decode = msgspec.json.Decoder().decode


# A value that can be stored; tuples are read back as lists.
JSON: TypeAlias = dict[str, Any] | list[Any] | str | int | float | bool | None


class ProbeResult(msgspec.Struct, frozen=True):
    """What a probe observed; create it with `done`, `absent`, `partial` or `unknown`."""

    state: Literal["done", "absent", "partial", "unknown"]
    reason: str = ""
    result: JSON = None


def done(reason: str = "", *, result: JSON = None) -> ProbeResult:
    """The effect exists completely; `result` is what `run` would have returned, if the probe knows it."""
    return ProbeResult("done", reason, result)


def absent(reason: str = "") -> ProbeResult:
    """The effect does not exist."""
    return ProbeResult("absent", reason)


def partial(reason: str = "") -> ProbeResult:
    """The effect exists in part, or differs from the inputs; `run` repairs it."""
    return ProbeResult("partial", reason)


def unknown(reason: str = "") -> ProbeResult:
    """The state cannot be observed now, for example because a server does not respond."""
    return ProbeResult("unknown", reason)


Repeat: TypeAlias = Literal["safe", "always", "at-least-once"]
REPEAT_VALUES = ("safe", "always", "at-least-once")


class Step:
    """One effect, with a probe that observes whether the effect exists.

    Attributes:
        name: key of the checkpoint.
        title: name for users; `name` by default.
        needs: steps that must be done first.
        reads: like `needs`, for steps whose result this step requires; checked before the workflow starts.
        version: increase it to run the step again after a change of its code.
        repeat: what a second run means for a step without probe. "safe": harmless. "always": read-only, runs
            every time, also in a preview. "at-least-once": may happen twice after a crash.
        policy: how `run` is retried.
        touches: data that the step changes, for users.
        forgets: an earlier step whose checkpoint is deleted in the commit that records this one as done.
    """

    name: str = ""
    title: str = ""
    needs: Sequence[str] = ()
    reads: Sequence[str] = ()
    version: int = 1
    repeat: Repeat | None = None
    policy: Policy | None = None
    touches: Sequence[str] = ()
    forgets: str = ""

    def __init__(  # noqa: PLR0913  one keyword for each attribute and hook
        self,
        name: str | None = None,
        *,
        run: Callable[[StepContext], Any] | None = None,
        probe: Callable[[StepContext], ProbeResult] | None = None,
        inputs: Callable[[StepContext], Mapping[str, Any]] | Mapping[str, Any] | None = None,
        restore: Callable[[StepContext, Any], None] | None = None,
        title: str | None = None,
        needs: Sequence[str] | None = None,
        reads: Sequence[str] | None = None,
        version: int | None = None,
        repeat: Repeat | None = None,
        policy: Policy | None = None,
        touches: Sequence[str] | None = None,
        forgets: str | None = None,
    ) -> None:
        constant_inputs = dict(inputs) if isinstance(inputs, Mapping) else None
        overrides: dict[str, object] = {
            "name": name, "run": run, "probe": probe, "restore": restore, "title": title, "needs": needs,
            "inputs": inputs if constant_inputs is None else lambda _ctx: constant_inputs, "reads": reads,
            "version": version, "repeat": repeat, "policy": policy, "touches": touches,
            "forgets": forgets,
        }  # fmt: skip
        self.__dict__.update({key: value for key, value in overrides.items() if value is not None})

    def inputs(self, ctx: StepContext) -> Mapping[str, Any]:  # noqa: ARG002
        """Return everything the step reads from outside the workflow; values are JSON or `Secret`."""
        return {}

    def probe(self, ctx: StepContext) -> ProbeResult:  # noqa: ARG002
        """Observe whether the effect exists; must not change anything."""
        return unknown("this step has no probe")

    def run(self, ctx: StepContext) -> Any:  # noqa: ARG002
        """Create the effect; return what later steps need (JSON, at most 1 MiB, no secret)."""
        return None

    def restore(self, ctx: StepContext, result: Any) -> None:
        """Restore in memory what later steps use, when this step is skipped.

        `result` is None if it is not known: the probe found the effect and returned no result.
        """

    def __repr__(self) -> str:
        return f"<step {self.name or type(self).__name__}>"


def has_hook(step: Step, hook: str) -> bool:
    """Report whether a step implements a hook (`probe`, `run`, `restore`, ...)."""
    return hook in step.__dict__ or getattr(type(step), hook) is not getattr(Step, hook)


def display_title(step: Step) -> str:
    """Return the name of a step for users."""
    return step.title or step.name


def required_steps(step: Step) -> tuple[str, ...]:
    """Return the steps that must be done first: `needs` and `reads`."""
    return tuple(dict.fromkeys((*step.needs, *step.reads))) if step.reads else tuple(step.needs)


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
        "progress_messages",
        "reads",
        "retries",
        "retry_times",
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
        self.retry_times: list[tuple[float, float]] = []
        self.progress_messages: list[str] = []
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
        """The id of the run."""
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
        if text not in self.progress_messages[-1:]:
            self.progress_messages = [*self.progress_messages[1 - MAX_PROGRESS_MESSAGES :], text]
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
            self.retry_times.append((round(event.at, 3), event.delay))
            self._run_context.bus.emit(event)
            if listener is not None:
                listener(event)

        return report
