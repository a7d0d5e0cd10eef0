"""Steps for the gateway's volume and the data on it. Nothing here removes a volume."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.containers import create_volume, find_volume
from holdfast.errors import TemporaryError
from holdfast.gateway.base_steps import GatewayStep
from holdfast.gateway.upgrade import datastore, target_kubernetes_version, version_skew
from holdfast.workflow import ProbeResult, absent, done

if TYPE_CHECKING:
    from holdfast.gateway.upgrade import UpgradeRecord
    from holdfast.workflow import StepContext


class EnsureVolume(GatewayStep):
    """Create the volume with all state of the gateway and its sandboxes.

    The result names the run that created the volume: only that run may assume that it is empty.
    """

    name = "ensure-volume"
    title = "Volume"
    needs = ("replace-old",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        volume = find_volume(self.gateway.engine, self.gateway.object_name)
        if volume is None:
            return absent("no volume yet")
        self.gateway.check_owned("volume", volume.labels)
        return done(f"{self.gateway.object_name} exists", result={"created_by": ""})

    def run(self, ctx: StepContext) -> dict[str, str]:
        create_volume(self.gateway.engine, self.gateway.object_name, gateway=self.gateway.name)
        ctx.note(self.gateway.object_name)
        return {"created_by": ctx.run_id}


class CheckDataVersion(GatewayStep):
    """Check the data of a gateway without a container before a new container opens it."""

    name = "check-data"
    title = "Data"
    needs = ("ensure-image", "ensure-volume")
    repeat = "always"

    def run(self, ctx: StepContext) -> None:
        gateway = self.gateway
        if gateway.is_upgrade:
            ctx.note("checked by the upgrade")
            return
        if gateway.parked_container() is not None:
            raise TemporaryError(
                f"gateway {gateway.name}: an upgrade is in progress", hint="Run the same command again."
            )
        if gateway.container() is not None:
            ctx.note("in use by the container")
            return
        recorded = gateway.metadata.kubernetes if gateway.metadata is not None else ""
        if ctx.is_preview:  # reading the volume starts a helper container, which needs the lock
            self._check_version(recorded)
            ctx.note("checked during the run")
            return
        if ctx.result("ensure-volume")["created_by"] == ctx.run_id:
            ctx.note("none yet")
            return
        record = datastore.read_orphaned_record(gateway)
        if record is not None and record.phase == "back":
            self._finish_rollback(ctx, record)
            return
        version = datastore.read_data_version(gateway) or recorded
        self._check_version(version)
        ctx.note(f"of Kubernetes {version}" if version else "none yet")

    def _check_version(self, version: str) -> None:
        target = target_kubernetes_version(self.gateway)
        version_skew.check_data_version(version, target, self.gateway.spec.image)

    def _finish_rollback(self, ctx: StepContext, record: UpgradeRecord) -> None:
        """Finish a rollback whose containers were removed: until then there may be no datastore."""
        image = self.gateway.spec.image  # the recorded image may be gone; any node image has the tools
        self._check_version(record.kubernetes)
        ctx.note(f"of Kubernetes {record.kubernetes}, as of {record.taken_at}")
        ctx.check_lock()
        datastore.restore_snapshot(self.gateway, record, image=image)
        datastore.finish_rollback(
            self.gateway, msgspec.structs.replace(record, phase="rolled-back"), image=image
        )
