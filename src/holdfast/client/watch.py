"""Watches a sandbox's event stream and waits until the sandbox reaches a phase.

The first event of each stream is the current state, so that an interrupted stream is simply opened again,
within the deadline of the wait.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from holdfast.api import Phase, PoolView, SandboxEventType, SandboxView
from holdfast.client.base import NO_PUSH
from holdfast.client.errors import is_retryable, name_gateway, retry_after_seconds
from holdfast.client.event_stream import watch_object
from holdfast.errors import (
    DeadlineExceededError,
    HoldfastError,
    ImageNotFoundError,
    SandboxNotFoundError,
    UsageError,
    WaitFailedError,
    WaitTimeoutError,
)
from holdfast.retry import Deadline, Policy, exponential

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    from holdfast.client.base import ImagePush
    from holdfast.client.transport import Transport

T = TypeVar("T")
V = TypeVar("V", SandboxView, PoolView)

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
IMAGE_PULL_REASONS = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull")
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
    return evaluate_reason(view.reason, view.message)


def evaluate_reason(reason: str, message: str) -> WaitState:
    """Determine whether what is pending for this reason may still become ready."""
    is_permanent = reason == "ErrImagePull" and any(
        text in message.lower() for text in _PERMANENT_PULL_ERRORS
    )
    if is_permanent or reason in PERMANENT_REASONS:
        return WaitState.FAILED
    is_suspect = reason in SUSPECT_REASONS and _VOLUME_PENDING not in message
    return WaitState.SUSPECT if is_suspect else WaitState.PENDING


def summarize(view: SandboxView | PoolView) -> str:
    """Describe the state of a sandbox or pool in one line."""
    line = view.message.strip().split("\n", 1)[0]
    reason = "" if view.reason in line else view.reason
    details = ": ".join(part for part in (reason, line) if part)
    return f"{view.phase} ({details})" if details else str(view.phase)


def watch_sandbox(transport: Transport, name: str) -> AsyncGenerator[SandboxView, None]:
    """Iterate over the current state and each change, until the sandbox is deleted.

    Raises:
        ResponseLostError: the stream was interrupted.
        GatewayUnavailableError: the API server ended the stream.
    """
    return watch_object(transport, f"/v1/sandboxes/{name}", SandboxEventType.STATE, SandboxView)


async def wait_for_phase(
    transport: Transport,
    name: str,
    phase: Phase | str,
    min_ready_seconds: float = 0.0,
    on_change: Callable[[SandboxView], None] | None = None,
    *,
    timeout: float,  # noqa: ASYNC109
    detect_missing_image: bool = False,
    push: ImagePush = NO_PUSH,
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
        push: the push of its image. A pushed image replaces the pod first: the kubelet waits minutes before
            it pulls an image again.
    """
    target, deadline = _parse_phase(phase), Deadline.after(timeout)
    last: list[SandboxView] = []
    if push.is_pushed:
        await transport.call("POST", f"/v1/sandboxes/{name}/suspend", SandboxView)
        await wait_for_phase(transport, name, Phase.SUSPENDED, timeout=deadline.remaining())
        await transport.call("POST", f"/v1/sandboxes/{name}/resume", SandboxView)
    if detect_missing_image and target is Phase.READY:
        on_change = stop_at_missing_image(on_change, deadline)

    async def follow() -> SandboxView:
        return await watch_until(
            watch_sandbox(transport, name),
            lambda view: evaluate(view, target),
            lambda view: _wait_failed_error(name, target, view),
            min_ready_seconds=min_ready_seconds,
            on_change=on_change,
            last=last,
        )

    with explained_errors(transport, push):
        try:
            return await repeat_until(deadline, transport, f"wait for sandbox {name}", follow)
        except (TimeoutError, DeadlineExceededError) as error:
            summary = summarize(last[-1]) if last else "its state is unknown"
            raise WaitTimeoutError(
                f"sandbox {name}: not {target} within {round(timeout, 1):g} s: {summary}",
                hint=f"Run `holdfast sandbox get {name}` to see its state, or `holdfast sandbox wait {name}` "
                "to keep waiting.",
                cause=error,
            ) from error


@contextmanager
def explained_errors(transport: Transport, push: ImagePush) -> Iterator[None]:
    """Name the gateway in the hint of an error that the block raises, and a failed push as its cause."""
    try:
        yield
    except HoldfastError as error:
        error.hint = name_gateway(error.hint, transport.gateway)
        if push.error is None or not isinstance(error, WaitFailedError | WaitTimeoutError):
            raise
        # If the container engine does not have the image either, it has to be built: keep that hint.
        is_missing = isinstance(push.error, ImageNotFoundError)
        raise type(error)(
            f"{error.message}; pushing the image failed: {push.error.message}",
            hint=error.hint if is_missing else push.error.hint or error.hint,
        ) from push.error


class ImageMissingError(Exception):
    """The node cannot pull the sandbox's image, and the client has not tried to push it yet."""

    def __init__(self, image: str, seconds_left: float) -> None:
        super().__init__(f"{image}: the gateway cannot pull this image")
        self.image, self.seconds_left = image, seconds_left


def stop_at_missing_image(on_change: Callable[[V], None] | None, deadline: Deadline) -> Callable[[V], None]:
    """Extend a listener of `wait` so that it raises ImageMissingError at the first failed pull."""

    def check(view: V) -> None:
        if on_change is not None:
            on_change(view)
        if view.reason in IMAGE_PULL_REASONS and view.image:
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
        await repeat_until(Deadline.after(timeout), transport, f"wait until sandbox {name} is gone", follow)
    except (TimeoutError, DeadlineExceededError) as error:
        raise WaitTimeoutError(
            f"sandbox {name}: not deleted within {timeout:g} s",
            hint="The deletion continues in the background.",
            cause=error,
        ) from error


async def repeat_until(
    deadline: Deadline, transport: Transport, operation: str, follow: Callable[[], Awaitable[T]]
) -> T:
    """Run `follow` again after each interruption of its stream.

    Raises:
        TimeoutError, DeadlineExceededError: the deadline has passed.
    """
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


async def watch_until(
    stream: AsyncGenerator[V, None],
    evaluate_view: Callable[[V], WaitState],
    failure: Callable[[V], HoldfastError],
    *,
    min_ready_seconds: float = 0.0,
    on_change: Callable[[V], None] | None,
    last: list[V],
) -> V:
    """Follow one stream of states until the wait ends.

    Args:
        stream: the states; closed at the end.
        evaluate_view: what a state means for the wait.
        failure: the error if the state cannot be reached from this one.
        min_ready_seconds: seconds that the reached state must last.
        on_change: called with each state.
        last: receives the last state.
    """
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
                raise failure(last[-1]) from None
            except StopAsyncIteration:
                raise failure(last[-1]) from None
            last[:] = [view]
            if on_change is not None:
                on_change(view)
            previous, state = state, evaluate_view(view)
            if state is WaitState.REACHED and not min_ready_seconds:
                return view
            if state is WaitState.FAILED:
                raise failure(view)
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
        hint=own_image_hint(view)
        or _HINTS.get(view.reason, "")
        or _PHASE_HINTS.get(view.phase, "").format(name=name)
        or f"Run `holdfast sandbox get {name}` and `holdfast sandbox logs {name}`.",
    )


def own_image_hint(view: SandboxView | PoolView) -> str:
    """The hint for an image that `holdfast image build` provides; empty for others."""
    from holdfast.sandbox import from_request

    if view.reason not in IMAGE_PULL_REASONS or view.image not in from_request.CURRENT_IMAGES:
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
    "AdoptionConflict": "Wait for the sandbox again. The gateway looks for another one in the warm pool.",
    "SandboxMissing": "The sandbox finished and was deleted. Delete it and create it again.",
}
_PHASE_HINTS = {Phase.SUSPENDED: "Run `holdfast sandbox resume {name}`."}
