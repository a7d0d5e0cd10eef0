"""The datastore's files on the volume: copied, put back, cleaned up, while no node runs on them.

Each script may be killed at any point and run again. What counts is renamed into place once it is on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.commands import read_file, run_in
from holdfast.containers.helpers import Helper
from holdfast.errors import EngineCallError, WaitTimeoutError
from holdfast.gateway.upgrade.record import RECORD, SNAPSHOTS, UpgradeRecord, decode_record

if TYPE_CHECKING:
    from holdfast.containers.containers import ContainerView
    from holdfast.gateway.work import Work

KEPT = 2
"""How many snapshots stay after an upgrade."""

_RESTORED = "restored"
_DF_COLUMNS = 6

_WRITE_RECORD = f"""
printf %s "$record" > {RECORD}.new
sync -f .
mv -T {RECORD}.new {RECORD}
sync -f .
"""

# All that needs space is written before the first rename; a copy that did not fit goes at once.
_TAKE = f"""set -eu
data=$1 id=$2 record=$3
trap 'rm -rf "{SNAPSHOTS}/$id.partial"' EXIT
rm -rf {SNAPSHOTS}/*.partial "$data.new" "$data.new.partial" "$data.failed"
mkdir -p {SNAPSHOTS} && chmod 700 {SNAPSHOTS}
mkdir "{SNAPSHOTS}/$id.partial"
cp -a "$data" "{SNAPSHOTS}/$id.partial/data"
if [ -f version.json ]; then cp -a version.json "{SNAPSHOTS}/$id.partial/"; fi
printf %s "$record" > "{SNAPSHOTS}/$id.partial/about.json"
printf %s "$record" > {RECORD}.new
sync -f .
mv -T "{SNAPSHOTS}/$id.partial" "{SNAPSHOTS}/$id"
sync -f .
mv -T {RECORD}.new {RECORD}
sync -f .
du -sk "{SNAPSHOTS}/$id" | cut -f 1
"""

# A running datastore drops files while they are counted: what is gone needs no room.
_ROOM = """data=$1
du -sk "$data" 2>/dev/null | tail -n 1
df -Pk . | tail -n 1
"""

# The failed files are moved away once: their presence says that the swap has begun.
# One command a line: a shell goes on after `a && b` when it is `a` that failed.
_RESTORE = f"""set -eu
data=$1 id=$2
if [ -e "{SNAPSHOTS}/$id/{_RESTORED}" ]; then exit 0; fi
trap 'rm -rf "$data.new.partial"' EXIT
if [ ! -d "$data.failed" ]; then
  rm -rf "$data.new" "$data.new.partial"
  cp -a "{SNAPSHOTS}/$id/data" "$data.new.partial"
  sync -f .
  mv -T "$data.new.partial" "$data.new"
  mkdir -p "$data"
  mv -T "$data" "$data.failed"
fi
if [ -d "$data.new" ]; then mv -T "$data.new" "$data"; fi
if [ ! -d "$data" ]; then echo "there is no datastore"; exit 1; fi
if [ -f "{SNAPSHOTS}/$id/version.json" ]; then
  cp -a "{SNAPSHOTS}/$id/version.json" version.json.new
  mv -T version.json.new version.json
else
  rm -f version.json
fi
sync -f .
: > "{SNAPSHOTS}/$id/{_RESTORED}"
sync -f .
"""

_MARK = f"""set -eu
record=$1
{_WRITE_RECORD}
"""

_MARK_BACK = f"""set -eu
record=$1 id=$2
if [ ! -d "{SNAPSHOTS}/$id/data" ]; then echo "the snapshot $id is not there: no way back"; exit 1; fi
{_WRITE_RECORD}
"""

_FINISH_UPGRADE = f"""set -eu
record=$1 id=$2
{_WRITE_RECORD}
ls -1 {SNAPSHOTS} | sort -r | tail -n +{KEPT + 1} | while read -r old; do
  if [ "$old" != "$id" ]; then rm -rf "{SNAPSHOTS}/$old"; fi
done
"""

# Snapshots of upgrades that went well stay; of those that were put back, only the last one.
_FINISH_ROLLBACK = f"""set -eu
data=$1 id=$2 record=$3
rm -rf "$data.failed"
for old in {SNAPSHOTS}/*; do
  if [ -e "$old/{_RESTORED}" ] && [ "$old" != "{SNAPSHOTS}/$id" ]; then rm -rf "$old"; fi
done
{_WRITE_RECORD}
"""


def helper_of(work: Work, image: str) -> Helper:
    """A helper on the gateway's volume, made from an image that is there."""
    return Helper(
        name=f"helper-of-{work.object}",  # no gateway's container is called like that
        gateway=work.name,
        image=image,
        volume=work.object,
        path=work.profile.state_path,
        seconds=work.settings.timeouts.snapshot,
    )


def _work_on(work: Work, image: str, script: str, *arguments: str) -> str:
    """Run a script on the volume to its end and return what it printed."""
    try:
        return helper_of(work, image).run(work.engine, script, *arguments)
    except WaitTimeoutError as error:
        raise WaitTimeoutError(
            error.message,
            hint="Give it more time: HOLDFAST_TIMEOUTS_SNAPSHOT=2h, say; then run the same command again.",
        ) from error


def clear_helpers(work: Work) -> None:
    """Remove a helper that a killed command left behind."""
    helper_of(work, "").clear(work.engine)


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """How much the datastore takes on the volume, and how much is free there; in bytes."""

    data: int
    free: int


def room(work: Work, container: ContainerView) -> Room:
    """Ask on the volume itself, which may be a disk of its own: in the node while it runs."""
    if container.state == "running":
        script = f'cd "$0" && {_ROOM}'
        asked = run_in(
            work.engine,
            container.name,
            ["/bin/sh", "-c", script, work.profile.state_path, work.profile.datastore],
        )
        return _room_of(asked.output)
    printed = _work_on(work, container.image_id, _ROOM, work.profile.datastore)
    return _room_of(printed)


def _room_of(printed: str) -> Room:
    """From the last lines of `du` and `df`, in kilobytes; a datastore that is not there takes nothing."""
    lines = [line.split() for line in printed.strip().splitlines()]
    if not lines or len(lines[-1]) < _DF_COLUMNS or not lines[-1][3].isdigit():
        raise EngineCallError(f"the free space on the volume cannot be told from {printed.strip()!r}")
    used = lines[0][0] if len(lines) > 1 else "0"
    return Room(data=int(used) * 1024, free=int(lines[-1][3]) * 1024)


def take_snapshot(work: Work, record: UpgradeRecord) -> float:
    """Copy the datastore and write the record; return the size in megabytes."""
    printed = _work_on(work, record.image_id, _TAKE, work.profile.datastore, record.id, _encoded(record))
    return int(printed.split()[-1]) / 1000


def restore_snapshot(work: Work, record: UpgradeRecord, image: str = "") -> None:
    """Put the copied files in the datastore's place; what was there is set aside until all is well."""
    _work_on(work, image or record.image_id, _RESTORE, work.profile.datastore, record.id)


def is_restored(work: Work, record: UpgradeRecord) -> bool:
    """Whether the snapshot's files are back in place."""
    container = work.predecessor() or work.container()
    if container is None:
        return False
    path = f"{work.profile.state_path}/{record.snapshot}/{_RESTORED}"
    return read_file(work.engine, container.name, path) is not None


def mark(work: Work, record: UpgradeRecord) -> None:
    """Write the record anew; that it goes back only while the snapshot is there."""
    script = _MARK_BACK if record.phase == "back" else _MARK
    _work_on(work, record.image_id, script, _encoded(record), record.id)


def finish_upgrade(work: Work, record: UpgradeRecord) -> None:
    """Write down that it went well, and drop all but the newest snapshots."""
    _work_on(work, record.image_id, _FINISH_UPGRADE, _encoded(record), record.id)


def finish_rollback(work: Work, record: UpgradeRecord, image: str = "") -> None:
    """Write down that it was taken back, and drop the files of the failed version."""
    rest = (work.profile.datastore, record.id, _encoded(record))
    _work_on(work, image or record.image_id, _FINISH_ROLLBACK, *rest)


def left_record(work: Work) -> UpgradeRecord | None:
    """The record on a volume that no container has any more."""
    return decode_record(work, helper_of(work, work.spec.image).read(work.engine, RECORD))


def data_version(work: Work) -> str:
    """The Kubernetes version that the node left on the volume, read without any container of its own."""
    raw = helper_of(work, work.spec.image).read(work.engine, "version.json")
    try:
        return msgspec.json.decode(raw or b"{}", type=_Left).kubernetes
    except msgspec.MsgspecError:
        return ""


class _Left(msgspec.Struct, frozen=True):
    """What a node leaves on its volume about itself."""

    kubernetes: str = ""


def _encoded(record: UpgradeRecord) -> str:
    return msgspec.json.encode(record).decode()
