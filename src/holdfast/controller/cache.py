"""What the API server has, as far as it has told us: by name, by owner and by tracking label.

Watches and answers to our own writes both end here, and the newer one stays: what we have just made is known
before the watch tells of it. Not here: watching, and what to do about it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.sandbox.api import NAME_HASH, ClaimReason, Condition
from holdfast.sandbox.names import name_hash
from holdfast.sandbox.ownership import controller_of
from holdfast.sandbox.status import condition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Key: TypeAlias = tuple[str, str, str]
"""Kind, namespace and name."""


class Cache:
    """All objects that matter to sandboxes, found without a search."""

    def __init__(self) -> None:
        self._objects: dict[Key, dict[str, Any]] = {}
        self._by_kind: dict[str, set[Key]] = defaultdict(set)
        self._by_owner: dict[tuple[str, str], set[Key]] = defaultdict(set)
        self._by_hash: dict[tuple[str, str, str], set[Key]] = defaultdict(set)
        self._by_pool: dict[tuple[str, str], set[Key]] = defaultdict(set)
        self._by_reason: dict[str, set[Key]] = defaultdict(set)
        self._gone: dict[str, int] = {}

    def __len__(self) -> int:
        """How many objects are known."""
        return len(self._objects)

    def put(self, found: dict[str, Any], *, asked: bool = False) -> bool:
        """Keep an object unless a newer one is known; True when it was news.

        `asked`: the server was asked for it by its name. A watch by label calls an object gone that has lost
        the label, in the very version in which it lives on; a delete gives it a later one.
        """
        key, version = key_of(found), version_of(found)
        known = self._objects.get(key)
        uid = found["metadata"]["uid"]
        grave = self._gone.get(uid, -1)
        if grave > version or (grave == version and not asked):
            return False
        if known is not None and known["metadata"]["uid"] == uid and version_of(known) >= version:
            return False
        if known is not None:
            self._unlink(key, known)
        self._objects[key] = found
        for index, entry in self._entries(key, found):
            index[entry].add(key)
        return True

    def drop(self, found: Mapping[str, Any]) -> bool:
        """This very object is gone, and no late answer brings it back; True when it was known."""
        self._gone[found["metadata"]["uid"]] = version_of(found)
        if len(self._gone) > _MOST_GRAVES:
            del self._gone[next(iter(self._gone))]
        return self.forget(found)

    def forget(self, found: Mapping[str, Any]) -> bool:
        """Know nothing of this very object any more; True when it was known."""
        key = key_of(found)
        known = self._objects.get(key)
        if known is None or known["metadata"]["uid"] != found["metadata"]["uid"]:
            return False
        self._unlink(key, known)
        del self._objects[key]
        return True

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """One object by its name."""
        return self._objects.get((kind, namespace, name))

    def owned(self, kind: str, owner: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The objects of a kind that one owner controls, by name."""
        keys = self._by_owner.get((kind, owner["metadata"]["uid"]), ())
        return [self._objects[key] for key in sorted(keys)]

    def tracked(self, kind: str, namespace: str, sandbox: str) -> list[dict[str, Any]]:
        """The objects of a kind that carry the tracking label of a sandbox, by name."""
        keys = self._by_hash.get((kind, namespace, name_hash(sandbox)), ())
        return [self._objects[key] for key in sorted(keys)]

    def sandboxes_with_hash(self, namespace: str, value: str) -> list[dict[str, Any]]:
        """The sandboxes that a tracking label may mean: one, unless two names have the same hash."""
        keys = self._by_hash.get(("Sandbox", namespace, value), ())
        return [self._objects[key] for key in sorted(keys)]

    def claims_waiting_for(self, namespace: str, pool: str) -> list[dict[str, Any]]:
        """The claims that still wait for a sandbox of a pool."""
        return [self._objects[key] for key in sorted(self._by_pool.get((namespace, pool), ()))]

    def claims_with_bad_metadata(self) -> list[dict[str, Any]]:
        """The claims that say they are not ready because of their labels, with or without a sandbox."""
        return [self._objects[key] for key in sorted(self._by_reason.get(ClaimReason.INVALID_METADATA, ()))]

    def all(self, kind: str) -> Iterator[dict[str, Any]]:
        """Every object of a kind, and no look at the others."""
        return (self._objects[key] for key in self._by_kind.get(kind, ()))

    def _unlink(self, key: Key, known: Mapping[str, Any]) -> None:
        for index, entry in self._entries(key, known):
            index[entry].discard(key)
            if not index[entry]:
                del index[entry]

    def _entries(self, key: Key, found: Mapping[str, Any]) -> Iterator[tuple[dict[Any, set[Key]], Any]]:
        kind, namespace, name = key
        yield self._by_kind, kind
        owner = controller_of(found)
        if owner is not None:
            yield self._by_owner, (kind, owner["uid"])
        label = (
            name_hash(name) if kind == "Sandbox" else (found["metadata"].get("labels") or {}).get(NAME_HASH)
        )
        if label:
            yield self._by_hash, (kind, namespace, label)
        if kind == "SandboxClaim" and not ((found.get("status") or {}).get("sandbox") or {}).get("name"):
            yield self._by_pool, (namespace, found["spec"]["warmPoolRef"]["name"])
        if kind == "SandboxClaim" and (reason := condition(found, Condition.READY).get("reason")):
            yield self._by_reason, reason


_MOST_GRAVES = 4096
"""How many deleted objects are remembered, so that a late answer does not bring one back."""


def key_of(found: Mapping[str, Any]) -> Key:
    """Where an object belongs."""
    metadata = found["metadata"]
    return found["kind"], metadata.get("namespace", ""), metadata["name"]


def version_of(found: Mapping[str, Any]) -> int:
    """Which of two states of an object is the newer one; 0 where the server does not count."""
    text = str(found["metadata"].get("resourceVersion") or "0")
    return int(text) if text.isdigit() else 0
