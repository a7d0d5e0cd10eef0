"""The steps that only upgrades and rollbacks have; all others are those of `up`.

The old container is renamed, not removed: it keeps its image on the engine, and a rollback starts it with all
its settings. datastore.py handles the files on the volume, state_machine.py decides about a rollback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.containers import (
    find_image,
    find_volume,
    remove_container,
    rename_container,
    set_restart_policy,
    stop_container,
)
from holdfast.errors import DiskFullError, GatewayNotFoundError, ImageNotFoundError, TemporaryError
from holdfast.gateway.base_steps import GatewayStep, progress_reporter
from holdfast.gateway.node import RESTART_NEVER
from holdfast.gateway.registry import check_recorded
from holdfast.gateway.upgrade import datastore
from holdfast.gateway.upgrade.datastore import is_at_target, new_record, read_record
from holdfast.gateway.versions import (
    check_version_skew,
    container_kubernetes_version,
    target_kubernetes_version,
)
from holdfast.workflow import ProbeResult, absent, done

if TYPE_CHECKING:
    from holdfast.gateway.context import GatewayContext
    from holdfast.gateway.upgrade import UpgradeRecord
    from holdfast.workflow import StepContext

_AT_TARGET = "it has that image already"
_NO_OLD_VERSION = "no old container exists"
# Free space required beyond the copies, for writes while they are made.
_SPARE_BYTES = 16 << 20
# An unhealthy node may not stop in an orderly way; its datastore is discarded anyway.
_FAILED_STOP_SECONDS = 10


class CheckUpgrade(GatewayStep):
    """Check that the versions are compatible and that a rollback is possible; changes nothing."""

    name = "check-upgrade"
    title = "Versions"
    needs = ("ensure-image",)
    repeat = "always"

    def run(self, ctx: StepContext) -> None:
        gateway = self.gateway
        old = gateway.parked_container() or gateway.container()
        if old is None:
            raise no_container_error(gateway)
        current, target = container_kubernetes_version(gateway, old), target_kubernetes_version(gateway)
        if is_at_target(gateway):
            ctx.note(f"Kubernetes {current}; {_AT_TARGET}")
            return
        if find_image(gateway.engine, old.image_id) is None:
            raise ImageNotFoundError(
                f"gateway {gateway.name}: its current image ({old.image}, {old.image_id[7:19]}) is not on "
                "the container engine, so a rollback would not be possible; nothing was changed",
                hint="Pull or load that image first.",
            )
        check_version_skew(current, target, gateway.spec.image)
        ctx.note(f"Kubernetes {current} → {target}")


class StopOldNode(GatewayStep):
    """Stop the old node, so that its datastore is closed in order and not written to any more."""

    name = "stop-old-node"
    title = "Old node stopped"
    needs = ("check-upgrade", "check-space", "ensure-network", "ensure-volume")

    def probe(self, _ctx: StepContext) -> ProbeResult:
        if self.gateway.parked_container() is not None:
            return done("the old container is parked")
        if is_at_target(self.gateway):
            return done(_AT_TARGET)
        old = self.gateway.container()
        # A stopped node with another policy would start again with the engine, in the middle of the copy.
        if old is None or (not old.is_running and old.restart_policy == RESTART_NEVER):
            return done("it is stopped")
        return absent("it runs" if old.is_running else "the engine would restart it")

    def run(self, ctx: StepContext) -> None:
        if self.gateway.parked_container() is None:
            stop_permanently(self.gateway)
            ctx.note(self.gateway.object_name)


class ParkOldContainer(GatewayStep):
    """Rename the old container; a rollback renames it back, and it keeps its image on the engine."""

    name = "put-aside"
    title = "Old container parked"
    needs = ("take-snapshot",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        old = self.gateway.parked_container()
        if old is not None:
            return done(f"it is {old.name}")
        return done(_AT_TARGET) if is_at_target(self.gateway) else absent("it has the gateway's name")

    def run(self, ctx: StepContext) -> None:
        if self.gateway.parked_container() is None:
            # A node that was started since would use the volume together with the new one, and a rollback
            # would lose what it wrote.
            if _current_snapshot(self.gateway) is None:
                raise TemporaryError(f"gateway {self.gateway.name}: its node was started after the snapshot")
            # From here on the parked container marks an unfinished upgrade: every later command finds it.
            rename_container(self.gateway.engine, self.gateway.object_name, self.gateway.parked_name)
            ctx.note(f"as {self.gateway.parked_name}")


class CommitUpgrade(GatewayStep):
    """Record that the new version was healthy: from here on it is not rolled back automatically."""

    name = "mark-proved"
    title = "New version healthy"
    needs = ("wait-healthy", "run-probe")

    def probe(self, _ctx: StepContext) -> ProbeResult:
        if self.gateway.parked_container() is None:
            return done(_NO_OLD_VERSION)
        record = read_record(self.gateway)
        is_marked = record is None or record.phase != "forward"
        return done("marked") if is_marked else absent("it is healthy, but not recorded as such")

    def run(self, ctx: StepContext) -> None:
        record = read_record(self.gateway)
        if record is not None and record.phase == "forward":
            datastore.write_record(self.gateway, msgspec.structs.replace(record, phase="proved"))
            ctx.note(f"Kubernetes {record.target_kubernetes}")


class FinishUpgrade(GatewayStep):
    """Remove the old container and all but the newest snapshots."""

    name = "finish-upgrade"
    title = "Upgraded"
    needs = ("mark-proved", "write-metadata")

    def probe(self, _ctx: StepContext) -> ProbeResult:
        old = self.gateway.parked_container()
        return done(_NO_OLD_VERSION) if old is None else absent(f"{old.name} exists")

    def run(self, ctx: StepContext) -> None:
        record = read_record(self.gateway)
        if record is not None:
            # The record first: after a kill between the two, the next run finds the parked container and
            # removes it.
            datastore.finish_upgrade(self.gateway, msgspec.structs.replace(record, phase="upgraded"))
            ctx.note(f"snapshot {record.id} is kept")
        remove_parked_container(self.gateway)


def remove_parked_container(gateway: GatewayContext) -> None:
    """Remove the old container of an upgrade, if there is one."""
    old = gateway.parked_container()
    if old is not None:
        remove_container(gateway.engine, old.name)


def stop_permanently(gateway: GatewayContext, grace_seconds: int | None = None) -> None:
    """Stop the node and keep the engine from restarting it: two nodes on one volume would corrupt it."""
    if gateway.container() is None:
        return
    # The policy first: an engine that restarts between the two calls must not start the node again.
    set_restart_policy(gateway.engine, gateway.object_name, RESTART_NEVER)
    stop_container(gateway.engine, gateway.object_name, grace_seconds=grace_seconds or gateway.stop_seconds)


def no_container_error(gateway: GatewayContext) -> GatewayNotFoundError:
    """Why a gateway without a container cannot be upgraded.

    Raises:
        GatewayNotFoundError: The gateway has no data either, and this machine has no record of it.
    """
    if find_volume(gateway.engine, gateway.object_name) is None:
        check_recorded(gateway.name)
        return GatewayNotFoundError(
            f"gateway {gateway.name}: no container and no data", hint=f"Run `holdfast up {gateway.name}`."
        )
    return GatewayNotFoundError(
        f"gateway {gateway.name}: it has data but no container, so a rollback would not be possible",
        hint=f"Run `holdfast up {gateway.name}` first.",
    )


class CheckSpace(GatewayStep):
    """Check that the volume has space for the snapshot and for the copy a rollback makes of it."""

    name = "check-space"
    title = "Space"
    needs = ("check-upgrade", "ensure-volume")
    repeat = "always"

    def run(self, ctx: StepContext) -> None:
        gateway = self.gateway
        old = gateway.container()
        if gateway.parked_container() is not None or old is None or is_at_target(gateway):
            ctx.note("nothing to copy")
            return
        if ctx.is_preview and old.state != "running":
            ctx.note("checked by the run")  # measuring a stopped node needs a helper, and that needs the lock
            return
        space = datastore.measure_space(gateway, old)
        # A current snapshot is already on the disk: then only the copy of a rollback needs space.
        copies = 2 if _current_snapshot(gateway) is None else 1
        check_free_space(gateway.object_name, space, copies)
        ctx.note(f"{_megabytes(copies * space.data)} MB of {_megabytes(space.free)} MB")


def check_free_space(volume: str, space: datastore.VolumeSpace, copies: int) -> None:
    """Raise `DiskFullError` unless the volume has space for this many copies of the datastore."""
    needed = copies * space.data + _SPARE_BYTES
    if space.free < needed:
        raise DiskFullError(
            f"volume {volume}: {_megabytes(space.free)} MB are free, and a snapshot with its rollback needs "
            f"{_megabytes(needed)} MB; nothing was changed",
            hint="Free disk space on the engine's host, then run the same command again.",
        )


def _megabytes(number: int) -> str:
    return f"{number / 1e6:.0f}"


class TakeSnapshot(GatewayStep):
    """Copy the datastore on the same volume, and write the record of this upgrade.

    The record is written last: if it exists, the copy is complete. If the node ran again since then, its
    datastore has changed and the copy is taken again.
    """

    name = "take-snapshot"
    title = "Snapshot"
    needs = ("stop-old-node",)
    touches = ("the datastore: copied to `snapshots/` on the same volume",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        if self.gateway.parked_container() is not None:
            return done("taken before the old container was parked")
        if is_at_target(self.gateway):
            return done(_AT_TARGET)
        if record := _current_snapshot(self.gateway):
            return done(f"taken at {record.taken_at}")
        old = self.gateway.container()
        current = container_kubernetes_version(self.gateway, old) if old else "?"
        return absent(f"Kubernetes {current} → {target_kubernetes_version(self.gateway) or '?'}")

    def run(self, ctx: StepContext) -> None:
        old = self.gateway.container()
        if self.gateway.parked_container() is not None or old is None:
            return
        if old.is_running:
            # A running node writes to its datastore, so the copy would not be consistent.
            raise TemporaryError("the node was started before its datastore could be copied")
        record = new_record(self.gateway, old)
        progress_reporter(ctx)("copying the datastore", None)
        megabytes = datastore.take_snapshot(self.gateway, record)
        ctx.note(f"{record.id}, {megabytes:.0f} MB")


def _current_snapshot(gateway: GatewayContext) -> UpgradeRecord | None:
    """The record of this upgrade, if the old node has not run since its snapshot; else None."""
    old, record = gateway.container(), read_record(gateway)
    is_current = (
        old is not None
        and record is not None
        and not old.is_running
        and record.phase == "forward"
        and (record.target, record.image_id) == (gateway.spec.image, old.image_id)
        # The engine sets this time at each start: if it is equal, nothing was written since the snapshot.
        and record.node_started_at == old.started_at
    )
    return record if is_current else None


class _RollbackStep(GatewayStep):
    """A step of the rollback of one upgrade."""

    def __init__(self, gateway: GatewayContext, record: UpgradeRecord) -> None:
        super().__init__(gateway)
        self._record = record


class MarkRollback(_RollbackStep):
    """Record on the volume that this upgrade is rolled back: the next command continues with that."""

    name = "mark-rollback"
    title = "Rolling back"
    needs = ("check-engine",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        record = read_record(self.gateway)
        is_marked = record is not None and record.phase == "back"
        return done("marked") if is_marked else absent("the new version did not become healthy")

    def run(self, ctx: StepContext) -> None:
        datastore.write_record(self.gateway, self._record)
        ctx.note(f"to Kubernetes {self._record.kubernetes}")


class RemoveNewContainer(GatewayStep):
    """Remove the container of the failed version; without a parked container, there is none."""

    name = "remove-new-container"
    title = "New container removed"
    needs = ("mark-rollback",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        if self.gateway.parked_container() is None:
            return done("the old container has its name back")
        return done("it does not exist") if self.gateway.container() is None else absent("it exists")

    def run(self, ctx: StepContext) -> None:
        # Without a parked container, the container with the gateway's name is the old one: it must stay.
        if self.gateway.parked_container() is None:
            return
        stop_permanently(self.gateway, grace_seconds=_FAILED_STOP_SECONDS)
        remove_container(self.gateway.engine, self.gateway.object_name)
        ctx.note(self.gateway.object_name)


class RestoreSnapshot(_RollbackStep):
    """Replace the datastore with its snapshot; the replaced files are kept until the rollback is finished."""

    name = "restore-snapshot"
    title = "Datastore restored"
    needs = ("remove-new-container",)
    touches = ("the datastore: writes to the API since the snapshot are lost",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        is_restored = datastore.is_restored(self.gateway, self._record)
        return done("restored") if is_restored else absent(f"to the state of {self._record.taken_at}")

    def run(self, ctx: StepContext) -> None:
        # Without a parked container, the rollback is past this step, and the old node may run already.
        if self.gateway.parked_container() is None:
            return
        progress_reporter(ctx)("restoring the datastore", None)
        datastore.restore_snapshot(self.gateway, self._record)
        ctx.note(f"as of {self._record.taken_at}")


class RestoreOldContainer(GatewayStep):
    """Give the old container the gateway's name again."""

    name = "take-back"
    title = "Old container restored"
    # Only after the restore: without a parked container, `restore-snapshot` has no effect.
    needs = ("restore-snapshot",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        old = self.gateway.parked_container()
        return done("it has the gateway's name") if old is None else absent(f"it is {old.name}")

    def run(self, ctx: StepContext) -> None:
        old = self.gateway.parked_container()
        if old is not None:
            rename_container(self.gateway.engine, old.name, self.gateway.object_name)
            ctx.note(self.gateway.object_name)


class FinishRollback(_RollbackStep):
    """Delete the files of the failed version; the snapshot is kept."""

    name = "finish-rollback"
    title = "Rolled back"
    needs = ("write-metadata",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        record = read_record(self.gateway)
        is_unfinished = record is not None and record.in_progress
        return absent("not recorded yet") if is_unfinished else done("recorded")

    def run(self, ctx: StepContext) -> None:
        datastore.finish_rollback(self.gateway, msgspec.structs.replace(self._record, phase="rolled-back"))
        ctx.note(f"snapshot {self._record.id} is kept")
