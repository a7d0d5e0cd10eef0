"""Which Kubernetes may follow which on the same data: pure rules.

The API server's storage and the datastore's own format go one minor at a time, and only forward; etcd
refuses a datastore of a newer minor. Patch releases of one minor share both, so they may go either way.
Not here: where versions are read.
"""

from __future__ import annotations

import re

import msgspec

from holdfast.errors import ImageUnfitError

_VERSION = re.compile(r"v?(\d{1,5})\.(\d{1,5})\.(\d{1,5})(?:[-+].*)?", re.ASCII)


class Version(msgspec.Struct, frozen=True, order=True):
    """A version of Kubernetes; what follows a dash or a plus does not count."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"v{self.major}.{self.minor}.{self.patch}"

    @property
    def series(self) -> str:
        return f"{self.major}.{self.minor}"


def parse(text: str) -> Version | None:
    """The version that a label or a file names; None where it names none."""
    match = _VERSION.fullmatch(text.strip())
    return Version(*(int(part) for part in match.groups())) if match else None


def check_upgrade(now: str, then: str, image: str) -> None:
    """Refuse an image whose Kubernetes may not take over the data of the one that runs, and say why."""
    old, new = _known(now, "what the gateway runs"), _known(then, image)
    why = _why_not(old, new)
    if why:
        raise ImageUnfitError(
            f"the gateway has Kubernetes {old}, and {image} has {new}: {why}; nothing was changed",
            hint=_way_out(old, new),
        )


def check_data(data: str, then: str, image: str) -> None:
    """Refuse to open data that nothing but a volume is left of with a version that would change its form.

    There is no old container to go back to, so only the same minor will do, and no older patch.
    """
    old, new = parse(data), parse(then)
    if old is None or new is None or (old.series == new.series and old <= new):
        return
    raise ImageUnfitError(
        f"the gateway's data is of Kubernetes {old}, and {image} has {new}; nothing was changed",
        hint=f"Bring it up with an image of {old.series} (--image), then `holdfast upgrade`.",
    )


def _why_not(old: Version, new: Version) -> str:
    if new.major != old.major:
        return "another major version cannot take over its data"
    if new.minor < old.minor:
        return "its datastore cannot go back to an older minor version"
    if new.minor > old.minor + 1:
        return "minor versions cannot be skipped"
    return ""


def _way_out(old: Version, new: Version) -> str:
    if (new.major, new.minor) > (old.major, old.minor):
        return f"Upgrade to {old.major}.{old.minor + 1} first."
    return f"Use an image with Kubernetes {old.series} or {old.major}.{old.minor + 1}."


def _known(text: str, what: str) -> Version:
    found = parse(text)
    if found is None:
        raise ImageUnfitError(
            f"{what} does not say its Kubernetes version ({text!r}); nothing was changed",
            hint="A node image says it in the label dev.holdfast.kubernetes.",
        )
    return found
