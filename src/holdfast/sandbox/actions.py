"""The few things a decision may ask for; each names the very object it means, by uid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from holdfast.sandbox.names import tracking
from holdfast.sandbox.ownership import owner_reference

if TYPE_CHECKING:
    from collections.abc import Mapping


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One object, and no other that may come under its name."""

    api_version: str
    kind: str
    name: str
    namespace: str
    uid: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name."""
        return self.kind, self.namespace, self.name

    @classmethod
    def named(cls, found: Mapping[str, Any]) -> Target:
        metadata = found["metadata"]
        return cls(
            api_version=found.get("apiVersion") or "v1",
            kind=found["kind"],
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
        )


class Create(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Make an object; one that is there already is for the next look."""

    manifest: dict[str, Any]


class Patch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Change an object's metadata by a merge patch."""

    target: Target
    patch: dict[str, Any]

    @classmethod
    def of(cls, found: Mapping[str, Any], patch: dict[str, Any]) -> Patch:
        return cls(target=Target.named(found), patch=patch)


class Adopt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Become the owner of an object that has none, as it is at this version and not later."""

    target: Target
    patch: dict[str, Any]

    @classmethod
    def of(cls, found: Mapping[str, Any], sandbox: Mapping[str, Any]) -> Adopt:
        metadata = found["metadata"]
        references = [*(metadata.get("ownerReferences") or ()), owner_reference(sandbox)]
        patch = {
            "metadata": {
                "resourceVersion": metadata.get("resourceVersion"),
                "ownerReferences": references,
                "labels": tracking(sandbox["metadata"]["name"]),
            }
        }
        return cls(target=Target.named(found), patch=patch)


class Delete(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Delete this very object; with a version only as it was then, and not if somebody took it since."""

    target: Target
    propagation: str | None = None
    version: str | None = None

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Delete:
        return cls(target=Target.named(found))

    @classmethod
    def as_seen(cls, found: Mapping[str, Any]) -> Delete:
        return cls(target=Target.named(found), version=found["metadata"].get("resourceVersion"))


Action: TypeAlias = Create | Patch | Adopt | Delete
