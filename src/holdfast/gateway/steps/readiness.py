"""Waiting until the node is ready: the node tells of every change, nobody asks in a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.commands import RunningCommand
from holdfast.containers.containers import container_logs
from holdfast.errors import NodeStoppedError, WaitTimeoutError
from holdfast.gateway.steps.base import GatewayStep

if TYPE_CHECKING:
    from holdfast.engine import Context

_LOG_LINES = 15


class WaitNodeReady(GatewayStep):
    """Only looks: until API, node, DNS and storage are ready, or the container ends, or time is up."""

    name = "wait-node-ready"
    title = "Node ready"
    needs = ("start-container",)
    repeat = "always"

    def run(self, ctx: Context) -> None:
        seconds = self.work.asked.ready_timeout
        command = RunningCommand(
            self.work.engine,
            self.work.object,
            [*self.work.profile.wait_command, "--timeout", f"{seconds:g}s"],
        )
        last = ""
        for line in command.lines():
            last = line
            told = _told(line)
            if told:
                ctx.progress(told)
        if command.exit_code() == 0:
            ctx.note("API, node, DNS and storage")
            return
        self._explain(last, seconds)

    def _explain(self, last: str, seconds: float) -> None:
        container = self.work.container()
        log = container_logs(self.work.engine, self.work.object, tail=_LOG_LINES) if container else ""
        if container is None or container.state != "running" or not last:
            code = container.exit_code if container else "unknown"
            raise NodeStoppedError(
                f"the node stopped while it was starting (exit code {code}):\n{_indented(log)}",
                hint=f"See `holdfast logs {self.work.name}`; the same command goes on from here.",
            )
        raise WaitTimeoutError(
            f"the node was not ready within {seconds:g} s ({_missing(last)}):\n{_indented(log)}",
            hint=f"Run the same command again to go on waiting; see `holdfast logs {self.work.name}`.",
        )


def _told(line: str) -> str:
    try:
        told = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.MsgspecError:
        return ""
    component = told.get("component")
    return f"{component} {told.get('state')}" if component else ""


def _missing(line: str) -> str:
    try:
        told = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.MsgspecError:
        return line.strip() or "nothing was heard from it"
    missing = told.get("missing")
    return f"missing: {', '.join(map(str, missing))}" if isinstance(missing, list) else line.strip()


def _indented(log: str) -> str:
    return "\n".join(f"    {line}" for line in log.strip().splitlines()) or "    (it printed nothing)"
