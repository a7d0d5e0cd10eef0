"""Steps for the gateway's volume and the data on it. Nothing here removes a volume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers import create_volume
from holdfast.errors import TemporaryError
from holdfast.gateway.base_steps import GatewayStep
from holdfast.gateway.upgrade import UpgradeRecord, datastore
from holdfast.gateway.versions import check_data_version, target_kubernetes_version
from holdfast.workflow import ProbeResult, absent, done

if TYPE_CHECKING:
    from holdfast.workflow import StepContext


class EnsureVolume(GatewayStep):
    """Create the volume with all state of the gateway and its sandboxes.

    The result names the run that created the volume: only that run may assume that it is empty.
    """

    name = "ensure-volume"
    title = "Volume"
    needs = ("replace-old",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        if self.gateway.volume() is None:
            return absent("no volume yet")
        return done(f"{self.gateway.object_name} exists", result={"created_by": ""})

    def run(self, ctx: StepContext) -> dict[str, str]:
        # The engine returns an existing volume unchanged, so a repeated call after a lost response is safe.
        create_volume(self.gateway.engine, self.gateway.object_name, gateway=self.gateway.name)
        ctx.note(self.gateway.object_name)
        return {"created_by": ctx.run_id}


class CheckDataVersion(GatewayStep):
    """Check the data of a gateway without a container before a new container opens it.

    The result is the record of a rollback whose containers were removed, for the step that finishes it.
    """

    name = "check-data"
    title = "Data"
    needs = ("ensure-image", "ensure-volume")
    repeat = "always"

    def run(self, ctx: StepContext) -> dict[str, Any] | None:
        gateway = self.gateway
        if gateway.is_upgrade:
            ctx.note("checked by the upgrade")
            return None
        if gateway.parked_container() is not None:
            raise TemporaryError(
                f"gateway {gateway.name}: an upgrade is in progress", hint="Run the same command again."
            )
        if gateway.container() is not None:
            ctx.note("in use by the container")
            return None
        recorded = gateway.metadata.kubernetes if gateway.metadata is not None else ""
        if ctx.is_preview:  # reading the volume starts a helper container, which needs the lock
            self._check_version(recorded)
            ctx.note("checked during the run")
            return None
        # This run created the volume, so it is empty: no helper container has to read it.
        if ctx.result("ensure-volume")["created_by"] == ctx.run_id:
            ctx.note("none yet")
            return None
        record = datastore.read_orphaned_record(gateway)
        if record is not None and record.phase == "back":
            self._check_version(record.kubernetes)
            ctx.note(f"of Kubernetes {record.kubernetes}, as of {record.taken_at}")
            return msgspec.structs.asdict(record)
        # The volume decides: another machine may have upgraded the gateway since this machine recorded it.
        version = datastore.read_data_version(gateway) or recorded
        self._check_version(version)
        ctx.note(f"of Kubernetes {version}" if version else "none yet")
        return None

    def _check_version(self, version: str) -> None:
        check_data_version(version, target_kubernetes_version(self.gateway), self.gateway.spec.image)


class FinishInterruptedRollback(GatewayStep):
    """Restore the datastore of a rollback whose containers were removed: until then there may be none."""

    name = "finish-interrupted-rollback"
    title = "Interrupted rollback"
    needs = ("check-data",)

    def probe(self, ctx: StepContext) -> ProbeResult:
        record = None if ctx.is_preview else self._record(ctx)  # a preview does not read the volume
        return done("none") if record is None else absent(f"to the state of {record.taken_at}")

    def run(self, ctx: StepContext) -> None:
        record, image = self._record(ctx), self.gateway.spec.image
        if record is None:
            return
        # With the new image: the recorded one may be gone, and any node image has the tools.
        # The record is written last: after a kill in between it still has the phase `back`, and the next run
        # restores again.
        datastore.restore_snapshot(self.gateway, record, image=image)
        finished = msgspec.structs.replace(record, phase="rolled-back")
        datastore.finish_rollback(self.gateway, finished, image=image)
        ctx.note(f"to Kubernetes {record.kubernetes}, as of {record.taken_at}")

    def _record(self, ctx: StepContext) -> UpgradeRecord | None:
        # Not tracked: the next run has no such record, which must not run this step again.
        return msgspec.convert(ctx.result("check-data", None, track=False), UpgradeRecord | None)
