"""The gateway commands for whoever calls them: CLI, SDK and controller run the very same plans.

Each builds its plan, runs it on the engine with the gateway's store and lock, and returns a plain value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast import home
from holdfast.engine import SQLiteStore, Workflow
from holdfast.errors import HoldfastError, LockLostError, UnknownGatewayError
from holdfast.events import Bus
from holdfast.gateway.observation import GatewayStatus, observe
from holdfast.gateway.plan import destroy_steps, push_steps, stop_steps, up_steps
from holdfast.gateway.push import check_running
from holdfast.gateway.steps.base import ENGINE_CALLS
from holdfast.gateway.steps.kubeconfig import refresh_kubeconfig
from holdfast.gateway.unbroken import cut_short, unbroken
from holdfast.gateway.upgrade import flow
from holdfast.gateway.work import Work
from holdfast.retry import PASSING, Policy, exponential

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.engine import Plan, RunResult, Step
    from holdfast.gateway.settings import Resolved
    from holdfast.gateway.upgrade.record import UpgradeRecord
    from holdfast.gateway.work import Asked


class GatewayResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a command left behind; `changed` names the steps that had an effect in its last run."""

    name: str
    run: str
    changed: tuple[str, ...]
    server: str = ""
    kubeconfig: str = ""
    pushed: tuple[str, ...] = ()
    image: str = ""
    upgraded_from: str = ""
    upgraded_to: str = ""
    snapshot: str = ""


def up(name: str, bus: Bus, *, resolved: Resolved | None = None, asked: Asked | None = None) -> GatewayResult:
    """Create, resume or repair a gateway."""
    return unbroken(lambda: Work(name, resolved, asked), _up, bus)


def _up(work: Work, bus: Bus) -> GatewayResult:
    if _takes_upgrade(work):
        return _upgraded(work, bus, command="up")
    return _ready(work, _run(_words(work), work, up_steps(work), bus, scope="up"))


def plan_up(name: str, *, resolved: Resolved | None = None, asked: Asked | None = None) -> Plan:
    """What `up` would do, and why."""
    work = Work(name, resolved, asked)
    if _takes_upgrade(work):
        return plan_upgrade(name, resolved=resolved, asked=asked)
    return Workflow("up", up_steps(work)).plan(store=SQLiteStore(work.files.state))


def start(name: str, bus: Bus) -> GatewayResult:
    """Start a gateway that exists; the same plan as `up`, but never a new gateway by a slip of the pen."""
    return unbroken(lambda: Work(name), _start, bus)


def _start(work: Work, bus: Bus) -> GatewayResult:
    if _takes_upgrade(work):
        return _upgraded(work, bus, command="start")
    if not _has_container(work):
        raise UnknownGatewayError(
            f"there is no gateway {work.name} to start", hint=f"Bring it up: holdfast up {work.name}"
        )
    return _ready(work, _run("start", work, up_steps(work), bus))


def upgrade(
    name: str, bus: Bus, *, resolved: Resolved | None = None, asked: Asked | None = None
) -> GatewayResult:
    """Bring a gateway to another node image, or back by itself when that does not become healthy."""
    return unbroken(
        lambda: Work(name, resolved, asked),
        lambda work, heard: _upgraded(work, heard, command="upgrade"),
        bus,
    )


def plan_upgrade(name: str, *, resolved: Resolved | None = None, asked: Asked | None = None) -> Plan:
    """What `upgrade` would do, and why."""
    work, back = _direction(Work(name, resolved, asked))
    scope, steps = flow.steps_of(work, back)
    return Workflow(scope, steps, forget=True).plan(store=SQLiteStore(work.files.state))


def push(name: str, references: Sequence[str], bus: Bus) -> GatewayResult:
    """Put local images into a gateway that runs; `pushed` names those that had to be sent."""
    return unbroken(lambda: Work(name), lambda work, heard: _push(work, references, heard), bus)


def _push(work: Work, references: Sequence[str], bus: Bus) -> GatewayResult:
    check_running(work)
    ended = _run("push", work, push_steps(work, references), bus)
    sent = ended.result("push-images") if "push-images" in ended.changed else ()
    return GatewayResult(name=work.name, run=ended.run, changed=ended.changed, pushed=tuple(sent or ()))


def stop(name: str, bus: Bus) -> GatewayResult:
    """Stop a gateway; what it has stays."""
    return unbroken(lambda: Work(name), _stop, bus)


def _stop(work: Work, bus: Bus) -> GatewayResult:
    if not _has_container(work):
        raise UnknownGatewayError(
            f"there is no gateway {work.name} to stop", hint="`holdfast list` shows all."
        )
    ended = _run("stop", work, stop_steps(work), bus)
    return GatewayResult(name=work.name, run=ended.run, changed=ended.changed)


def restart(name: str, bus: Bus) -> GatewayResult:
    """Stop a gateway and start it again."""
    stop(name, bus)
    return start(name, bus)


def destroy(name: str, *, with_data: bool, bus: Bus) -> GatewayResult:
    """Take a gateway away; its data only when it was named."""
    return unbroken(lambda: Work(name), lambda work, heard: _destroy(work, heard, with_data=with_data), bus)


def _destroy(work: Work, bus: Bus, *, with_data: bool) -> GatewayResult:
    if not with_data:
        _calls(work).call(flow.refuse_unfinished, work)
    ended = _run("destroy", work, destroy_steps(work, with_data=with_data), bus)
    return GatewayResult(name=work.name, run=ended.run, changed=ended.changed)


def status(name: str) -> GatewayStatus:
    """How a gateway is right now; credentials that its node renewed are fetched on the way."""
    work = Work(name)
    _calls(work).call(refresh_kubeconfig, work)
    return _calls(work).call(observe, work)


def _words(work: Work) -> str:
    """`up` as its runs are remembered: one that takes the old gateway away is another command."""
    return "up --wipe" if work.asked.wipe else "up --recreate" if work.asked.recreate else "up"


def _has_container(work: Work) -> bool:
    return _calls(work).call(work.container) is not None


def _takes_upgrade(work: Work) -> bool:
    """Never a guess: the way of a plain `up` would be the wrong one in the middle of an upgrade."""
    return _calls(work).call(flow.is_asked_for, work)


def _direction(work: Work) -> tuple[Work, UpgradeRecord | None]:
    return _calls(work).call(flow.direction, work)


def _may_be_told(error: Exception) -> bool:
    """Whether a question may be answered the next time; one that a lost lock forbids never is."""
    return isinstance(error, PASSING) and not isinstance(error, LockLostError)


def _calls(work: Work) -> Policy:
    """How a look at the engine outside of a run is repeated: as those of steps are."""
    return ENGINE_CALLS.with_(attempts=work.settings.attempts.engine_call)


def _upgraded(asked: Work, bus: Bus, *, command: str) -> GatewayResult:
    failed = flow.FailedStep()
    heard = Bus(bus.emit, failed)
    work, back = _direction(asked)
    done = flow.upgrade(
        work, back, lambda scope, work, steps: _run(command, work, steps, heard, scope=scope), failed
    )
    record = done.record if flow.FORWARD_STEPS.intersection(done.ended.changed) else None
    return msgspec.structs.replace(
        _ready(done.work, done.ended),
        image=done.work.spec.image,
        upgraded_from=record.kubernetes if record else "",
        upgraded_to=record.target_kubernetes if record else "",
        snapshot=record.id if record else "",
    )


def _run(command: str, work: Work, steps: Iterable[Step], bus: Bus, *, scope: str | None = None) -> RunResult:
    home.private_dir(work.files.state.parent)
    # `start` walks the same steps as `up`: what either has done, the other goes on from.
    scope = scope or ("up" if command == "start" else command)
    patience = Policy(
        attempts=None,
        deadline=work.settings.timeouts.look,
        backoff=exponential(0.2, cap=5.0),
        retry_on=_may_be_told,
    )
    forget = scope in ("stop", "destroy", flow.FORWARD, flow.BACK)
    workflow = Workflow(scope, steps, forget=forget, patience=patience)
    lock = work.place.lock(work.name)
    try:
        return workflow.run(
            store=SQLiteStore(work.files.state), lock=lock, bus=bus, command=command, subject=work.name
        )
    except HoldfastError as error:
        cut = cut_short(error, lock, work)
        if cut is None:
            raise
        raise cut from error


def _ready(work: Work, ended: RunResult) -> GatewayResult:
    return GatewayResult(
        name=work.name,
        run=ended.run,
        changed=ended.changed,
        server=work.server,
        kubeconfig=str(work.files.kubeconfig),
    )
