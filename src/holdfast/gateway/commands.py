"""The gateway commands for whoever calls them: CLI, SDK and controller run the very same plans.

Each builds its plan, runs it on the engine with the gateway's store and lock, and returns a plain value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast import home
from holdfast.engine import SQLiteStore, Workflow
from holdfast.errors import UnknownGatewayError
from holdfast.gateway.plan import destroy_steps, push_steps, stop_steps, up_steps
from holdfast.gateway.push import check_running
from holdfast.gateway.work import Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.engine import Plan, RunResult, Step
    from holdfast.events import Bus
    from holdfast.gateway.settings import Resolved
    from holdfast.gateway.work import Asked


class GatewayResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a command left behind; `changed` names the steps that had an effect."""

    name: str
    run: str
    changed: tuple[str, ...]
    server: str = ""
    kubeconfig: str = ""
    pushed: tuple[str, ...] = ()


def up(name: str, bus: Bus, *, resolved: Resolved | None = None, asked: Asked | None = None) -> GatewayResult:
    """Create, resume or repair a gateway."""
    work = Work(name, resolved, asked)
    return _ready(work, _run("up", work, up_steps(work), bus))


def plan_up(name: str, *, resolved: Resolved | None = None, asked: Asked | None = None) -> Plan:
    """What `up` would do, and why."""
    work = Work(name, resolved, asked)
    return Workflow("up", up_steps(work)).plan(store=SQLiteStore(work.files.state))


def start(name: str, bus: Bus) -> GatewayResult:
    """Start a gateway that exists; the same plan as `up`, but never a new gateway by a slip of the pen."""
    work = Work(name)
    if work.container() is None:
        raise UnknownGatewayError(
            f"there is no gateway {name} to start", hint=f"Bring it up: holdfast up {name}"
        )
    return _ready(work, _run("start", work, up_steps(work), bus))


def push(name: str, references: Sequence[str], bus: Bus) -> GatewayResult:
    """Put local images into a gateway that runs; `pushed` names those that had to be sent."""
    work = Work(name)
    check_running(work)
    ended = _run("push", work, push_steps(work, references), bus)
    sent = ended.result("push-images") if "push-images" in ended.changed else ()
    return GatewayResult(name=name, run=ended.run, changed=ended.changed, pushed=tuple(sent or ()))


def stop(name: str, bus: Bus) -> GatewayResult:
    """Stop a gateway; what it has stays."""
    work = Work(name)
    if work.container() is None:
        raise UnknownGatewayError(f"there is no gateway {name} to stop", hint="`holdfast list` shows all.")
    ended = _run("stop", work, stop_steps(work), bus)
    return GatewayResult(name=name, run=ended.run, changed=ended.changed)


def restart(name: str, bus: Bus) -> GatewayResult:
    """Stop a gateway and start it again."""
    stop(name, bus)
    return start(name, bus)


def destroy(name: str, *, with_data: bool, bus: Bus) -> GatewayResult:
    """Take a gateway away; its data only when it was named."""
    work = Work(name)
    ended = _run("destroy", work, destroy_steps(work, with_data=with_data), bus)
    return GatewayResult(name=name, run=ended.run, changed=ended.changed)


def _run(command: str, work: Work, steps: Iterable[Step], bus: Bus) -> RunResult:
    home.private_dir(work.files.state.parent)
    workflow = Workflow(command, steps, forget=command in ("stop", "start", "destroy"))
    return workflow.run(
        store=SQLiteStore(work.files.state),
        lock=work.place.lock(work.name),
        bus=bus,
        command=command,
        subject=work.name,
    )


def _ready(work: Work, ended: RunResult) -> GatewayResult:
    return GatewayResult(
        name=work.name,
        run=ended.run,
        changed=ended.changed,
        server=work.server,
        kubeconfig=str(work.files.kubeconfig),
    )
