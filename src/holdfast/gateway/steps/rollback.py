"""The way back from an upgrade that failed: old datastore, old container; what comes after is what `up` does.

Not here: judging that an upgrade has failed (upgrade/flow.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.containers import remove_container, rename_container
from holdfast.engine import Verdict, absent, done
from holdfast.gateway.steps.base import GatewayStep, going_on
from holdfast.gateway.steps.upgrade import stop_for_good
from holdfast.gateway.upgrade import volume
from holdfast.gateway.upgrade.record import read_record

if TYPE_CHECKING:
    from holdfast.engine import Context
    from holdfast.gateway.upgrade.record import UpgradeRecord
    from holdfast.gateway.work import Work

_FAILED_STOP_SECONDS = 10
"""A node that did not become healthy may not stop by itself either; its datastore is thrown away anyway."""


class _RollbackStep(GatewayStep):
    """A step that knows which upgrade is taken back."""

    def __init__(self, work: Work, record: UpgradeRecord) -> None:
        super().__init__(work)
        self._record = record


class MarkRollback(_RollbackStep):
    """Say on the volume that this upgrade goes back: whoever comes next goes on with that."""

    name = "mark-rollback"
    title = "Going back"
    needs = ("check-engine",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        record = read_record(self.work)
        marked = record is not None and record.phase == "back"
        return done("marked") if marked else absent("the new version did not become healthy")

    def run(self, ctx: Context) -> None:
        volume.mark(self.work, self._record)
        ctx.note(f"to Kubernetes {self._record.kubernetes}")


class RemoveNewContainer(GatewayStep):
    """The container of the failed version goes; what has the gateway's name then is the old one again."""

    name = "remove-new-container"
    title = "New container removed"
    needs = ("mark-rollback",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        if self.work.predecessor() is None:
            return done("the old container is back in place")
        return done("there is none") if self.work.container() is None else absent("it is there")

    def run(self, ctx: Context) -> None:
        if self.work.predecessor() is None:
            return
        stop_for_good(self.work, grace_seconds=_FAILED_STOP_SECONDS)
        remove_container(self.work.engine, self.work.object)
        ctx.note(self.work.object)


class RestoreSnapshot(_RollbackStep):
    """The copied files in the datastore's place; the failed version's are set aside until all is well."""

    name = "restore-snapshot"
    title = "Datastore put back"
    needs = ("remove-new-container",)
    touches = ("the datastore: writes to the API since the snapshot are taken back",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        restored = volume.is_restored(self.work, self._record)
        return done("put back already") if restored else absent(f"to the state of {self._record.taken_at}")

    def run(self, ctx: Context) -> None:
        if self.work.predecessor() is None:
            return
        going_on(ctx)("putting the datastore back", None)
        volume.restore_snapshot(self.work, self._record)
        ctx.note(f"as of {self._record.taken_at}")


class TakeBack(GatewayStep):
    """The old container under the gateway's name again."""

    name = "take-back"
    title = "Old container back in place"
    needs = ("restore-snapshot",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        old = self.work.predecessor()
        return done("it has the gateway's name") if old is None else absent(f"it is {old.name}")

    def run(self, ctx: Context) -> None:
        old = self.work.predecessor()
        if old is not None:
            rename_container(self.work.engine, old.name, self.work.object)
            ctx.note(self.work.object)


class FinishRollback(_RollbackStep):
    """The old version is healthy again: the failed one's files go; the snapshot stays."""

    name = "finish-rollback"
    title = "Rolled back"
    needs = ("write-metadata",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        record = read_record(self.work)
        going = record is not None and record.under_way
        return absent("it is not written down yet") if going else done("written down")

    def run(self, ctx: Context) -> None:
        volume.finish_rollback(self.work, msgspec.structs.replace(self._record, phase="rolled-back"))
        ctx.note(f"snapshot {self._record.id} is kept")
