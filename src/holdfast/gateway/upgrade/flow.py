"""Which way an upgrade goes: forward, or back by itself when the new version does not become healthy.

A run that was killed goes on in the direction it had. Not here: the steps, and who calls this (commands.py).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.containers import container_logs, set_restart, start_container
from holdfast.containers.images import find_image
from holdfast.containers.translation import is_transient
from holdfast.errors import (
    CancelledError,
    DamagedFileError,
    DiskFullError,
    EngineCallError,
    EnginePermissionError,
    EngineUnreachableError,
    HoldfastError,
    HostUnreachableError,
    HostUnusableError,
    LockedError,
    LockLostError,
    NodeRefusedError,
    NodeStoppedError,
    PermanentError,
    PortTakenError,
    StepError,
    StoreError,
    TemporaryError,
    UpgradeRolledBackError,
    UsageError,
)
from holdfast.events import RunFailed
from holdfast.gateway.node_container import MEANT_TO_RUN
from holdfast.gateway.plan import rollback_steps, up_steps, upgrade_steps
from holdfast.gateway.settings import Timeouts
from holdfast.gateway.steps.upgrade import nothing_to_upgrade
from holdfast.gateway.upgrade.record import UpgradeRecord, is_settled, read_record
from holdfast.gateway.work import DEFAULT_IMAGE, Asked, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine import RunResult, Step
    from holdfast.events import Event

    Run = Callable[[str, Work, list[Step]], RunResult]

FORWARD, BACK = "upgrade", "upgrade-rollback"
"""The scopes of the two plans in the gateway's store."""

FORWARD_STEPS = frozenset({"put-aside", "finish-upgrade"})
"""A run that had the effect of one of these has upgraded something."""

_GATE = frozenset({
    "start-container", "wait-runtime", "wait-node-registered", "wait-node-ready", "wait-api-ready",
    "wait-rollout", "wait-healthy", "run-probe",
})  # fmt: skip
"""Only a failure of one of these can mean that the new version is not well, or a node that ended by itself.
All others (an image to push that is not there, a file here that cannot be written) say nothing about it."""

_OUT_OF_REACH = (
    LockedError, LockLostError, EngineUnreachableError, EnginePermissionError, HostUnreachableError,
    HostUnusableError,
)  # fmt: skip
"""Errors after which the gateway is not ours to touch, or cannot be touched."""

_SAYS_NOTHING = (
    *_OUT_OF_REACH, CancelledError, StoreError, PortTakenError, DiskFullError, UsageError, StepError,
)  # fmt: skip
"""Errors that say nothing about the new version in any step: the old one would meet them too."""

_ENDS_HERE = (CancelledError, StoreError, DiskFullError)
"""Errors after which no other plan is run: the old node is started, and nobody waits for it."""

_LOG_LINES, _LONGEST_REASON = 15, 4000


class FailedStep:
    """Hears which step a run ended with; nothing where it was none."""

    def __init__(self) -> None:
        self.name = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunFailed):
            self.name = event.step or ""


class Upgraded(msgspec.Struct, frozen=True, kw_only=True):
    """How an upgrade ended: the work on the gateway as it is now, and what it left."""

    work: Work
    ended: RunResult
    record: UpgradeRecord | None


def is_asked_for(work: Work) -> bool:
    """Whether `up` has to take this way: one goes on, or another image than the container's is named.

    An image that cannot be inspected counts as another one: the plan pulls it and looks again.
    """
    if work.asked.wipe:
        return False
    if work.predecessor() is not None:
        return True
    container = work.container()
    if container is None:
        return False
    record = read_record(work)
    if record is not None and record.phase == "back":
        return True
    if work.settings.image is None:
        return False
    wanted = find_image(work.engine, work.settings.image)
    return wanted is None or wanted.id != container.image_id


def refuse_unfinished(work: Work) -> None:
    """Refuse to take the containers away from data that only they can bring to an end.

    A record that goes forward, with the old container in its place, is no obstacle: its data is untouched.
    """
    record = read_record(work) if work.predecessor() is None else None
    if work.predecessor() is not None or (record is not None and record.phase == "back"):
        raise PermanentError(
            f"an upgrade of gateway {work.name} is not finished, and its data needs it; nothing was changed",
            hint=f"Finish it first: holdfast upgrade {work.name}. Or destroy the gateway with its --data.",
        )


def direction(work: Work) -> tuple[Work, UpgradeRecord | None]:
    """The work to go on with, and the record of an upgrade on its way back, if that is what it is.

    Refuses where there is no container: a mistyped name must not get as far as the first step.
    """
    old = work.predecessor()
    if old is None and work.container() is None:
        raise nothing_to_upgrade(work)
    record = read_record(work)
    if old is not None and (record is None or record.phase == "rolled-back"):
        raise DamagedFileError(
            f"there is an old container {old.name}, but no record of an upgrade on the volume",
            hint=f"If {work.object} is healthy, remove {old.name}; else give it that name again.",
        )
    if record is not None and record.phase == "back":
        return _settled_on(work, None), record
    target = work.settings.image
    if old is not None and record is not None:
        if target is not None and target != record.target:
            raise PermanentError(
                f"an upgrade of gateway {work.name} to {record.target} is in the middle",
                hint=f"Finish it first: holdfast upgrade {work.name} --image {record.target}",
            )
        target = record.target
    return _settled_on(work, target or DEFAULT_IMAGE), None


def steps_of(work: Work, back: UpgradeRecord | None) -> tuple[str, list[Step]]:
    """The plan for a direction, and its name; where nothing is to be upgraded, it is that of `up`."""
    if back is not None:
        return BACK, rollback_steps(work, back)
    return ("up", up_steps(work)) if is_settled(work) else (FORWARD, upgrade_steps(work))


def upgrade(work: Work, back: UpgradeRecord | None, run: Run, failed: FailedStep) -> Upgraded:
    """Bring the gateway to the image that was asked for, or back to where it was: by its `direction`."""
    if back is not None:
        return _go_back(work, back, run)
    was_running = (container := work.container()) is not None and container.running
    try:
        scope, steps = steps_of(work, None)
        ended = run(scope, work, steps)
    except _OUT_OF_REACH:
        raise
    except HoldfastError as error:
        if work.predecessor() is None:
            with suppress(HoldfastError):  # the first error counts; `up` says what is wrong with the old one
                _start_again(work, run, was_running=was_running, waits=not isinstance(error, _ENDS_HERE))
            raise
        record = read_record(work) if is_unwell(error, failed.name) else None
        if record is None or record.phase != "forward":
            raise
        back = msgspec.structs.replace(record, phase="back", reason=_reason(work, error))
        return _go_back(_settled_on(work, None), back, run, failed=error)
    return Upgraded(work=work, ended=ended, record=read_record(work))


def is_unwell(error: HoldfastError, step: str) -> bool:
    """Whether an error means that the new version is not well, so that the old one has to come back."""
    if isinstance(error, NodeStoppedError | NodeRefusedError):
        return True
    cut = isinstance(error, EngineCallError) and is_transient(error)
    return step in _GATE and not cut and not isinstance(error, _SAYS_NOTHING)


def _go_back(work: Work, record: UpgradeRecord, run: Run, failed: HoldfastError | None = None) -> Upgraded:
    try:
        run(BACK, work, rollback_steps(work, record))
    except (CancelledError, LockedError):
        raise
    except HoldfastError as error:
        kind = PermanentError if isinstance(error, PermanentError) else TemporaryError
        raise kind(
            f"the upgrade of gateway {work.name} failed, and going back is not finished: {error.message}\n"
            f"why it failed: {record.reason}",
            hint=f"{error.hint} `holdfast upgrade {work.name}` goes on going back.".strip(),
            cause=error,
        ) from error
    raise UpgradeRolledBackError(
        f"gateway {work.name} did not become healthy with Kubernetes {record.target_kubernetes} "
        f"({record.target}), and is back at {record.kubernetes} ({record.image}): {record.reason}",
        hint="Workspaces were not rolled back; writes to the API were, and those made since "
        f"{record.taken_at} are gone. Upgrade again when the image is mended, or with another one.",
        cause=failed,
    )


def _start_again(work: Work, run: Run, *, was_running: bool, waits: bool) -> None:
    """The old container is still in its place: when we have stopped it, it runs again before we give up."""
    container = work.container()
    if not was_running or container is None:
        return
    stopped = not container.running
    if container.restart != MEANT_TO_RUN:
        set_restart(work.engine, work.object, MEANT_TO_RUN)
    if stopped:
        start_container(work.engine, work.object)
    if stopped and waits:
        old = _settled_on(work, None)
        run("up", old, up_steps(old))


def _settled_on(work: Work, image: str | None) -> Work:
    """The same gateway and settings, with this image; with none it is the old container that comes back.

    A short gate is meant for the new version: the old one gets the usual time at least.
    """
    settings = msgspec.structs.replace(work.settings, image=image)
    if image is None:
        patient = max(settings.timeouts.node_ready, Timeouts().node_ready)
        settings = msgspec.structs.replace(
            settings, timeouts=msgspec.structs.replace(settings.timeouts, node_ready=patient)
        )
    settled = Work(
        work.name,
        msgspec.structs.replace(work.resolved, settings=settings),
        Asked(remote=work.asked.remote),
        work.profile,
    )
    settled.upgrading = True
    return settled


def _reason(work: Work, error: HoldfastError) -> str:
    """What failed, with the last lines that the new node printed."""
    text = error.message
    with suppress(HoldfastError):
        if isinstance(error, EngineCallError) and "is restarting" in text:
            text = "its node keeps ending"
        log = container_logs(work.engine, work.object, tail=_LOG_LINES).strip()
        if log and log.splitlines()[-1] not in text:
            text += "\n" + "\n".join(f"    {line}" for line in log.splitlines())
    return text[-_LONGEST_REASON:] if len(text) > _LONGEST_REASON else text
