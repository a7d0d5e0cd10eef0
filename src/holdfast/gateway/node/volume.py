"""Steps for the gateway's volume and the data on it. Nothing here removes a volume.

The API server's storage and the datastore's format change by one minor version at a time, and only forward;
etcd rejects data of a newer minor version. Patch releases of one minor version are compatible both ways.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from holdfast.containers import create_volume
from holdfast.errors import ImageIncompatibleError, TemporaryError
from holdfast.gateway.base_steps import GatewayStep
from holdfast.gateway.upgrade import datastore, target_kubernetes_version
from holdfast.workflow import ProbeResult, absent, done

if TYPE_CHECKING:
    from holdfast.gateway.upgrade import UpgradeRecord
    from holdfast.workflow import StepContext

_VERSION_PATTERN = re.compile(r"v?(\d{1,5})\.(\d{1,5})\.(\d{1,5})(?:[-+].*)?", re.ASCII)


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
        # This run created the volume, so it is empty: no helper container has to read it.
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
        check_data_version(version, target, self.gateway.spec.image)

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


class KubernetesVersion(msgspec.Struct, frozen=True, order=True):
    """A Kubernetes version without its pre-release and build parts."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"v{self.major}.{self.minor}.{self.patch}"

    @property
    def series(self) -> str:
        return f"{self.major}.{self.minor}"


def parse_version(text: str) -> KubernetesVersion | None:
    match = _VERSION_PATTERN.fullmatch(text.strip())
    return KubernetesVersion(*(int(part) for part in match.groups())) if match else None


def check_version_skew(current: str, target: str, image: str) -> None:
    """Refuse to upgrade to an image whose Kubernetes cannot use the data of the current version.

    Raises:
        ImageIncompatibleError: The major version differs, the minor version is older, or one is skipped.
    """
    old, new = _require_version(current, "the gateway's current image"), _require_version(target, image)
    next_series = f"{old.major}.{old.minor + 1}"
    if new.major != old.major:
        reason = "another major version cannot use its data"
    elif new.minor < old.minor:
        reason = "its datastore cannot be used by an older minor version"
    elif new.minor > old.minor + 1:
        reason = "minor versions cannot be skipped"
    else:
        return
    is_newer = (new.major, new.minor) > (old.major, old.minor)
    hint = (
        f"Upgrade to {next_series} first." if is_newer else f"Use an image of {old.series} or {next_series}."
    )
    raise ImageIncompatibleError(
        f"image {image}: Kubernetes {new}, but the gateway has {old}: {reason}; nothing was changed",
        hint=hint,
    )


def check_data_version(data: str, target: str, image: str) -> None:
    """Refuse to open a volume without a container with a version that would change its data.

    A rollback would not be possible without the old container, so only the same minor version is allowed, and
    no older patch release.
    """
    old, new = parse_version(data), parse_version(target)
    if old is None or new is None or (old.series == new.series and old <= new):
        return
    raise ImageIncompatibleError(
        f"image {image}: Kubernetes {new}, but the gateway's data has {old}; nothing was changed",
        hint=f"Repeat `up` with an image of {old.series} (--image), then upgrade the gateway.",
    )


def _require_version(text: str, owner: str) -> KubernetesVersion:
    version = parse_version(text)
    if version is None:
        raise ImageIncompatibleError(
            f"{owner}: no valid Kubernetes version ({text!r}); nothing was changed",
            hint="A node image has it in the label dev.holdfast.kubernetes.",
        )
    return version
