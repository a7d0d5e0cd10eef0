"""Is there a container engine, and can it run a node?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.gateway.node_container import check_engine
from holdfast.gateway.steps.base import GatewayStep

if TYPE_CHECKING:
    from holdfast.engine import Context


class CheckEngine(GatewayStep):
    """Only looks: connects to the engine and reads what it allows."""

    name = "check-engine"
    title = "Container engine"
    repeat = "always"

    def run(self, ctx: Context) -> None:
        facts = self.work.engine.facts()
        check_engine(facts)
        ctx.note(f"Docker {facts.version}, cgroup v{facts.cgroup_version}{self._lock_words()}")

    def _lock_words(self) -> str:
        """Whoever shares an engine over the network is told that nobody else is kept out."""
        if self.work.place.locks_for_all:
            return ""
        return "; the lock keeps out commands of this machine only, so run them from one machine at a time"
