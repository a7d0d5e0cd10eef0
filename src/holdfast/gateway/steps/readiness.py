"""Waiting until the node is ready: the node tells of every change, nobody asks in a loop.

Its runtime alone is asked until it answers: it comes first, within a second or two, and tells nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.commands import RunningCommand
from holdfast.errors import EngineCallError
from holdfast.gateway import push_node
from holdfast.gateway.steps.base import GatewayStep
from holdfast.gateway.steps.node_end import Told, explained, has_ended
from holdfast.retry import Policy, constant

if TYPE_CHECKING:
    from holdfast.engine import Context


class WaitRuntime(GatewayStep):
    """Only looks: until containerd answers; images can be put in while Kubernetes starts."""

    name = "wait-runtime"
    title = "Runtime"
    needs = ("start-container",)
    repeat = "always"

    def run(self, ctx: Context) -> None:
        seconds = self.work.settings.timeouts.node_ready
        until = Policy(
            attempts=None,
            deadline=seconds,
            backoff=constant(0.1),
            retry_on=push_node.is_waiting,
            stop=ctx.stop,
        )
        try:
            until.call(push_node.ask_runtime, self.work.engine, self.work.object)
        except EngineCallError as error:
            if has_ended(self.work):
                raise explained(self.work, Told()) from error
            if push_node.is_waiting(error):
                raise explained(self.work, Told(state="timeout", detail=error.message)) from error
            raise
        ctx.note("containerd answers")


class _Wait(GatewayStep):
    """Only looks: until the node says that it has come so far, or the container ends, or time is up."""

    repeat = "always"
    awaited = ""

    def command(self) -> tuple[str, ...]:
        """What tells of it, inside the node."""
        raise NotImplementedError

    def run(self, ctx: Context) -> None:
        words = [*self.command(), "--timeout", f"{self.work.settings.timeouts.node_ready:g}s"]
        try:
            command = RunningCommand(self.work.engine, self.work.object, words)
        except EngineCallError as error:
            if has_ended(self.work):
                raise explained(self.work, Told()) from error
            raise
        last = Told()
        for line in command.lines(ctx.stop):
            last = _told(line)
            if last.component:
                ctx.progress(f"{last.component} {last.state}")
        ctx.check_stop()
        code = command.exit_code()
        if code == 0:
            ctx.note(self.awaited)
            return
        if code is None and last.state != "timeout" and not has_ended(self.work):
            raise EngineCallError("waiting for the node: connection broken while it was still starting")
        raise explained(self.work, last)


class WaitNodeRegistered(_Wait):
    """API and node are there: enough to put the cluster right, which DNS and storage may be waiting for."""

    name = "wait-node-registered"
    title = "Node"
    needs = ("start-container",)
    awaited = "API and node"

    def command(self) -> tuple[str, ...]:
        return self.work.profile.registered_command


class WaitNodeReady(_Wait):
    """All that a node needs for work is ready."""

    name = "wait-node-ready"
    title = "Node ready"
    needs = ("repin-volumes",)
    awaited = "API, node, DNS and storage"

    def command(self) -> tuple[str, ...]:
        return self.work.profile.wait_command


def _told(line: str) -> Told:
    try:
        return msgspec.json.decode(line, type=Told)
    except msgspec.MsgspecError:
        return Told(detail=line.strip())
