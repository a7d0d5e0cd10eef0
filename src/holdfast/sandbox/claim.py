"""What is to be done for one claim, from what is there: it gets a sandbox from its pool, or one of its own.

Pure and level-triggered like decide.py. A claim takes a waiting sandbox by one write that only succeeds on
the very version it saw, so that two claims never get the same one. Not here: what a claim may change
(claim_changes.py).
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 (msgspec reads the types of its fields)
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.sandbox import blueprint
from holdfast.sandbox.actions import Action, Adopt, Create, Delete, Patch, Target
from holdfast.sandbox.api import (
    CLAIM_UID,
    CLAIMED_NAME,
    LAUNCH_TYPE,
    TEMPLATE_REF,
    WARM_POOL,
    ClaimReason,
    Condition,
    Reason,
)
from holdfast.sandbox.claim_changes import changed_spec, needs_own_sandbox, refusal
from holdfast.sandbox.claim_edits import edited, from_claim, left_aside
from holdfast.sandbox.claim_lifetime import expiry
from holdfast.sandbox.claim_metadata import (
    PARTS,
    Refusal,
    bad_metadata,
    found_by,
    metadata_change,
    with_metadata,
)
from holdfast.sandbox.ownership import is_owned, owner_reference, owner_words
from holdfast.sandbox.pool import is_made_from, is_ready, is_spent
from holdfast.sandbox.status import Said, condition, is_leaving, merged

if TYPE_CHECKING:
    from collections.abc import Mapping


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A claim, its pool and template if there are such, and every sandbox that matters to it."""

    claim: dict[str, Any]
    pool: dict[str, Any] | None
    template: dict[str, Any] | None
    now: datetime
    sandboxes: tuple[dict[str, Any], ...] = ()
    policies: tuple[dict[str, Any], ...] = ()
    """network policies that may let pods through by a label that the claim asks for"""


class ClaimDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, what the claim's status is to be, and in how many seconds to look again by itself."""

    actions: tuple[Action, ...] = ()
    status: dict[str, Any] | None = None
    again_in: float | None = None


def decide_claim(seen: Claimed) -> ClaimDecision:
    """Find the claim's sandbox, or get it one."""
    if is_leaving(seen.claim):
        return ClaimDecision()
    own = _own(seen)
    ends = expiry(seen.claim, seen.now)
    if ends.is_over:
        return _expired(seen, own)
    if own is not None:
        return _bound(seen, own, ends.seconds_left)
    if name := bound_to(seen.claim):
        return _lost(seen, name, ends.seconds_left)
    return _unbound(seen, ends.seconds_left)


def refused_claim(seen: Claimed, words: str) -> dict[str, Any] | None:
    """The status of a claim for which the server refuses to do what was decided.

    Where its sandbox is and whether it has finished is said all the same: the claim's time counts from there.
    """
    if is_leaving(seen.claim):
        return None
    own = _own(seen)
    if own is None or expiry(seen.claim, seen.now).is_over:
        return _told(seen, Reason.RECONCILER_ERROR, words, None).status
    ready = Said(Condition.READY, "False", Reason.RECONCILER_ERROR, words)
    return _bound(seen, own, None, ready=ready).status


def bound_to(claim: Mapping[str, Any]) -> str:
    """The name of the sandbox that a claim got, as far as its status says."""
    return str(((claim.get("status") or {}).get("sandbox") or {}).get("name") or "")


def _own(seen: Claimed) -> dict[str, Any] | None:
    return next((one for one in seen.sandboxes if is_owned(one, seen.claim)), None)


def _lost(seen: Claimed, name: str, again_in: float | None) -> ClaimDecision:
    """Its sandbox is gone: say so, and get it another one; only what has done its work is not done again."""
    told = _told(seen, ClaimReason.SANDBOX_MISSING, f"its sandbox {name} is gone", again_in)
    if condition(seen.claim, Condition.FINISHED):
        return told
    status = {key: value for key, value in (told.status or {}).items() if key != "sandbox"}
    return msgspec.structs.replace(told, status=status, again_in=0.0)


def _unbound(seen: Claimed, again_in: float | None) -> ClaimDecision:
    if seen.pool is None:
        name = seen.claim["spec"]["warmPoolRef"]["name"]
        return _told(seen, ClaimReason.WARM_POOL_NOT_FOUND, f"there is no warm pool {name}", again_in)
    if seen.template is None:
        name = seen.pool["spec"]["sandboxTemplateRef"]["name"]
        return _told(seen, ClaimReason.TEMPLATE_NOT_FOUND, f"there is no template {name}", again_in)
    refused = refusal(seen.claim, seen.template, seen.policies)
    if refused is not None:
        return _told(seen, refused.reason, refused.message, again_in)
    waiting = None if needs_own_sandbox(seen.claim) else _best_waiting(seen, seen.template)
    if waiting is not None:
        taken = (
            _take(seen.claim, waiting, seen.template),
            _remember(seen.claim, waiting["metadata"]["name"]),
        )
        words = f"the sandbox {waiting['metadata']['name']} is being taken"
        return _told(seen, ClaimReason.SANDBOX_NOT_READY, words, again_in, *taken)
    return _made_for_it(seen, seen.template, again_in)


def _made_for_it(seen: Claimed, template: Mapping[str, Any], again_in: float | None) -> ClaimDecision:
    name = seen.claim["metadata"]["name"]
    there = next((one for one in seen.sandboxes if one["metadata"]["name"] == name), None)
    if there is not None:
        words = f"a sandbox {name} is there that belongs to {owner_words(there)}"
        return _told(seen, ClaimReason.ADOPTION_CONFLICT, words, again_in)
    labels = {**found_by(seen.claim), CLAIM_UID: seen.claim["metadata"]["uid"]}
    made = blueprint.cold(seen.claim, template, changed_spec(seen.claim, template), labels)
    made["metadata"]["annotations"] |= from_claim(seen.claim, blueprint.template_metadata(template))
    actions = (Create(manifest=made), _remember(seen.claim, name))
    return _told(
        seen, ClaimReason.SANDBOX_CREATE_PENDING, f"the sandbox {name} is being made", again_in, *actions
    )


def _bound(
    seen: Claimed, own: dict[str, Any], again_in: float | None, *, ready: Said | None = None
) -> ClaimDecision:
    """Say what the sandbox says, or `ready` in place of that, and have it follow what the claim says."""
    now = edited(seen.claim, own, seen.policies)
    said = [ready or (_mirrored(own) if now.refused is None else _refused(now.refused))]
    finished = condition(own, Condition.FINISHED)
    if finished.get("status") == "True":
        said.append(Said(Condition.FINISHED, "True", finished["reason"], finished.get("message", "")))
    sandbox: dict[str, Any] = {"name": own["metadata"]["name"]}
    if now.ignored:
        said.append(left_aside(now.ignored, sandbox["name"]))
    if ips := (own.get("status") or {}).get("podIPs"):
        sandbox["podIPs"] = ips
    actions = [] if _remembers(seen.claim, sandbox["name"]) else [_remember(seen.claim, sandbox["name"])]
    actions += [Patch.of(own, now.patch)] if now.patch and not is_leaving(own) else []
    return ClaimDecision(actions=tuple(actions), status=_status(seen, said, sandbox), again_in=again_in)


def _mirrored(own: Mapping[str, Any]) -> Said:
    ready = condition(own, Condition.READY)
    if is_ready(own):
        return Said(Condition.READY, "True", ready["reason"], ready.get("message", ""))
    reason = ready.get("reason") or ClaimReason.SANDBOX_NOT_READY
    return Said(Condition.READY, "False", reason, ready.get("message") or "the sandbox is not ready")


def _refused(refused: Refusal) -> Said:
    return Said(Condition.READY, "False", refused.reason, refused.message)


def _expired(seen: Claimed, own: dict[str, Any] | None) -> ClaimDecision:
    """Say so first, then take the sandbox away, then do as the policy says."""
    policy = (seen.claim["spec"].get("lifecycle") or {}).get("shutdownPolicy", "Retain")
    marked = condition(seen.claim, Condition.READY).get("reason") == ClaimReason.CLAIM_EXPIRED
    told = _told(seen, ClaimReason.CLAIM_EXPIRED, "the claim's time is over", None)
    if not marked:
        return msgspec.structs.replace(told, again_in=0.0)
    actions: list[Action] = []
    if policy == "Retain":
        actions += [Delete.of(own)] if own is not None and not is_leaving(own) else []
    else:
        propagation = "Foreground" if policy == "DeleteForeground" else "Background"
        actions.append(Delete(target=Target.named(seen.claim), propagation=propagation))
    return msgspec.structs.replace(told, actions=tuple(actions))


def _best_waiting(seen: Claimed, template: Mapping[str, Any]) -> dict[str, Any] | None:
    """A sandbox of the pool that nobody has and that the pool keeps: a ready one, the oldest of those.

    One that is not ready and comes from an older template may never be: a new one is better. So it is where
    the claim would override what the pod has, or open a way for it, though the pool's template lets it.
    """
    pool = seen.pool
    free = [
        one
        for one in seen.sandboxes
        if pool is not None
        and is_owned(one, pool)
        and not is_leaving(one)
        and not is_spent(one, pool, template, seen.now)
        and (is_ready(one) or is_made_from(one, template))
    ]
    ordered = sorted(
        free,
        key=lambda one: (
            not is_ready(one),
            one["metadata"].get("creationTimestamp", ""),
            one["metadata"]["name"],
        ),
    )
    return next(
        (one for one in ordered if not bad_metadata(seen.claim, _base(one, template), seen.policies)), None
    )


def _base(waiting: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """What the pod of a waiting sandbox has without the claim: its own, and its template's as that is now.

    For labels no pool makes a sandbox anew. Another template's are not its own: its pool may have a new one.
    """
    own = waiting["spec"]["podTemplate"].get("metadata") or {}
    made_from = (waiting["metadata"].get("annotations") or {}).get(TEMPLATE_REF)
    said = blueprint.template_metadata(template) if made_from == template["metadata"]["name"] else {}
    base = {part: {**(own.get(part) or {}), **(said.get(part) or {})} for part in PARTS}
    base["labels"].pop(WARM_POOL, None)
    return base


def _take(claim: Mapping[str, Any], waiting: dict[str, Any], template: Mapping[str, Any]) -> Adopt:
    """The one write that takes a sandbox out of its pool: it has to be as it was seen."""
    metadata = waiting["metadata"]
    base = _base(waiting, template)
    change = metadata_change(waiting["spec"]["podTemplate"].get("metadata"), with_metadata(base, claim))
    patch = {
        "metadata": {
            "resourceVersion": metadata.get("resourceVersion"),
            "ownerReferences": [owner_reference(claim)],
            "labels": {
                **found_by(claim),
                WARM_POOL: None,
                CLAIM_UID: claim["metadata"]["uid"],
                LAUNCH_TYPE: "warm",
            },
            "annotations": from_claim(claim, base),
        },
        "spec": {"podTemplate": {"metadata": change}},
    }
    return Adopt(target=Target.named(waiting), patch=patch)


def _remember(claim: Mapping[str, Any], name: str) -> Patch:
    return Patch.of(claim, {"metadata": {"annotations": {CLAIMED_NAME: name}}})


def _remembers(claim: Mapping[str, Any], name: str) -> bool:
    return bool((claim["metadata"].get("annotations") or {}).get(CLAIMED_NAME) == name)


def _told(
    seen: Claimed, reason: ClaimReason | Reason, words: str, again_in: float | None, *actions: Action
) -> ClaimDecision:
    """The claim is not ready, for this reason; what it mirrored as finished stays, for its time counts."""
    said = [Said(Condition.READY, "False", reason, words)]
    finished = condition(seen.claim, Condition.FINISHED)
    if finished:
        said.append(Said(Condition.FINISHED, "True", finished["reason"], finished.get("message", "")))
    sandbox = (seen.claim.get("status") or {}).get("sandbox")
    return ClaimDecision(actions=actions, status=_status(seen, said, sandbox), again_in=again_in)


def _status(seen: Claimed, said: list[Said], sandbox: dict[str, Any] | None) -> dict[str, Any]:
    old = (seen.claim.get("status") or {}).get("conditions") or ()
    generation = seen.claim["metadata"].get("generation", 0)
    new: dict[str, Any] = {"conditions": merged(old, said, generation=generation, now=seen.now)}
    if sandbox:
        new["sandbox"] = sandbox
    return new
