"""Watches a sandbox's event stream and waits until the sandbox reaches a phase.

The first event of each stream is the current state, so that an interrupted stream is simply opened again,
within the deadline of the wait.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.api import Phase, Problem, SandboxEventType, SandboxView
from holdfast.client.errors import is_retryable, retry_after_seconds
from holdfast.client.transport import decode_response
from holdfast.errors import (
    DeadlineExceededError,
    GatewayUnavailableError,
    HoldfastError,
    ResponseLostError,
    SandboxNotFoundError,
    UsageError,
    WaitFailedError,
    WaitTimeoutError,
)
from holdfast.retry import Deadline, Policy, exponential

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    from holdfast.client.transport import Transport

T = TypeVar("T")

PERMANENT_REASONS = frozenset(
    {
        "ContainerCannotRun", "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError",
        "EnvVarsInjectionRejected", "ErrImageNeverPull", "FailedCreatePodSandBox", "FailedMount",
        "ImageInspectError", "ImagePullBackOff", "InvalidConfiguration", "InvalidImageName",
        "InvalidMetadata", "MultiplePods", "PodNotOwned", "RunContainerError", "StartError",
        "TemplateNotFound", "VolumeClaimTemplatesError",
        "WarmPoolNotFound",
    }
)  # fmt: skip
"""Reasons of a pending sandbox that need manual action. The server reports an event only if it is final."""

SUSPECT_REASONS = frozenset(
    {
        "AdoptionConflict", "Completed", "ErrImagePull", "Error", "OOMKilled", "ReconcilerError",
        "SandboxMissing", "Unschedulable",
    }
)  # fmt: skip
"""Reasons that are often temporary; a sandbox that keeps one for some seconds has failed.

A program that exited is restarted and may have waited for something. A sandbox that holds the name may be
terminating. A SandboxClaim whose sandbox is missing gets another one.
"""
SUSPECT_GRACE_SECONDS = 5.0

_UNREACHABLE_FROM = {
    Phase.READY: (Phase.FAILED, Phase.FINISHED, Phase.EXPIRED, Phase.DELETING, Phase.SUSPENDED),
    Phase.SUSPENDED: (Phase.FINISHED, Phase.EXPIRED, Phase.DELETING),
    Phase.FINISHED: (Phase.EXPIRED, Phase.DELETING, Phase.SUSPENDED),
}
"""For each phase to wait for, the phases that it is not reached from without manual action."""

# Provisioning a volume may take a while; this does not count as suspect.
_VOLUME_PENDING = "unbound immediate PersistentVolumeClaims"
_IMAGE_PULL_REASONS = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull")
_PERMANENT_PULL_ERRORS = ("not found", "denied", "unauthorized", "manifest unknown", "invalid reference")


class WaitState(Enum):
    """State of a wait: a suspect one fails if it lasts for some seconds."""

    PENDING = "pending"
    REACHED = "reached"
    SUSPECT = "suspect"
    FAILED = "failed"


def evaluate(view: SandboxView, target: Phase) -> WaitState:
    """Determine whether a sandbox has reached a phase, may still reach it, or cannot."""
    if view.phase == target:
        return WaitState.REACHED
    if target == Phase.READY and view.phase == Phase.FAILED and view.failed_pods == "Recreate":
        # The controller recreates the pod with backoff, which exceeds the grace only after many failures.
        return WaitState.SUSPECT
    if view.phase in _UNREACHABLE_FROM.get(target, (Phase.DELETING,)):
        return WaitState.FAILED
    if target != Phase.READY:
        return WaitState.PENDING
    is_permanent = view.reason == "ErrImagePull" and any(
        text in view.message.lower() for text in _PERMANENT_PULL_ERRORS
    )
    if is_permanent or view.reason in PERMANENT_REASONS:
        return WaitState.FAILED
    is_suspect = view.reason in SUSPECT_REASONS and _VOLUME_PENDING not in view.message
    return WaitState.SUSPECT if is_suspect else WaitState.PENDING


def summarize(view: SandboxView) -> str:
    """Describe a sandbox's state in one line."""
    line = view.message.strip().split("\n", 1)[0]
    reason = "" if view.reason in line else view.reason
    details = ": ".join(part for part in (reason, line) if part)
    return f"{view.phase} ({details})" if details else str(view.phase)


class ServerSentEvent(NamedTuple):
    """One server-sent event."""

    name: str
    data: bytes


class EventStreamParser:
    """Incremental parser for a stream of server-sent events."""

    def __init__(self) -> None:
        self._buffer = b""
        self._name = "message"
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Return the events that this chunk completes."""
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if line:
                self._parse_field(line)
                continue
            if self._data:
                yield ServerSentEvent(self._name, b"\n".join(self._data))
            self._name, self._data = "message", []

    def _parse_field(self, line: bytes) -> None:
        key, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if key == b"event":
            self._name = value.decode(errors="replace")
        elif key == b"data":
            self._data.append(value)


async def watch_sandbox(transport: Transport, name: str) -> AsyncGenerator[SandboxView, None]:
    """Iterate over the current state and each change, until the sandbox is deleted.

    Raises:
        ResponseLostError: the stream was interrupted.
        GatewayUnavailableError: the API server ended the stream.
    """
    async with transport.stream("GET", f"/v1/sandboxes/{name}/events") as response:
        reader = EventStreamParser()
        async for chunk in response.content.iter_any():
            for event in reader.feed(chunk):
                if event.name == SandboxEventType.FAILED:
                    problem = decode_response(event.data, Problem)
                    raise GatewayUnavailableError(problem.message, hint=problem.hint or None)
                if event.name in (SandboxEventType.STATE, SandboxEventType.DELETED):
                    yield decode_response(event.data, SandboxView)
                if event.name == SandboxEventType.DELETED:
                    return
    raise ResponseLostError(f"sandbox {name}: the event stream was interrupted")


async def wait_for_phase(
    transport: Transport,
    name: str,
    phase: Phase | str,
    min_ready_seconds: float = 0.0,
    on_change: Callable[[SandboxView], None] | None = None,
    *,
    timeout: float,  # noqa: ASYNC109
    detect_missing_image: bool = False,
    restart_pod: bool = False,
) -> SandboxView:
    """Wait until a sandbox reaches a phase; see `AsyncSandbox.wait`.

    Args:
        transport: connection to the gateway.
        name: name of the sandbox.
        phase: the phase to wait for.
        min_ready_seconds: seconds that the phase must last.
        on_change: called with each new state.
        timeout: seconds to wait, including a restart of the pod.
        detect_missing_image: raise ImageMissingError at the first failed pull.
        restart_pod: replace the pod first: the kubelet waits minutes before it pulls an image again.
    """
    target, deadline = _parse_phase(phase), Deadline.after(timeout)
    last: list[SandboxView] = []
    if restart_pod:
        await transport.call("POST", f"/v1/sandboxes/{name}/suspend", SandboxView)
        await wait_for_phase(transport, name, Phase.SUSPENDED, timeout=deadline.remaining())
        await transport.call("POST", f"/v1/sandboxes/{name}/resume", SandboxView)
    if detect_missing_image and target is Phase.READY:
        on_change = _stop_at_missing_image(on_change, deadline)

    async def follow() -> SandboxView:
        return await _watch_until(
            transport, name, target, min_ready_seconds=min_ready_seconds, on_change=on_change, last=last
        )

    try:
        return await _repeat_until(deadline, transport, f"wait for sandbox {name}", follow)
    except (TimeoutError, DeadlineExceededError) as error:
        summary = summarize(last[-1]) if last else "its state is unknown"
        raise WaitTimeoutError(
            f"sandbox {name}: not {target} within {round(timeout, 1):g} s: {summary}",
            hint=f"Run `holdfast sandbox get {name}` to see its state, or `holdfast sandbox wait {name}` "
            "to keep waiting.",
            cause=error,
        ) from error


class ImageMissingError(Exception):
    """The node cannot pull the sandbox's image, and the client has not tried to push it yet."""

    def __init__(self, image: str, seconds_left: float) -> None:
        super().__init__(f"{image}: the gateway cannot pull this image")
        self.image, self.seconds_left = image, seconds_left


def _stop_at_missing_image(
    on_change: Callable[[SandboxView], None] | None, deadline: Deadline
) -> Callable[[SandboxView], None]:
    """Extend a listener of `wait` so that it raises ImageMissingError at the first failed pull."""

    def check(view: SandboxView) -> None:
        if on_change is not None:
            on_change(view)
        if view.reason in _IMAGE_PULL_REASONS and view.image:
            raise ImageMissingError(view.image, deadline.remaining())

    return check


def _parse_phase(text: Phase | str) -> Phase:
    for phase in Phase:
        if phase.lower() == text.lower():
            return phase
    raise UsageError(f"{text!r}: not a phase of a sandbox", hint=f"Use one of {', '.join(Phase)}.")


async def wait_until_gone(transport: Transport, name: str, *, timeout: float) -> None:  # noqa: ASYNC109
    """Wait until a sandbox no longer exists."""

    async def follow() -> None:
        try:
            async for _ in watch_sandbox(transport, name):
                pass
        except SandboxNotFoundError:
            return

    try:
        await _repeat_until(Deadline.after(timeout), transport, f"wait until sandbox {name} is gone", follow)
    except (TimeoutError, DeadlineExceededError) as error:
        raise WaitTimeoutError(
            f"sandbox {name}: not deleted within {timeout:g} s",
            hint="The deletion continues in the background.",
            cause=error,
        ) from error


async def _repeat_until(
    deadline: Deadline, transport: Transport, operation: str, follow: Callable[[], Awaitable[T]]
) -> T:
    """Run `follow` again after each interruption of its stream."""
    policy = Policy(
        attempts=None,
        deadline=deadline,
        backoff=exponential(0.2, cap=5.0),
        retry_on=is_retryable,
        retry_after=retry_after_seconds,
        on_retry=transport.on_retry,
        operation=operation,
    )
    # The policy's deadline ends the pauses between attempts; the timeout also ends an attempt.
    async with asyncio.timeout(deadline.remaining()):
        return await policy.acall(follow)


async def _watch_until(
    transport: Transport,
    name: str,
    target: Phase,
    *,
    min_ready_seconds: float,
    on_change: Callable[[SandboxView], None] | None,
    last: list[SandboxView],
) -> SandboxView:
    stream = watch_sandbox(transport, name)
    limits = {WaitState.REACHED: min_ready_seconds, WaitState.SUSPECT: SUSPECT_GRACE_SECONDS}
    state, deadline = WaitState.PENDING, None
    try:
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    view = await anext(stream)
            except TimeoutError:
                # The timeout has cancelled `anext`, which ends the generator: every branch leaves the loop.
                if deadline is None:
                    raise
                if state is WaitState.REACHED:
                    return last[-1]
                raise _wait_failed_error(name, target, last[-1]) from None
            except StopAsyncIteration:
                raise _wait_failed_error(name, target, last[-1]) from None
            last[:] = [view]
            if on_change is not None:
                on_change(view)
            previous, state = state, evaluate(view, target)
            if state is WaitState.REACHED and not min_ready_seconds:
                return view
            if state is WaitState.FAILED:
                raise _wait_failed_error(name, target, view)
            # A state with a new message keeps its deadline: else each message would extend the wait.
            if state is not previous:
                limit = limits.get(state)
                deadline = None if limit is None else asyncio.get_running_loop().time() + limit
    finally:
        # Closes the response now, not when the generator is garbage-collected.
        await stream.aclose()


def _wait_failed_error(name: str, target: Phase, view: SandboxView) -> HoldfastError:
    if view.phase == Phase.DELETING:
        return SandboxNotFoundError(f"sandbox {name}: deleted or being deleted")
    return WaitFailedError(
        f"sandbox {name}: cannot become {target}: {summarize(view)}",
        hint=_own_image_hint(view)
        or _HINTS.get(view.reason, "")
        or _PHASE_HINTS.get(view.phase, "").format(name=name)
        or f"Run `holdfast sandbox get {name}` and `holdfast sandbox logs {name}`.",
    )


def _own_image_hint(view: SandboxView) -> str:
    """The hint for an image that `holdfast image build` provides; empty for others."""
    from holdfast.sandbox import from_request

    if view.reason not in _IMAGE_PULL_REASONS or view.image not in from_request.CURRENT_IMAGES:
        return ""
    name = view.image.partition(":")[0].removeprefix("holdfast/")
    return (
        f"Build it with `holdfast image build {name}`, or load an archive of another machine with "
        "`holdfast image load FILE`, then run the same command again."
    )


_IMAGE_HINT = "Check the image's name, and that the gateway can pull it."
_HINTS = {
    "ErrImagePull": _IMAGE_HINT,
    "ImagePullBackOff": _IMAGE_HINT,
    "InvalidImageName": _IMAGE_HINT,
    "ErrImageNeverPull": _IMAGE_HINT,
    "FailedCreatePodSandBox": "Create the sandbox again with more memory, or with another runtime class.",
    "FailedMount": "Create the missing object; the sandbox then starts. Or create the sandbox without it.",
    "WarmPoolNotFound": "Create a warm pool for the template first, or create the sandbox from an image.",
    "TemplateNotFound": "Create the template first, or create the sandbox from an image.",
    "EnvVarsInjectionRejected": "Omit the variables, or set envVarsInjectionPolicy in the template.",
    "InvalidMetadata": "Delete the sandbox and choose other labels.",
    "VolumeClaimTemplatesError": "Omit the volumes, or set volumeClaimTemplatesPolicy in the template.",
    "AdoptionConflict": "Choose another name, or delete the sandbox that has this one.",
    "SandboxMissing": "The sandbox finished and was deleted. Delete it and create it again.",
}
_PHASE_HINTS = {Phase.SUSPENDED: "Run `holdfast sandbox resume {name}`."}
