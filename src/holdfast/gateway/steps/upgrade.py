"""The steps that only an upgrade has; everything else it does is what `up` does.

The old container is not removed but put aside under another name: it keeps its image on the engine, and it is
the way back with all its settings. Not here: the datastore's files (snapshot.py), the way back (rollback.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.containers import remove_container, rename_container, set_restart, stop_container
from holdfast.containers.images import find_image
from holdfast.containers.networks import find_volume
from holdfast.engine import Verdict, absent, done
from holdfast.errors import ImageMissingError, UnknownGatewayError
from holdfast.gateway.node_container import STOPPED_ON_PURPOSE
from holdfast.gateway.steps.base import GatewayStep
from holdfast.gateway.upgrade import versions, volume
from holdfast.gateway.upgrade.record import is_settled, read_record, target_version, version_of

if TYPE_CHECKING:
    from holdfast.engine import Context
    from holdfast.gateway.work import Work

_SETTLED = "it has that image already"


class CheckUpgrade(GatewayStep):
    """Only looks: the versions fit, and there is a way back."""

    name = "check-upgrade"
    title = "Versions"
    needs = ("ensure-image",)
    repeat = "always"

    def run(self, ctx: Context) -> None:
        work = self.work
        old = work.predecessor() or work.container()
        if old is None:
            raise nothing_to_upgrade(work)
        now, then = version_of(work, old), target_version(work)
        if is_settled(work):
            ctx.note(f"Kubernetes {now}; {_SETTLED}")
            return
        if find_image(work.engine, old.image_id) is None:
            raise ImageMissingError(
                f"the image that gateway {work.name} runs ({old.image}, {old.image_id[7:19]}) is not on the "
                "engine any more, so there would be no way back; nothing was changed",
                hint="Pull or load that image again first.",
            )
        versions.check_upgrade(now, then, work.spec.image)
        ctx.note(f"Kubernetes {now} → {then}")


class StopOldNode(GatewayStep):
    """Ask the old node to stop: its datastore is closed in order, and nobody writes to it any more."""

    name = "stop-old-node"
    title = "Old node stopped"
    needs = ("check-upgrade", "check-space", "ensure-network", "ensure-volume")

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        if self.work.predecessor() is not None:
            return done("the old container is put aside")
        if is_settled(self.work):
            return done(_SETTLED)
        old = self.work.container()
        if old is None or (not old.running and old.restart == STOPPED_ON_PURPOSE):
            return done("it is stopped")
        return absent("it runs" if old.running else "the engine would start it again by itself")

    def run(self, ctx: Context) -> None:
        if self.work.predecessor() is None:
            stop_for_good(self.work)
            ctx.note(self.work.object)


class PutAside(GatewayStep):
    """The old container under another name: the way back, which also keeps its image on the engine."""

    name = "put-aside"
    title = "Old container put aside"
    needs = ("take-snapshot",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        old = self.work.predecessor()
        if old is not None:
            return done(f"it is {old.name}")
        return done(_SETTLED) if is_settled(self.work) else absent("it has the gateway's name")

    def run(self, ctx: Context) -> None:
        if self.work.predecessor() is None:
            rename_container(self.work.engine, self.work.object, self.work.before)
            ctx.note(f"as {self.work.before}")


class MarkProved(GatewayStep):
    """Say on the volume that the new version was healthy: from now on nothing takes it back by itself."""

    name = "mark-proved"
    title = "New version proved"
    needs = ("wait-healthy", "run-probe")

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        if self.work.predecessor() is None:
            return done("nothing is left of an older version")
        record = read_record(self.work)
        if record is None or record.phase != "forward":
            return done("marked")
        return absent("it is healthy, and that is not written down yet")

    def run(self, ctx: Context) -> None:
        record = read_record(self.work)
        if record is not None and record.phase == "forward":
            volume.mark(self.work, msgspec.structs.replace(record, phase="proved"))
            ctx.note(f"Kubernetes {record.target_kubernetes}")


class FinishUpgrade(GatewayStep):
    """The new version has proved itself: the old container goes, and all but the newest snapshots."""

    name = "finish-upgrade"
    title = "Upgraded"
    needs = ("mark-proved", "write-metadata")

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        old = self.work.predecessor()
        return done("nothing is left of an older version") if old is None else absent(f"{old.name} is there")

    def run(self, ctx: Context) -> None:
        record = read_record(self.work)
        if record is not None:
            volume.finish_upgrade(self.work, msgspec.structs.replace(record, phase="upgraded"))
            ctx.note(f"snapshot {record.id} is kept")
        remove_predecessor(self.work)


def remove_predecessor(work: Work) -> None:
    """Remove the container that an upgrade has put aside, if there is one."""
    old = work.predecessor()
    if old is not None:
        remove_container(work.engine, old.name)


def stop_for_good(work: Work, grace_seconds: int | None = None) -> None:
    """Stop the node so that no engine starts it by itself again: two nodes on one volume would ruin it."""
    if work.container() is None:
        return
    set_restart(work.engine, work.object, STOPPED_ON_PURPOSE)
    stop_container(work.engine, work.object, grace_seconds=grace_seconds or work.stop_seconds)


def nothing_to_upgrade(work: Work) -> UnknownGatewayError:
    """Why a gateway without a container cannot be upgraded."""
    if find_volume(work.engine, work.object) is None:
        return UnknownGatewayError(
            f"there is no gateway {work.name} to upgrade", hint="`holdfast list` shows all."
        )
    return UnknownGatewayError(
        f"gateway {work.name} has data but no container, so nobody could go back to it",
        hint=f"Bring it up first: holdfast up {work.name}",
    )
