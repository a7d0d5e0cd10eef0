"""The common ground of all gateway steps: they share one `Work`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers.translation import is_transient
from holdfast.engine import Step
from holdfast.errors import DiskFullError, NodeRefusedError, NodeStoppedError, WaitTimeoutError
from holdfast.retry import Policy, exponential

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine import Context
    from holdfast.gateway.work import Work


def may_pass(error: Exception) -> bool:
    """Whether a call to the engine may go well the next time; words of a node's log do not count."""
    judged = isinstance(error, DiskFullError | NodeRefusedError | NodeStoppedError | WaitTimeoutError)
    return not judged and is_transient(error)


ENGINE_CALLS = Policy(attempts=4, backoff=exponential(0.2, cap=5), retry_on=may_pass)
"""For calls to the engine: a dropped connection or a registry's bad minute is tried again."""


class GatewayStep(Step):
    """A step on one gateway."""

    policy: Policy | None = ENGINE_CALLS
    attempts = "engine_call"
    """Which of the settings `attempts.*` counts for this step; none where a deadline does."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work
        if self.attempts and self.policy is not None and self.policy.attempts is not None:
            self.policy = self.policy.with_(attempts=getattr(work.settings.attempts, self.attempts))


def going_on(ctx: Context) -> Callable[[str, float | None], None]:
    """Tells of the progress of a long effect, and ends it where it may not go on: by Ctrl-C, or unlocked."""

    def progress(message: str, fraction: float | None) -> None:
        ctx.check_stop()
        ctx.check_lock()
        ctx.progress(message, fraction)

    return progress


def indented(log: str) -> str:
    """Log lines below the sentence that they belong to."""
    return "\n".join(f"    {line}" for line in log.strip().splitlines()) or "    (it printed nothing)"
