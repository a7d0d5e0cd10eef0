"""The gateway commands, shared by the CLI, the SDK and the controller.

Each command builds its plan, runs it with the gateway's store and lock, and returns a plain value. A
command on a remote host restarts from its checkpoints after its connection was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast import home
from holdfast.errors import (
    ConnectionLostError,
    ContainerEngineError,
    ContainerEngineUnreachableError,
    ContainerEngineUnsupportedError,
    GatewayNotFoundError,
    HoldfastError,
    LockLostError,
    OperationCancelledError,
    PortInUseError,
)
from holdfast.events import EventBus, StepFinished, StepSkipped
from holdfast.gateway.base_steps import ENGINE_CALL_POLICY, with_engine_restart_wait
from holdfast.gateway.cluster import kubeconfig
from holdfast.gateway.connection import refresh_kubeconfig
from holdfast.gateway.context import CONTAINER_SETTINGS, GatewayContext, UpOptions
from holdfast.gateway.image_push import check_gateway_running
from holdfast.gateway.node import StartContainer
from holdfast.gateway.plan import destroy_steps, push_steps, stop_steps, up_steps
from holdfast.gateway.plan_summary import GatewayPlan, summarize_plan
from holdfast.gateway.reconnect import as_connection_cut, run_with_reconnect
from holdfast.gateway.registry import check_recorded, has_local_files
from holdfast.gateway.status import GatewayStatus, get_status
from holdfast.gateway.teardown import REPLACE_OLD
from holdfast.gateway.tunnel import recorded_host
from holdfast.gateway.upgrade import state_machine
from holdfast.retry import TRANSIENT, Policy, exponential
from holdfast.workflow import SQLiteStore, Workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.events import Event
    from holdfast.gateway.settings import ResolvedSettings
    from holdfast.workflow import RunResult, Step

T = TypeVar("T")


class GatewayResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a command; `changed` names the steps that had an effect in its last run."""

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
    notes: tuple[str, ...] = ()
    """Sentences that the user should know."""


def up(
    name: str, bus: EventBus, *, resolved: ResolvedSettings | None = None, options: UpOptions | None = None
) -> GatewayResult:
    """Create, resume or repair a gateway; upgrades it if the settings name another image."""
    requested, ended_steps = options or UpOptions(), set[str]()
    flag = " --wipe" if requested.wipe else " --recreate" if requested.recreate else ""

    def record_step(event: Event) -> None:
        if isinstance(event, StepFinished | StepSkipped):
            ended_steps.add(event.step)

    def create_context() -> GatewayContext:
        # Once per command: when it reconnects, another user may have brought the gateway up meanwhile.
        is_replaced = REPLACE_OLD in ended_steps
        return GatewayContext(name, resolved, requested.without_replacement() if is_replaced else requested)

    def run(gateway: GatewayContext, bus: EventBus) -> GatewayResult:
        return _run_up(f"up{flag}", gateway, EventBus(bus.emit, record_step))

    return run_with_reconnect(create_context, run, bus)


def plan_up(
    name: str, *, resolved: ResolvedSettings | None = None, options: UpOptions | None = None
) -> GatewayPlan:
    """Preview `up`."""
    gateway = GatewayContext(name, resolved, options)
    if _engine_call(gateway, state_machine.is_upgrade_required):
        return plan_upgrade(name, resolved=resolved, options=options)
    return _plan_workflow("up", gateway, up_steps(gateway))


def start(name: str, bus: EventBus) -> GatewayResult:
    """Start an existing gateway with the plan of `up`.

    Raises:
        GatewayNotFoundError: There is no such gateway; a mistyped name must not create one.
    """
    return run_with_reconnect(
        lambda: GatewayContext(name), lambda gateway, bus: _run_up("start", gateway, bus), bus
    )


def upgrade(
    name: str, bus: EventBus, *, resolved: ResolvedSettings | None = None, options: UpOptions | None = None
) -> GatewayResult:
    """Upgrade a gateway to another node image; roll back if it does not become healthy.

    Raises:
        GatewayNotFoundError: The gateway has no container.
        ImageIncompatibleError: The new version cannot use the data of the old one; nothing was changed.
        UpgradeRolledBackError: The new version was unhealthy; the gateway has its old version.
        PermanentError: An upgrade to another image is unfinished.
        LockedError: Another command uses the gateway.
    """
    return run_with_reconnect(
        lambda: GatewayContext(name, resolved, options),
        lambda gateway, bus: _run_upgrade(gateway, bus, command="upgrade"),
        bus,
    )


def plan_upgrade(
    name: str, *, resolved: ResolvedSettings | None = None, options: UpOptions | None = None
) -> GatewayPlan:
    """Preview `upgrade`."""
    gateway, rollback = _engine_call(GatewayContext(name, resolved, options), state_machine.resolve_direction)
    scope, steps = state_machine.select_plan(gateway, rollback)
    return _plan_workflow(scope, gateway, steps)


def _plan_workflow(scope: str, gateway: GatewayContext, steps: Iterable[Step]) -> GatewayPlan:
    plan = Workflow(scope, steps).plan(store=SQLiteStore(gateway.files.state))
    return _engine_call(gateway, lambda gateway: summarize_plan(gateway, plan))


def push(name: str, references: Sequence[str], bus: EventBus) -> GatewayResult:
    """Push local images into a running gateway; `pushed` names those that the node did not have.

    Raises:
        GatewayNotFoundError, NodeStoppedError: The gateway does not exist or does not run.
        ImageNotFoundError, ImageIncompatibleError: The node cannot get or use an image; nothing was sent.
        LockedError: Another command uses the gateway.
    """

    def run(gateway: GatewayContext, bus: EventBus) -> GatewayResult:
        check_gateway_running(gateway)
        run_result = _run_workflow("push", gateway, push_steps(gateway, references), bus)
        pushed = (run_result.result("push-images") or ()) if "push-images" in run_result.changed else ()
        return GatewayResult(name=name, run=run_result.run, changed=run_result.changed, pushed=tuple(pushed))

    return run_with_reconnect(lambda: GatewayContext(name), run, bus)


def stop(name: str, bus: EventBus) -> GatewayResult:
    """Stop a gateway; its data stays.

    Raises:
        GatewayNotFoundError: The gateway has no container.
        PermanentError: It has only the old container of an unfinished upgrade.
    """

    def run(gateway: GatewayContext, bus: EventBus) -> GatewayResult:
        _check_exists(gateway)
        run_result = _run_workflow("stop", gateway, stop_steps(gateway), bus)
        return GatewayResult(name=name, run=run_result.run, changed=run_result.changed)

    return run_with_reconnect(lambda: GatewayContext(name), run, bus)


def restart(name: str, bus: EventBus) -> GatewayResult:
    """Stop a gateway and start it again."""
    stop(name, bus)
    return start(name, bus)


def exists(name: str) -> bool:
    """Whether a gateway has anything that `destroy` removes: on this machine, or on its container engine."""
    # The record of the host is removed last, so a killed `destroy` may have left nothing else.
    if has_local_files(name) or recorded_host(name) is not None:
        return True
    gateway = GatewayContext(name)
    finders = (
        GatewayContext.container,
        GatewayContext.parked_container,
        GatewayContext.network,
        GatewayContext.volume,
    )
    return any(_engine_call(gateway, find) is not None for find in finders)


def destroy(name: str, *, with_data: bool, bus: EventBus) -> GatewayResult:
    """Remove a gateway; its data only if `with_data`.

    Raises:
        PermanentError: An unfinished upgrade needs the containers; only with the data can they be removed.
        LockedError: Another command uses the gateway.
    """

    def run(gateway: GatewayContext, bus: EventBus) -> GatewayResult:
        # Without its data, a gateway needs no rollback: `--data` also removes the containers of an upgrade.
        if not with_data:
            _engine_call(gateway, state_machine.refuse_unfinished_upgrade)
        run_result = _run_workflow("destroy", gateway, destroy_steps(gateway, with_data=with_data), bus)
        return GatewayResult(name=name, run=run_result.run, changed=run_result.changed)

    return run_with_reconnect(lambda: GatewayContext(name), run, bus)


def status(name: str) -> GatewayStatus:
    """Return the current state of a gateway, after fetching credentials that its node has renewed."""
    gateway = GatewayContext(name)
    _engine_call(gateway, refresh_kubeconfig)
    return _engine_call(gateway, get_status)


def _engine_call(gateway: GatewayContext, call: Callable[[GatewayContext], T]) -> T:
    """Call the container engine outside of a run, with the retries of a step."""
    policy = ENGINE_CALL_POLICY.replace(attempts=gateway.settings.attempts.engine_call)
    return with_engine_restart_wait(policy, gateway).call(call, gateway)


def _check_exists(gateway: GatewayContext) -> None:
    if _engine_call(gateway, GatewayContext.container) is None:
        _engine_call(gateway, state_machine.refuse_unfinished_upgrade)
        if _engine_call(gateway, GatewayContext.volume) is None:
            check_recorded(gateway.name)
        hint = f"Run `holdfast up {gateway.name}`."
        raise GatewayNotFoundError(f"gateway {gateway.name}: no container", hint=hint)


def _is_retryable(error: Exception) -> bool:
    """Whether a probe may succeed next time; never after the lock was lost."""
    # The engine has answered before the first probe, so it restarts.
    is_transient = isinstance(error, (*TRANSIENT, ContainerEngineUnreachableError))
    return is_transient and not isinstance(error, LockLostError)


def _run_upgrade(requested: GatewayContext, bus: EventBus, *, command: str) -> GatewayResult:
    # Only the event RunFailed names the failed step; the error of the run does not.
    failed_step = state_machine.FailedStepRecorder()
    recording_bus = EventBus(bus.emit, failed_step)
    gateway, rollback = _engine_call(requested, state_machine.resolve_direction)
    run_result, record = state_machine.run_upgrade(
        gateway,
        rollback,
        lambda scope, gateway, steps: _run_workflow(command, gateway, steps, recording_bus, scope=scope),
        failed_step,
    )
    result = msgspec.structs.replace(_up_result(gateway, run_result), image=gateway.spec.image)
    if record is None or state_machine.UPGRADING_STEPS.isdisjoint(run_result.changed):
        return result
    old, new = record.kubernetes, record.target_kubernetes
    return msgspec.structs.replace(result, upgraded_from=old, upgraded_to=new, snapshot=record.id)


def _run_workflow(
    command: str, gateway: GatewayContext, steps: Iterable[Step], bus: EventBus, *, scope: str = ""
) -> RunResult:
    """Run a plan under the gateway's lock.

    `scope` selects the checkpoints. `start` and `up` share theirs, so that each continues what the other
    began.
    """
    # The history of commands is private: other users of this machine cannot read it.
    home.ensure_private_dir(gateway.files.state.parent)
    scope = scope or command
    probe_policy = Policy(
        attempts=None,
        deadline=gateway.settings.timeouts.look,
        backoff=exponential(0.2, cap=5.0),
        retry_on=_is_retryable,
    )
    forget = scope in ("stop", "destroy") or scope.startswith(state_machine.UPGRADE_SCOPE)
    workflow = Workflow(scope, steps, forget_on_success=forget, probe_policy=probe_policy)
    lock = gateway.host.lock(gateway.name)
    try:
        return workflow.run(
            store=SQLiteStore(gateway.files.state),
            lock=lock,
            bus=bus,
            command=command,
            subject=gateway.name,
            parameters=gateway.parameters(),
            stop=gateway.stop,
        )
    except HoldfastError as error:
        # Only now: a remote lock knows after its release whether its session was lost.
        cut = as_connection_cut(error, lock, gateway)
        if cut is None:
            raise
        raise cut from error


def _run_up(command: str, gateway: GatewayContext, bus: EventBus) -> GatewayResult:
    # Read before the run takes the lock. If another command parks the container in between, the step
    # `check-data` refuses to continue.
    if _engine_call(gateway, state_machine.is_upgrade_required):
        return _run_upgrade(gateway, bus, command=command.partition(" ")[0])
    if command == "start":
        _check_exists(gateway)
    failed_step = state_machine.FailedStepRecorder()
    recording_bus = EventBus(bus.emit, failed_step)
    try:
        return _up_result(
            gateway, _run_workflow(command, gateway, up_steps(gateway), recording_bus, scope="up")
        )
    except (PortInUseError, ContainerEngineError, ContainerEngineUnsupportedError) as error:
        # The engine rejects a port, address or GPU only when it starts the container.
        is_rejected = failed_step.name == StartContainer.name
        outcome = _restore_recorded_settings(gateway, bus) if is_rejected else ""
        if not outcome:
            raise
        raise type(error)(f"{error.message}; {outcome}", hint=error.hint, cause=error) from error


def _has_never_started_container(gateway: GatewayContext) -> bool:
    """Whether the container has never started, and the gateway has run with other settings before."""
    container, recorded = gateway.container(), gateway.metadata
    if container is None or recorded is None or gateway.parked_container() is not None:
        return False
    is_changed = any(getattr(recorded, key) != getattr(gateway.spec, key) for key in CONTAINER_SETTINGS)
    return container.never_started and is_changed


def _restore_recorded_settings(gateway: GatewayContext, bus: EventBus) -> str:
    """Bring a gateway up with the settings that worked last.

    Returns:
        The outcome for the error message; empty if there is nothing to restore.
    """
    try:
        if not _engine_call(gateway, _has_never_started_container):
            return ""
    except HoldfastError:
        return ""  # the engine does not answer: the error of the run says so
    recorded = gateway.with_recorded_settings()
    try:
        _run_workflow("up", recorded, up_steps(recorded), bus)
    except (OperationCancelledError, ConnectionLostError, LockLostError):
        raise  # after a lost connection, the whole command is restarted
    except HoldfastError as error:
        return f"the previous settings could not be restored: {error.message}"
    return f"gateway {gateway.name} runs with its previous settings"


def _up_result(gateway: GatewayContext, run_result: RunResult) -> GatewayResult:
    return GatewayResult(
        name=gateway.name,
        run=run_result.run,
        changed=run_result.changed,
        server=_engine_call(gateway, lambda gateway: gateway.api_server_url),
        kubeconfig=str(gateway.files.kubeconfig),
        notes=kubeconfig.merge_notes(gateway.name, gateway.files.kubeconfig),
    )
