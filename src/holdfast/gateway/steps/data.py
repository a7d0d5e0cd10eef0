"""The data of a gateway that has no container: looked at before a new one opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import TemporaryError
from holdfast.gateway.steps.base import GatewayStep
from holdfast.gateway.upgrade import versions, volume
from holdfast.gateway.upgrade.record import target_version

if TYPE_CHECKING:
    from holdfast.engine import Context
    from holdfast.gateway.upgrade.record import UpgradeRecord


class CheckData(GatewayStep):
    """Data that is left without a container is whole, and opened by a fitting version only."""

    name = "check-data"
    title = "Data"
    needs = ("ensure-image", "ensure-volume")
    repeat = "always"

    def run(self, ctx: Context) -> None:
        work = self.work
        if work.upgrading:
            ctx.note("looked at already")
            return
        if work.predecessor() is not None:
            raise TemporaryError(
                f"an upgrade of gateway {work.name} is in the middle", hint="Run the same command again."
            )
        if work.container() is not None:
            ctx.note("its container has it")
            return
        if work.made_volume:
            ctx.note("none yet")
            return
        remembered = work.remembered.kubernetes if work.remembered is not None else ""
        if ctx.previewing:  # the volume is seen through a helper, and that needs the lock
            self._check(remembered)
            ctx.note("looked at when it is done")
            return
        record = volume.left_record(work)
        if record is not None and record.phase == "back":
            self._take_back(ctx, record)
            return
        found = volume.data_version(work) or remembered
        self._check(found)
        ctx.note(f"of Kubernetes {found}" if found else "none yet")

    def _check(self, found: str) -> None:
        versions.check_data(found, target_version(self.work), self.work.spec.image)

    def _take_back(self, ctx: Context, record: UpgradeRecord) -> None:
        """Finish what was on its way back when its containers went: in between there may be no datastore."""
        work = self.work
        self._check(record.kubernetes)
        ctx.note(f"of Kubernetes {record.kubernetes}, as of {record.taken_at}")
        ctx.check_lock()
        # The image that the record names may be gone with its container; any node image has the tools.
        volume.restore_snapshot(work, record, image=work.spec.image)
        ended = msgspec.structs.replace(record, phase="rolled-back")
        volume.finish_rollback(work, ended, image=work.spec.image)
