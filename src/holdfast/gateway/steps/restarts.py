"""Whether the engine brings the container back by itself: yes while the gateway is meant to run.

Not here: starting and stopping it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers.containers import set_restart
from holdfast.engine import Verdict, absent, done
from holdfast.gateway.node_container import MEANT_TO_RUN, STOPPED_ON_PURPOSE
from holdfast.gateway.steps.base import GatewayStep

if TYPE_CHECKING:
    from holdfast.engine import Context


class KeepRunning(GatewayStep):
    """From here on the engine starts the container whenever it finds it ended, whoever ended it."""

    name = "keep-running"
    title = "Restart policy"
    needs = ("ensure-container",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        container = self.work.container()
        if container is not None and container.restart == MEANT_TO_RUN:
            return done("the engine brings it back by itself")
        return absent("the engine would not bring it back by itself")

    def run(self, ctx: Context) -> None:
        set_restart(self.work.engine, self.work.object, MEANT_TO_RUN)
        ctx.note("the engine brings it back by itself")


class LetStop(GatewayStep):
    """Said before the stop: an engine that is restarted afterwards leaves the container stopped."""

    name = "let-stop"
    title = "Restart policy"
    needs = ("check-engine",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        container = self.work.container()
        if container is None:
            return done("there is no container")
        if container.restart == STOPPED_ON_PURPOSE:
            return done("it stays as it is left")
        return absent("the engine would bring it back")

    def run(self, ctx: Context) -> None:
        set_restart(self.work.engine, self.work.object, STOPPED_ON_PURPOSE)
        ctx.note("it stays as it is left")
