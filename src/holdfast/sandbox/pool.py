"""What is to be done for one warm pool, from what is there: the right number of sandboxes, waiting and fresh.

Pure and level-triggered like decide.py. Not here: claims, which take sandboxes out of a pool (claim.py).
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 (msgspec reads the types of its fields)
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.sandbox import blueprint
from holdfast.sandbox.actions import Action, Create, Delete
from holdfast.sandbox.api import TEMPLATE_HASH, WARM_POOL, Condition, Reason
from holdfast.sandbox.names import name_hash
from holdfast.sandbox.ownership import is_owned
from holdfast.sandbox.status import Said, is_leaving, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool, its template if there is one, and every sandbox that may be the pool's."""

    pool: dict[str, Any]
    template: dict[str, Any] | None
    now: datetime
    sandboxes: tuple[dict[str, Any], ...] = ()


class PoolDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and what the pool's status is to be."""

    actions: tuple[Action, ...] = ()
    status: dict[str, Any] | None = None


def decide_pool(seen: Pool, new_name: Callable[[], str]) -> PoolDecision:
    """Compare the number that is wanted with those that wait; `new_name` gives names that nobody has."""
    if is_leaving(seen.pool):
        return PoolDecision()
    waiting = [one for one in seen.sandboxes if is_owned(one, seen.pool) and not is_leaving(one)]
    spent = [one for one in waiting if is_spent(one, seen.pool, seen.template)]
    fresh = [one for one in waiting if one not in spent]
    wanted = int(seen.pool["spec"].get("replicas", 1))
    surplus = sorted(fresh, key=_worth)[: max(0, len(fresh) - wanted)]
    # A claim may take one before its turn comes: then it is not the pool's to delete any more.
    actions: list[Action] = [Delete.as_seen(one) for one in (*spent, *surplus)]
    if seen.template is not None:
        missing = wanted - len(fresh)
        actions += [
            Create(manifest=blueprint.warm(new_name(), seen.pool, seen.template)) for _ in range(missing)
        ]
    return PoolDecision(actions=tuple(actions), status=_status(seen.pool, fresh))


def refused_pool(seen: Pool, words: str) -> dict[str, Any] | None:
    """The status of a pool whose sandboxes the server refuses: what it has, and the server's words."""
    if is_leaving(seen.pool):
        return None
    waiting = [one for one in seen.sandboxes if is_owned(one, seen.pool) and not is_leaving(one)]
    fresh = [one for one in waiting if not is_spent(one, seen.pool, seen.template)]
    said = [Said(Condition.READY, "False", Reason.RECONCILER_ERROR, words)]
    old = (seen.pool.get("status") or {}).get("conditions") or ()
    generation = seen.pool["metadata"].get("generation", 0)
    told = merged(old, said, generation=generation, now=seen.now)
    return {**_status(seen.pool, fresh), "conditions": told}


def is_ready(sandbox: Mapping[str, Any]) -> bool:
    """Whether a sandbox says that it can be used."""
    return condition(sandbox, Condition.READY).get("status") == "True"


def condition(found: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """One condition of an object; empty where it has none of that kind."""
    conditions = (found.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def is_spent(sandbox: Mapping[str, Any], pool: Mapping[str, Any], template: Mapping[str, Any] | None) -> bool:
    """One that ended can serve nobody; one of an older template goes where the pool asks for that."""
    if condition(sandbox, Condition.FINISHED).get("status") == "True":
        return True
    strategy = (pool["spec"].get("updateStrategy") or {}).get("type", "OnReplenish")
    return strategy == "Recreate" and template is not None and not is_made_from(sandbox, template)


def is_made_from(sandbox: Mapping[str, Any], template: Mapping[str, Any]) -> bool:
    """Whether a sandbox of a pool is what its template makes today."""
    made_from = (sandbox["metadata"].get("labels") or {}).get(TEMPLATE_HASH)
    return bool(made_from == blueprint.template_hash(template))


def _worth(sandbox: Mapping[str, Any]) -> tuple[bool, str, str]:
    """What goes first when there are too many: those that are not ready, then the oldest."""
    metadata = sandbox["metadata"]
    return is_ready(sandbox), metadata.get("creationTimestamp", ""), metadata["name"]


def _status(pool: Mapping[str, Any], fresh: list[dict[str, Any]]) -> dict[str, Any]:
    metadata = pool["metadata"]
    return {
        "replicas": len(fresh),
        "readyReplicas": sum(is_ready(one) for one in fresh),
        "selector": f"{WARM_POOL}={name_hash(metadata['name'])}",
        "observedGeneration": metadata.get("generation", 0),
    }
