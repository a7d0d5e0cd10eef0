"""The snapshot of the datastore, taken of a stopped node. Not here: the way back (rollback.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine import Verdict, absent, done
from holdfast.errors import DiskFullError, TemporaryError
from holdfast.gateway.steps.base import GatewayStep, going_on
from holdfast.gateway.upgrade import volume
from holdfast.gateway.upgrade.record import (
    is_settled,
    new_record,
    read_record,
    target_version,
    version_of,
)

if TYPE_CHECKING:
    from holdfast.engine import Context
    from holdfast.gateway.upgrade.record import UpgradeRecord
    from holdfast.gateway.work import Work


_SPARE = 16 << 20
"""Room beyond the copies, for what is written while they are made."""


class CheckSpace(GatewayStep):
    """Only looks: there is room for the copy, and for the second one that a way back would make."""

    name = "check-space"
    title = "Space"
    needs = ("check-upgrade", "ensure-volume")
    repeat = "always"

    def run(self, ctx: Context) -> None:
        work = self.work
        old = work.container()
        if work.predecessor() is not None or old is None or is_settled(work):
            ctx.note("nothing is to be copied")
            return
        if ctx.previewing and old.state != "running":
            ctx.note("looked at when it is done")  # a stopped one would need a helper, and a lock for that
            return
        room = volume.room(work, old)
        record = read_record(work)
        copies = 1 if record is not None and _is_of(work, record) else 2
        check_room(work.object, room, copies)
        ctx.note(f"{_megabytes(copies * room.data)} MB of {_megabytes(room.free)} MB")


def check_room(where: str, room: volume.Room, copies: int) -> None:
    """Refuse to begin what would end on a full disk."""
    needed = copies * room.data + _SPARE
    if room.free < needed:
        raise DiskFullError(
            f"the volume {where} has {_megabytes(room.free)} MB free, and a snapshot with its way back needs "
            f"{_megabytes(needed)} MB; nothing was changed",
            hint="Free some space on the engine's host, then run the same command again.",
        )


def _megabytes(number: int) -> str:
    return f"{number / 1e6:.0f}"


class TakeSnapshot(GatewayStep):
    """A copy of the datastore's files on the same volume, and the record of this upgrade.

    The record is written last: where it is, the copy is whole. A node that ran again since then has written
    to its datastore, so that the copy is taken anew.
    """

    name = "take-snapshot"
    title = "Snapshot"
    needs = ("stop-old-node",)
    touches = ("the datastore: copied to `snapshots/` on the same volume",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        if self.work.predecessor() is not None:
            return done("taken before the old container was put aside")
        if is_settled(self.work):
            return done("it has that image already")
        old = self.work.container()
        record = read_record(self.work)
        if old is None or record is None or not _is_of(self.work, record):
            versions = f"{version_of(self.work, old) if old else '?'} → {target_version(self.work) or '?'}"
            return absent(f"Kubernetes {versions}")
        return done(f"taken at {record.taken_at}")

    def run(self, ctx: Context) -> None:
        old = self.work.container()
        if self.work.predecessor() is not None or old is None:
            return
        if old.running:
            raise TemporaryError("the node was started while it was to be copied")
        record = new_record(self.work, old)
        going_on(ctx)("copying the datastore", None)
        megabytes = volume.take_snapshot(self.work, record)
        ctx.note(f"{record.id}, {megabytes:.0f} MB")


def _is_of(work: Work, record: UpgradeRecord) -> bool:
    """Whether the record is of this upgrade, and of the last time that the old node ran."""
    old = work.container()
    return (
        old is not None
        and not old.running
        and record.phase == "forward"
        and (record.target, record.image_id) == (work.spec.image, old.image_id)
        and record.node_started_at == old.started_at
    )
