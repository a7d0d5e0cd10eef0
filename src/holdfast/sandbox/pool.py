"""What is to be done for one warm pool, from what is there: the right number of sandboxes, waiting and fresh.

Pure and level-triggered like decide.py. Not here: claims, which take sandboxes out of a pool (claim.py).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.sandbox import blueprint, pool_pauses
from holdfast.sandbox.actions import Action, Create, Delete
from holdfast.sandbox.api import TEMPLATE_HASH, WARM_POOL, Condition, Reason
from holdfast.sandbox.names import name_hash
from holdfast.sandbox.ownership import is_owned
from holdfast.sandbox.status import Said, condition, is_leaving, merged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


GRACE = 300.0
"""How many seconds a waiting sandbox may be not ready."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool, its template if there is one, and every sandbox that may be the pool's."""

    pool: dict[str, Any]
    template: dict[str, Any] | None
    now: datetime
    sandboxes: tuple[dict[str, Any], ...] = ()


class PoolDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, what the pool's status is to be, and in how many seconds to look again by itself."""

    actions: tuple[Action, ...] = ()
    status: dict[str, Any] | None = None
    again_in: float | None = None


def decide_pool(seen: Pool, new_name: Callable[[], str]) -> PoolDecision:
    """Compare the number that is wanted with those that wait; `new_name` gives names that nobody has."""
    if is_leaving(seen.pool):
        return PoolDecision()
    waiting = [one for one in seen.sandboxes if is_owned(one, seen.pool) and not is_leaving(one)]
    spent = [one for one in waiting if is_spent(one, seen.pool, seen.template, seen.now)]
    fresh = [one for one in waiting if one not in spent]
    wanted = int(seen.pool["spec"].get("replicas", 1))
    held, counts = _held_back(seen, spent, wanted - len(fresh))
    spent = [one for one in spent if one["metadata"]["uid"] not in held]
    surplus = sorted(fresh, key=_worth)[: max(0, len(fresh) - wanted)]
    # A claim may take one before its turn comes: then it is not the pool's to delete any more.
    actions: list[Action] = [Delete.as_seen(one) for one in (*spent, *surplus)]
    if seen.template is not None:
        missing = max(0, wanted - len(fresh) - len(held))
        for count in [*counts, *[0] * missing][:missing]:
            made = blueprint.warm(new_name(), seen.pool, seen.template, replaced=count)
            actions.append(Create(manifest=made))
    times = [left for one in fresh if (left := _until_stuck(one, seen.now)) is not None]
    return PoolDecision(
        actions=tuple(actions),
        status=_status(seen.pool, fresh),
        again_in=min((*times, *held.values()), default=None),
    )


def _held_back(seen: Pool, spent: list[dict[str, Any]], missing: int) -> tuple[dict[str, float], list[int]]:
    """Which of those that ended stay for now, by uid and for how long; the counts of those in their place."""
    if seen.template is None:
        return {}, []
    held: dict[str, float] = {}
    counts: list[int] = []
    for one in spent:
        if not _has_ended(one):
            continue
        left = pool_pauses.seconds_left(one, seen.template, seen.now)
        if left > 0 and len(held) < missing:
            held[one["metadata"]["uid"]] = left
        else:
            counts.append(pool_pauses.count_after(one, seen.template))
    return held, sorted(counts, reverse=True)


def refused_pool(seen: Pool, words: str) -> dict[str, Any] | None:
    """The status of a pool whose sandboxes the server refuses: what it has, and the server's words."""
    if is_leaving(seen.pool):
        return None
    waiting = [one for one in seen.sandboxes if is_owned(one, seen.pool) and not is_leaving(one)]
    fresh = [one for one in waiting if not is_spent(one, seen.pool, seen.template, seen.now)]
    said = [Said(Condition.READY, "False", Reason.RECONCILER_ERROR, words)]
    old = (seen.pool.get("status") or {}).get("conditions") or ()
    generation = seen.pool["metadata"].get("generation", 0)
    told = merged(old, said, generation=generation, now=seen.now)
    return {**_status(seen.pool, fresh), "conditions": told}


def is_ready(sandbox: Mapping[str, Any]) -> bool:
    """Whether a sandbox says that it can be used."""
    return condition(sandbox, Condition.READY).get("status") == "True"


def is_spent(
    sandbox: Mapping[str, Any], pool: Mapping[str, Any], template: Mapping[str, Any] | None, now: datetime
) -> bool:
    """One that ended or is stuck can serve nobody; an older one goes where the pool asks for that."""
    left = _until_stuck(sandbox, now)
    if _has_ended(sandbox) or (left is not None and left <= 0):
        return True
    strategy = (pool["spec"].get("updateStrategy") or {}).get("type", "OnReplenish")
    return strategy == "Recreate" and template is not None and not is_made_from(sandbox, template)


def _has_ended(sandbox: Mapping[str, Any]) -> bool:
    return condition(sandbox, Condition.FINISHED).get("status") == "True"


def _until_stuck(sandbox: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds until one that is not ready will not become so; None for one that is, or waits for a node.

    Another one would not find a node either.
    """
    scheduled, ready = condition(sandbox, Condition.POD_SCHEDULED), condition(sandbox, Condition.READY)
    if is_ready(sandbox) or scheduled.get("status") == "False":
        return None
    times = [sandbox["metadata"].get("creationTimestamp")]
    times += [one.get("lastTransitionTime") for one in (scheduled, ready)]
    since = [datetime.fromisoformat(each) for each in times if each]
    return GRACE - (now - max(since)).total_seconds() if since else None


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
