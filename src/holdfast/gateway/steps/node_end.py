"""Why a node that is waited for is not there: late, ended, out of space, or refusing to start for good.

Not here: waiting (readiness.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.containers import container_logs
from holdfast.containers.translation import is_disk_full
from holdfast.errors import (
    DiskFullError,
    HoldfastError,
    NodeRefusedError,
    NodeStoppedError,
    WaitTimeoutError,
)
from holdfast.gateway.pressure import short_of_disk
from holdfast.gateway.steps.base import indented

if TYPE_CHECKING:
    from holdfast.containers.containers import ContainerView
    from holdfast.gateway.work import Work

_LOG_LINES = 15
_NEEDS_A_PERSON = 3


class Told(msgspec.Struct, frozen=True):
    """One line of what the node says while it is waited for; the last one has no component."""

    component: str = ""
    state: str = ""
    detail: str = ""


def has_ended(work: Work) -> bool:
    """Whether the container is over, or about to be started anew by the engine."""
    container = work.container()
    return container is not None and container.state in ("restarting", "exited", "dead")


def explained(work: Work, last: Told) -> HoldfastError:
    """Tell a node that is late from one that ended, and one that ended for good from the others."""
    container = work.container()
    log = indented(container_logs(work.engine, work.object, tail=_LOG_LINES) if container else "")
    see = f"See `holdfast logs {work.name}`"
    if container is not None and _is_out_of_space(work, container, last):
        return DiskFullError(f"no space left on the engine's host for the node's data:\n{log}")
    if last.state == "timeout":
        seconds = work.settings.timeouts.node_ready
        return short_of_disk(work) or WaitTimeoutError(
            f"the node was not ready within {seconds:g} s: {last.detail or 'it did not say why'}\n{log}",
            hint=f"Run the same command again to go on waiting. {see}.",
        )
    code = container.exit_code if container else 0
    if code == _NEEDS_A_PERSON:
        return NodeRefusedError(f"the node refuses to start:\n{log}", hint=f"{see}.")
    return NodeStoppedError(
        f"the node stopped while it was starting (exit code {code}):\n{log}",
        hint=f"{see}; the same command goes on from here.",
    )


def _is_out_of_space(work: Work, container: ContainerView, last: Told) -> bool:
    """By what it said in this life alone: an older line may be about a disk that has room again."""
    said = container_logs(work.engine, work.object, tail=_LOG_LINES, since=container.started_second)
    return is_disk_full(said) or is_disk_full(last.detail)
