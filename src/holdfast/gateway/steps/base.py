"""The common ground of all gateway steps: they share one `Work`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers.translation import is_transient
from holdfast.engine import Step
from holdfast.retry import Policy, exponential

if TYPE_CHECKING:
    from holdfast.gateway.work import Work

ENGINE_CALLS = Policy(attempts=4, backoff=exponential(0.2, cap=5), retry_on=is_transient)
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
