"""Local store of watched objects, indexed by name, owner and tracking label.

Watch events and responses to writes both update it, and the newer resourceVersion wins: an object that the
controller has just created is known before its watch event arrives.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.api import NAME_HASH_LABEL, WARM_POOL_LABEL, ConditionType, SandboxClaimReason
from holdfast.sandbox import (
    bound_sandbox_name,
    controller_of,
    find_condition,
    is_managed_policy,
    name_hash,
    selected_labels,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ObjectKey: TypeAlias = tuple[str, str, str]
"""kind, namespace and name"""


class ObjectCache:
    """Objects with indexes; every lookup is a dictionary access."""

    def __init__(self) -> None:
        self._objects: dict[ObjectKey, dict[str, Any]] = {}
        self._by_kind: dict[str, set[ObjectKey]] = defaultdict(set)
        self._by_owner: dict[tuple[str, str], set[ObjectKey]] = defaultdict(set)
        self._by_name_hash: dict[tuple[str, str, str], set[ObjectKey]] = defaultdict(set)
        self._unbound_claims_by_pool: dict[tuple[str, str], set[ObjectKey]] = defaultdict(set)
        self._pending_claims_by_pool: dict[tuple[str, str], set[ObjectKey]] = defaultdict(set)
        self._orphans_by_pool: dict[tuple[str, str], set[ObjectKey]] = defaultdict(set)
        self._claims_by_reason: dict[str, set[ObjectKey]] = defaultdict(set)
        self._policies_by_label: dict[tuple[str, str, str], set[ObjectKey]] = defaultdict(set)
        self._tombstones: dict[str, int] = {}

    def __len__(self) -> int:
        """Number of objects."""
        return len(self._objects)

    def put(self, obj: dict[str, Any], *, read_by_name: bool = False) -> bool:
        """Store an object unless a newer version is known.

        Args:
            obj: The object.
            read_by_name: The object comes from a GET. A watch with a label selector reports an object that
                lost the label as deleted, in the version in which it continues to exist; a real deletion has
                a later version.

        Returns:
            Whether the cache changed.
        """
        # A response to a write can arrive after a newer watch event, so the version decides, not the order.
        key, version = object_key(obj), resource_version(obj)
        known = self._objects.get(key)
        uid = obj["metadata"]["uid"]
        deleted_version = self._tombstones.get(uid, -1)
        if deleted_version > version or (deleted_version == version and not read_by_name):
            return False
        if known is not None and known["metadata"]["uid"] == uid and resource_version(known) >= version:
            return False
        if known is not None:
            self._remove_from_indexes(key, known)
        self._objects[key] = obj
        for index, entry in self._index_entries(key, obj):
            index[entry].add(key)
        return True

    def delete(self, obj: Mapping[str, Any]) -> bool:
        """Remove a deleted object; late responses do not restore it. Returns whether it was known."""
        # Keyed by uid, so that a successor of the same name can be stored.
        self._tombstones[obj["metadata"]["uid"]] = resource_version(obj)
        if len(self._tombstones) > _MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]
        return self.evict(obj)

    def evict(self, obj: Mapping[str, Any]) -> bool:
        """Remove an object without recording a deletion. Returns whether it was known."""
        key = object_key(obj)
        known = self._objects.get(key)
        if known is None or known["metadata"]["uid"] != obj["metadata"]["uid"]:
            return False
        self._remove_from_indexes(key, known)
        del self._objects[key]
        return True

    def mark_deleted(self, kind: str, namespace: str, name: str, *, uid: str) -> None:
        """Mark an object whose deletion the API server has accepted; its next version replaces the mark."""
        known = self._objects.get((kind, namespace, name))
        if known is None or known["metadata"]["uid"] != uid or known["metadata"].get("deletionTimestamp"):
            return
        # A copy: reconcilers may still use the known object.
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {**known["metadata"], "deletionTimestamp": now}
        self._objects[kind, namespace, name] = {**known, "metadata": metadata}

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return one object."""
        return self._objects.get((kind, namespace, name))

    def list_owned(self, kind: str, owner: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the objects of a kind that an owner controls, sorted by name."""
        return self._sorted(self._by_owner.get((kind, owner["metadata"]["uid"])))

    def list_tracked(self, kind: str, namespace: str, name_hash_label: str) -> list[dict[str, Any]]:
        """Return the objects of a kind with a tracking label, sorted by name.

        More than one sandbox has the same label only if two names have the same hash.
        """
        return self._sorted(self._by_name_hash.get((kind, namespace, name_hash_label)))

    def list_unbound_claims(self, namespace: str, pool: str) -> list[dict[str, Any]]:
        """Return the SandboxClaims of a pool that have no sandbox, rejected ones too."""
        return self._sorted(self._unbound_claims_by_pool.get((namespace, pool)))

    def list_pending_claims(self, namespace: str, pool: str) -> list[dict[str, Any]]:
        """Return the SandboxClaims that wait for a sandbox of a pool; not those that are rejected."""
        return self._sorted(self._pending_claims_by_pool.get((namespace, pool)))

    def list_pool_orphans(self, namespace: str, pool: str) -> list[dict[str, Any]]:
        """Return the sandboxes with the label of a pool that have no controller."""
        return self._sorted(self._orphans_by_pool.get((namespace, name_hash(pool))))

    def list_claims_with_invalid_metadata(self) -> list[dict[str, Any]]:
        """Return the SandboxClaims that are not ready because of their metadata."""
        return self._sorted(self._claims_by_reason.get(SandboxClaimReason.INVALID_METADATA))

    def list_policies_selecting(self, namespace: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the managed network policies that may select pods with these labels."""
        keys: set[ObjectKey] = set()
        for key, value in labels.items():
            keys |= self._policies_by_label.get((namespace, key, value), set())
        return self._sorted(keys)

    def _sorted(self, keys: set[ObjectKey] | None) -> list[dict[str, Any]]:
        return [self._objects[key] for key in sorted(keys or ())]

    def iter_kind(self, kind: str) -> Iterator[dict[str, Any]]:
        """Iterate over the objects of a kind."""
        return (self._objects[key] for key in self._by_kind.get(kind, ()))

    def _remove_from_indexes(self, key: ObjectKey, obj: Mapping[str, Any]) -> None:
        for index, entry in self._index_entries(key, obj):
            index[entry].discard(key)
            if not index[entry]:
                del index[entry]

    def _index_entries(
        self, key: ObjectKey, obj: Mapping[str, Any]
    ) -> Iterator[tuple[dict[Any, set[ObjectKey]], Any]]:
        kind, namespace, name = key
        yield self._by_kind, kind
        owner = controller_of(obj)
        if owner is not None:
            yield self._by_owner, (kind, owner["uid"])
        label = (
            name_hash(name)
            if kind == "Sandbox"
            else (obj["metadata"].get("labels") or {}).get(NAME_HASH_LABEL)
        )
        if label:
            yield self._by_name_hash, (kind, namespace, label)
        if kind == "Sandbox" and owner is None:
            pool = (obj["metadata"].get("labels") or {}).get(WARM_POOL_LABEL)
            if pool:
                yield self._orphans_by_pool, (namespace, pool)
        reason = find_condition(obj, ConditionType.READY).get("reason") if kind == "SandboxClaim" else None
        if kind == "SandboxClaim" and not bound_sandbox_name(obj):
            pool_key = namespace, obj["spec"]["warmPoolRef"]["name"]
            yield self._unbound_claims_by_pool, pool_key
            if reason not in _FINAL_REASONS:
                yield self._pending_claims_by_pool, pool_key
        if kind == "NetworkPolicy" and is_managed_policy(obj):
            for selected, value in selected_labels(obj).items():
                yield self._policies_by_label, (namespace, selected, value)
        if reason:
            yield self._claims_by_reason, reason


_FINAL_REASONS = frozenset({
    SandboxClaimReason.INVALID_METADATA, SandboxClaimReason.ENV_VARS_INJECTION_REJECTED,
    SandboxClaimReason.VOLUME_CLAIM_TEMPLATES_ERROR, SandboxClaimReason.CLAIM_EXPIRED,
})  # fmt: skip
"""Reasons of SandboxClaims that need an edit of them, of their pool or of its template, and not a sandbox."""
_MAX_TOMBSTONES = 4096
"""Number of remembered deletions, which keep late responses from restoring a deleted object."""


def object_key(obj: Mapping[str, Any]) -> ObjectKey:
    """Return the key of an object."""
    metadata = obj["metadata"]
    return obj["kind"], metadata.get("namespace", ""), metadata["name"]


def resource_version(obj: Mapping[str, Any]) -> int:
    """Return the resourceVersion as a comparable number; 0 if it is not numeric."""
    # The API declares versions opaque. With etcd they are revisions: numbers that grow with every write.
    text = str(obj["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdigit() else 0
