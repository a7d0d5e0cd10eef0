"""The events of one sandbox, over as many streams as it takes, until it is where it is wanted.

The first event of each stream is the state now, so that a stream that was cut is simply opened again, by
policy and within the wait's own deadline. Not here: what the states mean (waiting.py).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.errors import (
    DeadlineError,
    HoldfastError,
    SandboxMissingError,
    WaitFailedError,
    WaitTimeoutError,
)
from holdfast.retry import Deadline, Policy, exponential
from holdfast.sandbox.sdk.connection import decoded
from holdfast.sandbox.sdk.problems import AnswerLostError, ServerTroubleError, asked_wait, may_be_sent_again
from holdfast.sandbox.sdk.waiting import DOUBT_SECONDS, EventReader, judge
from holdfast.sandbox.wire import Event, Phase, Problem, SandboxView

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from holdfast.sandbox.sdk.connection import Connection
    from holdfast.sandbox.sdk.waiting import Judgement


async def views(connection: Connection, name: str) -> AsyncGenerator[SandboxView, None]:
    """The sandbox now, and after each change; ends when it is deleted."""
    async with connection.stream("GET", f"/v1/sandboxes/{name}/events") as response:
        reader = EventReader()
        async for chunk in response.content.iter_any():
            for event in reader.feed(chunk):
                if event.name == Event.FAILED:
                    problem = decoded(event.data, Problem)
                    raise ServerTroubleError(problem.message, hint=problem.hint or None)
                if event.name in (Event.STATE, Event.DELETED):
                    yield decoded(event.data, SandboxView)
                if event.name == Event.DELETED:
                    return
    raise AnswerLostError(f"the events of sandbox {name} have ended")


async def until(
    connection: Connection,
    name: str,
    wanted: Phase,
    *,
    within: float,
    steady: float = 0.0,
    told: Callable[[SandboxView], None] | None = None,
) -> SandboxView:
    """Wait until a sandbox is in a phase; a state from which it cannot get there ends the wait at once.

    With `steady` it must stay there for so many seconds: a program that ends at once is ready for a moment.
    """
    last: list[SandboxView] = []

    async def follow() -> SandboxView:
        return await _follow(connection, name, wanted, steady=steady, told=told, last=last)

    policy = Policy(
        attempts=None,
        deadline=Deadline.after(within),
        backoff=exponential(0.2, cap=5.0),
        retry_on=may_be_sent_again,
        retry_after=asked_wait,
        on_retry=connection.on_retry,
        operation=f"wait for sandbox {name}",
    )
    try:
        async with asyncio.timeout(within):
            return await policy.acall(follow)
    except (TimeoutError, DeadlineError) as error:
        seen = judge(last[-1], wanted).seen if last else "its state is not known"
        raise WaitTimeoutError(
            f"sandbox {name} was not {wanted} within {within:g} s: {seen}",
            hint=f"Wait on with `holdfast sandbox wait {name}`; see `holdfast sandbox get {name}`.",
            cause=error,
        ) from error


async def until_gone(connection: Connection, name: str, *, within: float) -> None:
    """Wait until a sandbox is no more."""

    async def follow() -> None:
        try:
            async for _ in views(connection, name):
                pass
        except SandboxMissingError:
            return

    policy = Policy(
        attempts=None,
        deadline=Deadline.after(within),
        retry_on=may_be_sent_again,
        retry_after=asked_wait,
        on_retry=connection.on_retry,
        operation=f"wait until sandbox {name} is gone",
    )
    try:
        async with asyncio.timeout(within):
            await policy.acall(follow)
    except (TimeoutError, DeadlineError) as error:
        raise WaitTimeoutError(
            f"sandbox {name} was not gone within {within:g} s",
            hint="Its deletion goes on by itself.",
            cause=error,
        ) from error


async def _follow(
    connection: Connection,
    name: str,
    wanted: Phase,
    *,
    steady: float,
    told: Callable[[SandboxView], None] | None,
    last: list[SandboxView],
) -> SandboxView:
    stream = views(connection, name)
    patience = _Patience(steady)
    try:
        while True:
            try:
                async with asyncio.timeout_at(patience.ends):
                    view = await anext(stream)
            except TimeoutError:
                if patience.ends is None:
                    raise
                if patience.is_for_good:
                    return last[-1]
                raise _failed(name, wanted, last[-1]) from None
            except StopAsyncIteration:
                raise SandboxMissingError(f"sandbox {name} was deleted while it was waited for") from None
            last[:] = [view]
            if told is not None:
                told(view)
            judgement = judge(view, wanted)
            if judgement.done and not steady:
                return view
            if judgement.hopeless:
                raise _failed(name, wanted, view)
            patience.see(judgement)
    finally:
        await stream.aclose()


class _Patience:
    """Until when a state must have changed: a good one by then is good, a doubtful one is not."""

    def __init__(self, steady: float) -> None:
        self._seconds = {"done": steady, "doubtful": DOUBT_SECONDS}
        self._state = ""
        self.ends: float | None = None

    @property
    def is_for_good(self) -> bool:
        return self._state == "done"

    def see(self, judgement: Judgement) -> None:
        state = "done" if judgement.done else "doubtful" if judgement.doubtful else ""
        if state == self._state:  # one that only changes its words is still the same
            return
        self._state = state
        now = asyncio.get_running_loop().time()
        self.ends = now + self._seconds[state] if state else None


def _failed(name: str, wanted: Phase, view: SandboxView) -> HoldfastError:
    return WaitFailedError(
        f"sandbox {name} does not become {wanted}: {judge(view, wanted).seen}",
        hint=_HINTS.get(view.reason, "")
        or _PHASE_HINTS.get(view.phase, "")
        or f"See `holdfast sandbox get {name}` and `holdfast sandbox logs {name}`.",
    )


_IMAGE = (
    "See that the image's name is right and that the gateway can pull it; a local image is put there by "
    "`holdfast image push`."
)
_HINTS = {
    "ErrImagePull": _IMAGE,
    "ImagePullBackOff": _IMAGE,
    "InvalidImageName": _IMAGE,
    "ErrImageNeverPull": _IMAGE,
    "WarmPoolNotFound": "Make a pool for that template first, or create the sandbox from an image.",
    "TemplateNotFound": "Make that template first, or create the sandbox from an image.",
    "EnvVarsInjectionRejected": "Leave them out, or have its template allow them (envVarsInjectionPolicy).",
    "InvalidMetadata": "Delete it and choose other labels.",
    "VolumeClaimTemplatesError": "Leave them out, or have its template allow them.",
    "AdoptionConflict": "Choose another name, or delete the sandbox that has it.",
    "SandboxMissing": "Its sandbox has ended and was deleted. Delete it and create it again.",
}
_PHASE_HINTS = {Phase.SUSPENDED: "Wake it up: `holdfast sandbox resume`."}
