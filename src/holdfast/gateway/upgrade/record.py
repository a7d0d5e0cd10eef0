"""What is known of an upgrade that is under way, kept on the gateway's own volume: everybody sees the same.

The old container, put aside under another name, is the way back and holds its image and settings; the record
beside the data says which snapshot belongs to it and which way things go. Not here: deciding (flow.py).
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from holdfast.containers import labels
from holdfast.containers.commands import read_file
from holdfast.containers.images import find_image
from holdfast.errors import DamagedFileError

if TYPE_CHECKING:
    from holdfast.containers.containers import ContainerView
    from holdfast.gateway.work import Work

RECORD = "upgrade.json"
SNAPSHOTS = "snapshots"

Phase: TypeAlias = Literal["forward", "proved", "back", "upgraded", "rolled-back"]


class UpgradeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One upgrade: its snapshot, what it leaves, where it goes, which way it is going and why.

    `proved`: the new version was healthy once. People may have used it since, so that nothing takes it back
    by itself any more.
    """

    id: str
    taken_at: str
    image: str
    image_id: str
    kubernetes: str
    node_started_at: str
    target: str
    target_kubernetes: str
    phase: Phase = "forward"
    reason: str = ""

    @property
    def snapshot(self) -> str:
        """The folder of its snapshot, below the state folder."""
        return f"{SNAPSHOTS}/{self.id}"

    @property
    def under_way(self) -> bool:
        return self.phase in ("forward", "proved", "back")


def new_record(work: Work, old: ContainerView) -> UpgradeRecord:
    """The record of an upgrade that begins now: from the container that is there to the image asked for."""
    now = time.gmtime()
    return UpgradeRecord(
        id=f"{time.strftime('%Y%m%dT%H%M%SZ', now)}-{uuid.uuid4().hex[:6]}",
        taken_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", now),
        image=old.image,
        image_id=old.image_id,
        kubernetes=version_of(work, old),
        node_started_at=old.started_at,
        target=work.spec.image,
        target_kubernetes=target_version(work),
    )


def read_record(work: Work) -> UpgradeRecord | None:
    """The record on the volume, seen through whichever container has it; None where there is none."""
    container = work.predecessor() or work.container()
    if container is None:
        return None
    return decode_record(work, read_file(work.engine, container.name, f"{work.profile.state_path}/{RECORD}"))


def decode_record(work: Work, raw: bytes | None) -> UpgradeRecord | None:
    """The record that a file holds; None where there is no file."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=UpgradeRecord)
    except msgspec.MsgspecError as error:
        raise DamagedFileError(
            f"the record of the upgrade of gateway {work.name} cannot be read: {error}",
            hint=f"It is {RECORD} on the volume {work.object}; the old container, {work.before}.",
        ) from error


def version_of(work: Work, container: ContainerView) -> str:
    """The Kubernetes version of a container: its image's label, which it carries itself too."""
    image = find_image(work.engine, container.image_id)
    return (image.labels if image else container.labels).get(labels.KUBERNETES, "")


def target_version(work: Work) -> str:
    """The Kubernetes version of the image that was asked for."""
    image = find_image(work.engine, work.spec.image)
    return image.labels.get(labels.KUBERNETES, "") if image is not None else ""


def is_settled(work: Work) -> bool:
    """Whether the gateway runs the image that was asked for, and nothing of an upgrade is left to do."""
    container = work.container()
    if container is None or work.predecessor() is not None:
        return False
    wanted = find_image(work.engine, work.spec.image)
    return wanted is not None and wanted.id == container.image_id
