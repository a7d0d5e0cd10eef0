"""What a reconciliation decides: API writes, each for an object with one UID, and the new status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from holdfast.sandbox.manifests import owner_reference, tracking_labels

if TYPE_CHECKING:
    from collections.abc import Mapping


class ActionTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One object, identified by name and UID."""

    api_version: str
    kind: str
    name: str
    namespace: str
    # A precondition of each patch and deletion: a decision about a deleted object never affects its successor
    # of the same name.
    uid: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name."""
        return self.kind, self.namespace, self.name

    @classmethod
    def from_object(cls, obj: Mapping[str, Any]) -> ActionTarget:
        """The target for an object that was observed."""
        metadata = obj["metadata"]
        return cls(
            api_version=obj.get("apiVersion") or "v1",
            kind=obj["kind"],
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
        )


class Create(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Create an object. If it exists already, the next reconciliation handles it."""

    manifest: dict[str, Any]


class Patch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Apply a merge patch to an object."""

    target: ActionTarget
    patch: dict[str, Any]

    @classmethod
    def of(cls, obj: Mapping[str, Any], patch: dict[str, Any]) -> Patch:
        """Patch an object, but not a later one of the same name."""
        return cls(target=ActionTarget.from_object(obj), patch=patch)


class Adopt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Make a sandbox the controller of an object, if the object is still at the observed version."""

    target: ActionTarget
    patch: dict[str, Any]

    @classmethod
    def of(cls, obj: Mapping[str, Any], sandbox: Mapping[str, Any]) -> Adopt:
        """Adopt an object for a sandbox."""
        metadata = obj["metadata"]
        patch = {
            # Two sandboxes may adopt at the same time: the API server accepts only the first.
            "resourceVersion": metadata.get("resourceVersion"),
            "ownerReferences": [*(metadata.get("ownerReferences") or ()), owner_reference(sandbox)],
            "labels": tracking_labels(sandbox["metadata"]["name"]),
        }
        return cls(target=ActionTarget.from_object(obj), patch={"metadata": patch})


class Delete(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Delete an object; with `resource_version`, only if it is still at that version."""

    target: ActionTarget
    propagation: str | None = None
    resource_version: str | None = None

    @classmethod
    def of(cls, obj: Mapping[str, Any], *, propagation: str | None = None) -> Delete:
        """Delete an object, but not a later one of the same name."""
        return cls(target=ActionTarget.from_object(obj), propagation=propagation)

    @classmethod
    def if_unchanged(cls, obj: Mapping[str, Any]) -> Delete:
        """Delete the object unless another writer has changed it since it was observed."""
        version = obj["metadata"].get("resourceVersion")
        return cls(target=ActionTarget.from_object(obj), resource_version=version)


Action: TypeAlias = Create | Patch | Adopt | Delete


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a reconciliation.

    Attributes:
        actions: API writes, in their order.
        status: the new status of the object; None to leave it as it is.
        after_status: API writes that follow the status.
        requeue_after: seconds until the next reconciliation.
    """

    actions: tuple[Action, ...] = ()
    status: dict[str, Any] | None = None
    after_status: tuple[Action, ...] = ()
    requeue_after: float | None = None
