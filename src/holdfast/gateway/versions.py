"""Kubernetes versions of node images and containers, and which of them can use the data of another.

The API server's storage and the datastore's format change by one minor version at a time, and only forward;
etcd rejects data of a newer minor version. Patch releases of one minor version are compatible both ways.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from holdfast.containers import find_image, labels
from holdfast.errors import ImageIncompatibleError

if TYPE_CHECKING:
    from holdfast.containers import ContainerView
    from holdfast.gateway.context import GatewayContext

_VERSION_PATTERN = re.compile(r"v?(\d{1,5})\.(\d{1,5})\.(\d{1,5})(?:[-+].*)?", re.ASCII)


def container_kubernetes_version(gateway: GatewayContext, container: ContainerView) -> str:
    """The Kubernetes version in the label of the container's image, else of the container."""
    image = find_image(gateway.engine, container.image_id)
    return (image.labels if image else container.labels).get(labels.KUBERNETES, "")


def target_kubernetes_version(gateway: GatewayContext) -> str:
    """The Kubernetes version of the image in the gateway's spec; empty if it is not on the engine."""
    image = find_image(gateway.engine, gateway.spec.image)
    return image.labels.get(labels.KUBERNETES, "") if image is not None else ""


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
    """Parse a version such as `v1.33.4`; None if the text has another form."""
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
    hint = f"Upgrade to {next_series} first."
    if new < old:
        hint = f"Use an image of {old.series} or {next_series}."
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
            hint="Use a node image, which has the version in the label dev.holdfast.kubernetes.",
        )
    return version
