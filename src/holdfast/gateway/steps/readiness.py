"""Waiting until the node is ready: the node tells of every change, nobody asks in a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.commands import RunningCommand
from holdfast.containers.containers import container_logs
from holdfast.containers.translation import is_disk_full
from holdfast.errors import (
    DiskFullError,
    EngineCallError,
    NodeRefusedError,
    NodeStoppedError,
    WaitTimeoutError,
)
from holdfast.gateway.pressure import short_of_disk
from holdfast.gateway.steps.base import GatewayStep

if TYPE_CHECKING:
    from holdfast.containers.containers import ContainerView
    from holdfast.engine import Context

_LOG_LINES = 15
_NEEDS_A_PERSON = 3


class _Wait(GatewayStep):
    """Only looks: until the node says that it has come so far, or the container ends, or time is up."""

    repeat = "always"
    awaited = ""

    def command(self) -> tuple[str, ...]:
        """What tells of it, inside the node."""
        raise NotImplementedError

    def run(self, ctx: Context) -> None:
        seconds = self.work.settings.timeouts.node_ready
        words = [*self.command(), "--timeout", f"{seconds:g}s"]
        try:
            command = RunningCommand(self.work.engine, self.work.object, words)
        except EngineCallError:
            if self._has_ended():
                self._explain(Told(), seconds)
            raise
        last = Told()
        for line in command.lines():
            last = _told(line)
            if last.component:
                ctx.progress(f"{last.component} {last.state}")
        code = command.exit_code()
        if code == 0:
            ctx.note(self.awaited)
            return
        if code is None and last.state != "timeout" and not self._has_ended():
            raise EngineCallError("waiting for the node: connection broken while it was still starting")
        self._explain(last, seconds)

    def _has_ended(self) -> bool:
        """Whether the container is over, or about to be started anew by the engine."""
        container = self.work.container()
        return container is not None and container.state in ("restarting", "exited", "dead")

    def _explain(self, last: Told, seconds: float) -> None:
        """Tell a node that is late from one that ended, and one that ended for good from the others."""
        container = self.work.container()
        log = _indented(
            container_logs(self.work.engine, self.work.object, tail=_LOG_LINES) if container else ""
        )
        see = f"See `holdfast logs {self.work.name}`"
        if container is not None and self._is_out_of_space(container, last):
            raise DiskFullError(f"no space left on the engine's host for the node's data:\n{log}")
        if last.state == "timeout":
            if short := short_of_disk(self.work):
                raise short
            raise WaitTimeoutError(
                f"the node was not ready within {seconds:g} s: {last.detail or 'it did not say why'}\n{log}",
                hint=f"Run the same command again to go on waiting. {see}.",
            )
        code = container.exit_code if container else 0
        if code == _NEEDS_A_PERSON:
            raise NodeRefusedError(f"the node refuses to start:\n{log}", hint=f"{see}.")
        raise NodeStoppedError(
            f"the node stopped while it was starting (exit code {code}):\n{log}",
            hint=f"{see}; the same command goes on from here.",
        )

    def _is_out_of_space(self, container: ContainerView, last: Told) -> bool:
        """By what it said in this life alone: an older line may be about a disk that has room again."""
        said = container_logs(
            self.work.engine, self.work.object, tail=_LOG_LINES, since=container.started_second
        )
        return is_disk_full(said) or is_disk_full(last.detail)


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


class Told(msgspec.Struct, frozen=True):
    """One line of what the node says while it is waited for; the last one has no component."""

    component: str = ""
    state: str = ""
    detail: str = ""


def _told(line: str) -> Told:
    try:
        return msgspec.json.decode(line, type=Told)
    except msgspec.MsgspecError:
        return Told(detail=line.strip())


def _indented(log: str) -> str:
    return "\n".join(f"    {line}" for line in log.strip().splitlines()) or "    (it printed nothing)"
