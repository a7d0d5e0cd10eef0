"""The upgrade record and the datastore's files on the gateway's volume: snapshot, restore, clean up.

The record is on the volume, next to the data it describes, so that every machine sees the same state. The
parked old container holds the old image and settings; the record says which snapshot belongs to it and
whether the upgrade goes forward or back (state_machine.py decides).

No node runs while a script changes the datastore. Each script may be killed at any point and run again: data
is renamed into place only after it is on disk.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from holdfast.api import format_timestamp
from holdfast.containers import VolumeJob, find_image, read_file, run_in_container
from holdfast.errors import ContainerEngineError, CorruptFileError, WaitTimeoutError
from holdfast.gateway.versions import container_kubernetes_version, target_kubernetes_version

if TYPE_CHECKING:
    from holdfast.containers import ContainerView
    from holdfast.gateway.context import GatewayContext

RECORD_FILE = "upgrade.json"
SNAPSHOTS_DIR = "snapshots"
# How many snapshots are kept after an upgrade.
KEPT_SNAPSHOTS = 2
_RESTORED_MARKER = "restored"
_DF_COLUMNS = 6

UpgradePhase: TypeAlias = Literal["forward", "proved", "back", "upgraded", "rolled-back"]


class UpgradeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One upgrade: its snapshot, the old and the new version, its phase and the reason of a rollback.

    In phase `proved` the new version was healthy once. Users may have written data with it since, so it is
    not rolled back automatically any more.
    """

    id: str
    taken_at: str
    image: str
    image_id: str
    kubernetes: str
    node_started_at: str
    target: str
    target_kubernetes: str
    phase: UpgradePhase = "forward"
    reason: str = ""

    @property
    def snapshot(self) -> str:
        """The directory of the snapshot, relative to the state directory."""
        return f"{SNAPSHOTS_DIR}/{self.id}"

    @property
    def in_progress(self) -> bool:
        return self.phase in ("forward", "proved", "back")


def new_record(gateway: GatewayContext, old: ContainerView) -> UpgradeRecord:
    """The record of an upgrade from this container to the image in the gateway's spec."""
    now = datetime.now(UTC)
    return UpgradeRecord(
        id=f"{now:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}",
        taken_at=format_timestamp(now),
        image=old.image,
        image_id=old.image_id,
        kubernetes=container_kubernetes_version(gateway, old),
        node_started_at=old.started_at,
        target=gateway.spec.image,
        target_kubernetes=target_kubernetes_version(gateway),
    )


def read_record(gateway: GatewayContext) -> UpgradeRecord | None:
    """Read the record through the parked or the current container; None if there is none."""
    return decode_record(gateway, _read_state_file(gateway, RECORD_FILE))


def _read_state_file(gateway: GatewayContext, path: str) -> bytes | None:
    container = gateway.parked_container() or gateway.container()
    if container is None:
        return None
    return read_file(gateway.engine, container.name, f"{gateway.contract.state_path}/{path}")


def decode_record(gateway: GatewayContext, raw: bytes | None) -> UpgradeRecord | None:
    """Decode the record of an upgrade; None without a file.

    Raises:
        CorruptFileError: the file is not a record.
    """
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=UpgradeRecord)
    except msgspec.MsgspecError as error:
        raise CorruptFileError(
            f"gateway {gateway.name}: invalid upgrade record: {error}",
            hint=f"Repair {RECORD_FILE} on the volume {gateway.object_name}. The old container is "
            f"{gateway.parked_name}.",
        ) from error


def is_at_target(gateway: GatewayContext) -> bool:
    """Whether the gateway runs the image in its spec and no upgrade is unfinished."""
    container = gateway.container()
    if container is None or gateway.parked_container() is not None:
        return False
    target = find_image(gateway.engine, gateway.spec.image)
    return target is not None and target.id == container.image_id


# `_run_script` passes these arguments to every script below.
_BEGIN = "set -eu\ndata=$1 id=$2 record=$3\n"

# The content is on disk before the rename: after a power failure the record is the old or the new one,
# never an empty file.
_WRITE_RECORD_COMMANDS = f"""
printf %s "$record" > {RECORD_FILE}.new
sync -f .
mv -T {RECORD_FILE}.new {RECORD_FILE}
sync -f .
"""

# Everything that needs space is written before the first rename; the trap removes a copy that did not fit.
# The snapshot is renamed before the record: a record never names a snapshot that is not complete.
# Mode 700, because the datastore contains every Secret of the cluster.
_TAKE_SCRIPT = f"""{_BEGIN}
trap 'rm -rf "{SNAPSHOTS_DIR}/$id.partial"' EXIT
rm -rf {SNAPSHOTS_DIR}/*.partial "$data.new" "$data.new.partial" "$data.failed"
mkdir -p {SNAPSHOTS_DIR} && chmod 700 {SNAPSHOTS_DIR}
mkdir "{SNAPSHOTS_DIR}/$id.partial"
cp -a "$data" "{SNAPSHOTS_DIR}/$id.partial/data"
if [ -f version.json ]; then cp -a version.json "{SNAPSHOTS_DIR}/$id.partial/"; fi
printf %s "$record" > "{SNAPSHOTS_DIR}/$id.partial/about.json"
printf %s "$record" > {RECORD_FILE}.new
sync -f .
mv -T "{SNAPSHOTS_DIR}/$id.partial" "{SNAPSHOTS_DIR}/$id"
sync -f .
mv -T {RECORD_FILE}.new {RECORD_FILE}
sync -f .
du -sk "{SNAPSHOTS_DIR}/$id" | cut -f 1
"""

# A running datastore deletes files while `du` counts them; errors about them are ignored.
_SPACE_SCRIPT = """data=$1
du -sk "$data" 2>/dev/null | tail -n 1
df -Pk . | tail -n 1
"""

# `$data.failed` exists once the swap has begun: the failed files are moved away only once.
# One command per line: with `set -e`, a failing `a` in `a && b` does not stop the shell.
# The marker is written last. Once it exists, a repeated script changes nothing: the old node may have
# written to the restored datastore since.
_RESTORE_SCRIPT = f"""{_BEGIN}
if [ -e "{SNAPSHOTS_DIR}/$id/{_RESTORED_MARKER}" ]; then exit 0; fi
trap 'rm -rf "$data.new.partial"' EXIT
if [ ! -d "$data.failed" ]; then
  rm -rf "$data.new" "$data.new.partial"
  cp -a "{SNAPSHOTS_DIR}/$id/data" "$data.new.partial"
  sync -f .
  mv -T "$data.new.partial" "$data.new"
  mkdir -p "$data"
  mv -T "$data" "$data.failed"
fi
if [ -d "$data.new" ]; then mv -T "$data.new" "$data"; fi
if [ ! -d "$data" ]; then echo "the datastore does not exist"; exit 1; fi
if [ -f "{SNAPSHOTS_DIR}/$id/version.json" ]; then
  cp -a "{SNAPSHOTS_DIR}/$id/version.json" version.json.new
  mv -T version.json.new version.json
else
  rm -f version.json
fi
sync -f .
: > "{SNAPSHOTS_DIR}/$id/{_RESTORED_MARKER}"
sync -f .
"""

_MARK_ROLLBACK_SCRIPT = f"""{_BEGIN}
if [ ! -d "{SNAPSHOTS_DIR}/$id/data" ]; then echo "no snapshot $id: rollback is not possible"; exit 1; fi
{_WRITE_RECORD_COMMANDS}
"""

# Ids start with the time of the snapshot, so a reverse sort lists the newest first.
_FINISH_UPGRADE_SCRIPT = f"""{_BEGIN}
{_WRITE_RECORD_COMMANDS}
ls -1 {SNAPSHOTS_DIR} | sort -r | tail -n +{KEPT_SNAPSHOTS + 1} | while read -r old; do
  if [ "$old" != "$id" ]; then rm -rf "{SNAPSHOTS_DIR}/$old"; fi
done
"""

# Snapshots of successful upgrades are kept; of restored ones, only the last.
# The record is written last: after a kill it still has the phase `back`, and the next command continues.
_FINISH_ROLLBACK_SCRIPT = f"""{_BEGIN}
rm -rf "$data.failed"
for old in {SNAPSHOTS_DIR}/*; do
  if [ -e "$old/{_RESTORED_MARKER}" ] && [ "$old" != "{SNAPSHOTS_DIR}/$id" ]; then rm -rf "$old"; fi
done
{_WRITE_RECORD_COMMANDS}
"""


def volume_job_for(gateway: GatewayContext, image: str) -> VolumeJob:
    """A one-off container of this image with the gateway's volume."""
    return VolumeJob(
        name=f"helper-of-{gateway.object_name}",  # not a valid name of a gateway's container
        gateway=gateway.name,
        image=image,
        volume=gateway.object_name,
        mount_path=gateway.contract.state_path,
        timeout=gateway.settings.timeouts.snapshot,
    )


def _run_script(gateway: GatewayContext, record: UpgradeRecord, script: str, image: str = "") -> str:
    """Run a script for one upgrade on the volume, by default with the old image; return its output."""
    # Arguments, never part of the script: the reason in the record quotes error messages and log lines.
    arguments = (gateway.contract.datastore, record.id, msgspec.json.encode(record).decode())
    return _run_job(gateway, image or record.image_id, script, *arguments)


def _run_job(gateway: GatewayContext, image: str, script: str, *arguments: str) -> str:
    try:
        return volume_job_for(gateway, image).run(gateway.engine, script, *arguments)
    except WaitTimeoutError as error:
        hint = "Raise the timeout, for example HOLDFAST_TIMEOUTS_SNAPSHOT=2h, and run the same command again."
        raise WaitTimeoutError(error.message, hint=hint) from error


def remove_leftover_job(gateway: GatewayContext) -> None:
    """Remove the helper container of a killed command."""
    volume_job_for(gateway, "").remove_leftover(gateway.engine)


class VolumeSpace(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that the datastore uses, and bytes that are free on its volume."""

    data: int
    free: int


def measure_space(gateway: GatewayContext, container: ContainerView) -> VolumeSpace:
    """Measure on the volume itself, which may be a separate disk; in the node if it runs."""
    datastore = gateway.contract.datastore
    if container.state != "running":
        return _parse_space(_run_job(gateway, container.image_id, _SPACE_SCRIPT, datastore))
    command = ["/bin/sh", "-c", f'cd "$0" && {_SPACE_SCRIPT}', gateway.contract.state_path, datastore]
    return _parse_space(run_in_container(gateway.engine, container.name, command).output)


def _parse_space(output: str) -> VolumeSpace:
    """Parse the last lines of `du` and `df`, in kilobytes; `du` prints nothing for a missing datastore."""
    lines = [line.split() for line in output.strip().splitlines()]
    if not lines or len(lines[-1]) < _DF_COLUMNS or not lines[-1][3].isdigit():
        raise ContainerEngineError(f"cannot parse the free space of the volume: {output.strip()!r}")
    used = lines[0][0] if len(lines) > 1 else "0"
    return VolumeSpace(data=int(used) * 1024, free=int(lines[-1][3]) * 1024)


def take_snapshot(gateway: GatewayContext, record: UpgradeRecord) -> float:
    """Copy the datastore and write the record; return the size of the copy in megabytes."""
    return int(_run_script(gateway, record, _TAKE_SCRIPT).split()[-1]) / 1000


def restore_snapshot(gateway: GatewayContext, record: UpgradeRecord, image: str = "") -> None:
    """Replace the datastore with its snapshot; the replaced files are kept until `finish_rollback`."""
    _run_script(gateway, record, _RESTORE_SCRIPT, image)


def is_restored(gateway: GatewayContext, record: UpgradeRecord) -> bool:
    """Whether the snapshot of an upgrade has replaced the datastore."""
    return _read_state_file(gateway, f"{record.snapshot}/{_RESTORED_MARKER}") is not None


def write_record(gateway: GatewayContext, record: UpgradeRecord) -> None:
    """Write the record; phase `back` is written only while the snapshot exists."""
    is_rollback = record.phase == "back"
    _run_script(gateway, record, _MARK_ROLLBACK_SCRIPT if is_rollback else _BEGIN + _WRITE_RECORD_COMMANDS)


def finish_upgrade(gateway: GatewayContext, record: UpgradeRecord) -> None:
    """Write the final record and delete all but the newest snapshots."""
    _run_script(gateway, record, _FINISH_UPGRADE_SCRIPT)


def finish_rollback(gateway: GatewayContext, record: UpgradeRecord, image: str = "") -> None:
    """Write the final record and delete the files of the failed version."""
    _run_script(gateway, record, _FINISH_ROLLBACK_SCRIPT, image)


def read_orphaned_record(gateway: GatewayContext) -> UpgradeRecord | None:
    """Read the record of a volume that has no container."""
    raw = volume_job_for(gateway, gateway.spec.image).read_file(gateway.engine, RECORD_FILE)
    return decode_record(gateway, raw)


def read_data_version(gateway: GatewayContext) -> str:
    """Read the Kubernetes version that the node wrote to a volume without a container; empty if unknown."""
    raw = volume_job_for(gateway, gateway.spec.image).read_file(gateway.engine, "version.json")
    try:
        return msgspec.json.decode(raw or b"{}", type=_NodeVersionFile).kubernetes
    except msgspec.MsgspecError:
        return ""


class _NodeVersionFile(msgspec.Struct, frozen=True):
    kubernetes: str = ""
