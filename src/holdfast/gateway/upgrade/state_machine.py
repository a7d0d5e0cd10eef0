"""The direction of an upgrade: forward, or back when the new version does not become healthy.

A run that was killed resumes in the same direction. The steps are in upgrade_steps.py, their order in
gateway/plan.py.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import msgspec

from holdfast import errors
from holdfast.containers import container_logs, find_image, is_transient
from holdfast.events import RunFailed
from holdfast.gateway.base_steps import LOG_LINES, indent_log
from holdfast.gateway.context import DEFAULT_IMAGE, GatewayContext, UpOptions
from holdfast.gateway.node import EnableRestart, StartContainer
from holdfast.gateway.plan import rollback_steps, up_steps, upgrade_steps
from holdfast.gateway.settings import TimeoutSettings
from holdfast.gateway.upgrade.datastore import UpgradeRecord, is_at_target, read_record
from holdfast.gateway.upgrade.upgrade_steps import no_container_error
from holdfast.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.events import Event
    from holdfast.workflow import RunResult, Step

    Run = Callable[[str, GatewayContext, list[Step]], RunResult]

# The checkpoint scopes of the two plans; that of an upgrade is followed by its image.
UPGRADE_SCOPE, ROLLBACK_SCOPE = "upgrade", "upgrade-rollback"

# A run in which one of these steps had an effect has upgraded the gateway.
UPGRADING_STEPS = frozenset({"put-aside", "finish-upgrade"})

# Steps whose failure can mean that the new version is unhealthy. A failure of any other step, for example a
# missing image to push or a local file that cannot be written, does not cause a rollback.
_HEALTH_GATE_STEPS = frozenset({
    "start-container", "wait-runtime", "wait-node-registered", "wait-node-ready", "wait-api-ready",
    "wait-rollout", "wait-healthy", "run-probe",
})  # fmt: skip

# After these errors another command may own the gateway, or it cannot be reached: nothing is changed.
_UNREACHABLE_ERRORS = (
    errors.LockedError, errors.LockLostError, errors.ContainerEngineUnreachableError,
    errors.ContainerEnginePermissionError, errors.HostUnreachableError, errors.HostAccessError,
)  # fmt: skip

# Errors that the old version would cause too: they never cause a rollback.
_UNRELATED_ERRORS = (
    *_UNREACHABLE_ERRORS, errors.OperationCancelledError, errors.StoreError, errors.PortInUseError,
    errors.DiskFullError, errors.UsageError, errors.StepError,
)  # fmt: skip

# Errors after which no other plan runs: the old node is started without waiting for it.
_TERMINAL_ERRORS = (errors.OperationCancelledError, errors.StoreError, errors.DiskFullError)

_MAX_REASON_CHARS = 4000


class FailedStepRecorder:
    """An event listener that records which step a run failed in; empty if it was none."""

    def __init__(self) -> None:
        self.name = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunFailed):
            self.name = event.step or ""


def is_upgrade_required(gateway: GatewayContext) -> bool:
    """Whether `up` has to run an upgrade: one is unfinished, or the settings name another image.

    An image that is not on the engine counts as another one: the plan pulls it and compares again.
    """
    if gateway.options.wipe:
        return False
    if gateway.parked_container() is not None:
        return True
    container = gateway.container()
    if container is None:
        return False
    if _is_rolling_back(read_record(gateway)):
        return True
    if gateway.settings.image is None:
        return False
    target = find_image(gateway.engine, gateway.settings.image)
    return target is None or target.id != container.image_id


def _is_rolling_back(record: UpgradeRecord | None) -> bool:
    return record is not None and record.phase == "back"


def refuse_unfinished_upgrade(gateway: GatewayContext) -> None:
    """Refuse to remove containers that an unfinished upgrade needs to complete or to roll back.

    A record in phase `forward` without a parked container is allowed: the data has not been changed yet.
    """
    if gateway.parked_container() is not None or _is_rolling_back(read_record(gateway)):
        raise errors.PermanentError(
            f"gateway {gateway.name}: an unfinished upgrade needs its containers; nothing was changed",
            hint=f"Run `holdfast upgrade {gateway.name}` to finish it, or run "
            f"`holdfast destroy {gateway.name} --data` to remove the gateway with its data.",
        )


def resolve_direction(gateway: GatewayContext) -> tuple[GatewayContext, UpgradeRecord | None]:
    """Decide whether an upgrade goes forward or back.

    Returns:
        The gateway to continue with, and the record of a rollback in progress.

    Raises:
        GatewayNotFoundError: The gateway has no container, for example because the name is mistyped.
        CorruptFileError: There is an old container without a record.
        PermanentError: An upgrade to another image is unfinished.
    """
    old = gateway.parked_container()
    if old is None and gateway.container() is None:
        raise no_container_error(gateway)
    record = read_record(gateway)
    if old is not None and (record is None or record.phase == "rolled-back"):
        new = gateway.object_name
        raise errors.CorruptFileError(
            f"container {old.name}: the volume has no record of its upgrade",
            hint=f"If {new} is healthy, run `docker rm {old.name}`. Otherwise run `docker rm --force {new}` "
            f"and `docker rename {old.name} {new}`.",
        )
    if _is_rolling_back(record):
        return _with_image(gateway, None), record
    target = gateway.settings.image
    if old is not None and record is not None:
        if target is not None and target != record.target:
            raise errors.PermanentError(
                f"gateway {gateway.name}: an upgrade to {record.target} is unfinished",
                hint=f"Run `holdfast upgrade {gateway.name} --image {record.target}` to finish it.",
            )
        target = record.target
    return _with_image(gateway, target or DEFAULT_IMAGE), None


def select_plan(gateway: GatewayContext, rollback: UpgradeRecord | None) -> tuple[str, list[Step]]:
    """The scope and the steps for a direction; those of `up` if the gateway has the target image."""
    if rollback is not None:
        return ROLLBACK_SCOPE, rollback_steps(gateway, rollback)
    if is_at_target(gateway):
        return "up", up_steps(gateway)
    # One scope for each image: the failure of another one says nothing about this upgrade.
    return f"{UPGRADE_SCOPE}:{gateway.spec.image}", upgrade_steps(gateway)


def run_upgrade(
    gateway: GatewayContext, rollback: UpgradeRecord | None, run: Run, failed_step: FailedStepRecorder
) -> tuple[RunResult, UpgradeRecord | None]:
    """Upgrade the gateway, and roll back if the new version does not become healthy.

    Args:
        gateway: The gateway that `resolve_direction` returned.
        rollback: The record of a rollback to resume; None to go forward.
        run: Runs the steps of a plan under a checkpoint scope.
        failed_step: Listens to the events of `run`.

    Returns:
        The result of the run, and the upgrade record.

    Raises:
        UpgradeRolledBackError: The new version was unhealthy; the gateway has its old version.
    """
    if rollback is not None:
        _roll_back(gateway, rollback, run)
    # Read before the run: afterwards a stopped node may have been stopped by the user or by this run.
    was_running = (container := gateway.container()) is not None and container.is_running
    try:
        scope, steps = select_plan(gateway, None)
        result = run(scope, gateway, steps)
    except _UNREACHABLE_ERRORS:
        raise
    except errors.HoldfastError as error:
        # Without a parked container there is nothing to roll back; a node that this run stopped starts again.
        if gateway.parked_container() is None:
            with suppress(
                errors.HoldfastError
            ):  # the first error is reported; `up` reports those of the old node
                _restart_old_container(
                    gateway, run, was_running=was_running, wait=not isinstance(error, _TERMINAL_ERRORS)
                )
            raise
        record = read_record(gateway) if is_health_failure(error, failed_step.name) else None
        if record is None or record.phase != "forward":
            raise
        rollback = msgspec.structs.replace(record, phase="back", reason=_failure_reason(gateway, error))
        _roll_back(_with_image(gateway, None), rollback, run, cause=error)
    return result, read_record(gateway)


def is_health_failure(error: errors.HoldfastError, step: str) -> bool:
    """Whether an error means that the new version is unhealthy, so that the upgrade has to be rolled back."""
    if isinstance(error, errors.NodeStoppedError | errors.NodeConfigurationError):
        return True
    is_connection_lost = isinstance(error, errors.ContainerEngineError) and is_transient(error)
    return step in _HEALTH_GATE_STEPS and not is_connection_lost and not isinstance(error, _UNRELATED_ERRORS)


def _roll_back(
    gateway: GatewayContext, record: UpgradeRecord, run: Run, cause: errors.HoldfastError | None = None
) -> NoReturn:
    """Run the rollback; its success is an `UpgradeRolledBackError` too, because the upgrade failed."""
    try:
        run(ROLLBACK_SCOPE, gateway, rollback_steps(gateway, record))
    # Not wrapped: these errors keep their exit codes, 130 and 4.
    except (errors.OperationCancelledError, errors.LockedError):
        raise
    except errors.HoldfastError as error:
        kind = errors.PermanentError if isinstance(error, errors.PermanentError) else errors.TemporaryError
        raise kind(
            f"gateway {gateway.name}: the upgrade failed, and its rollback is not finished: {error.message}\n"
            f"the upgrade failed because: {record.reason}",
            hint=f"{error.hint} Run `holdfast upgrade {gateway.name}` to continue the rollback.".strip(),
            cause=error,
        ) from error
    raise errors.UpgradeRolledBackError(
        f"gateway {gateway.name}: not healthy with Kubernetes {record.target_kubernetes} ({record.target}); "
        f"rolled back to {record.kubernetes} ({record.image}): {record.reason}",
        hint=f"Workspaces were not rolled back. Writes to the API since {record.taken_at} are lost. "
        "Fix the image and upgrade again, or choose another image.",
        cause=cause,
    )


def _restart_old_container(gateway: GatewayContext, run: Run, *, was_running: bool, wait: bool) -> None:
    """Start the old node again if this upgrade stopped it and its container was not parked yet."""
    container = gateway.container()
    if not was_running or container is None:
        return
    old = _with_image(gateway, None)
    # The policy before the start: after a kill in between, the engine starts the node when it restarts.
    restart = [EnableRestart(old), StartContainer(old)]
    restart[0].needs = ()
    # Under the lock again, because the failed run has released it. Without the store, which may be damaged.
    Workflow("restart", restart).run(lock=old.host.lock(old.name))
    if wait and not container.is_running:
        run("up", old, up_steps(old))


def _with_image(gateway: GatewayContext, image: str | None) -> GatewayContext:
    """The same gateway with this image; None for the image of the old container.

    A timeout shorter than the default is meant for the new version: the old one gets at least the default.
    """
    settings = msgspec.structs.replace(gateway.settings, image=image)
    if image is None:
        node_ready = max(settings.timeouts.node_ready, TimeoutSettings().node_ready)
        timeouts = msgspec.structs.replace(settings.timeouts, node_ready=node_ready)
        settings = msgspec.structs.replace(settings, timeouts=timeouts)
    # A new context: cached values such as `spec` were resolved for the other image.
    resolved = msgspec.structs.replace(gateway.resolved, settings=settings)
    options = UpOptions(remote=gateway.options.remote, use=gateway.options.use)
    return GatewayContext(gateway.name, resolved, options, is_upgrade=True)


def _failure_reason(gateway: GatewayContext, error: errors.HoldfastError) -> str:
    """The error's message with the last lines of the new node's log."""
    text = error.message
    with suppress(errors.HoldfastError):
        if isinstance(error, errors.ContainerEngineError) and "is restarting" in text:
            text = "its node exits repeatedly"
        log = container_logs(gateway.engine, gateway.object_name, tail=LOG_LINES).strip()
        if log and log.splitlines()[-1] not in text:
            text += f"\n{indent_log(log)}"
    return text[-_MAX_REASON_CHARS:]
