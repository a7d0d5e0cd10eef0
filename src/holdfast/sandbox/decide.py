"""What is to be done for one sandbox, from what is there: the whole reconciliation, without a single call.

    decision = decide(Observed(sandbox=…, pods=…, claims=…, service=…, now=…))

Level-triggered: it knows no events and no past, so that whoever asks after a crash gets the same answer.
Not here: carrying it out (the controller does) and the parts' manifests (parts.py).
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 (msgspec reads the types of its fields)
from decimal import Decimal  # noqa: TC003
from typing import Any

import msgspec

from holdfast.sandbox import disk, idle, lifetime, network, parts, status
from holdfast.sandbox.actions import Action, Adopt, Create, Delete, Patch
from holdfast.sandbox.api import GROUP, Condition, Mode, Reason, Shutdown
from holdfast.sandbox.names import pod_name, selector
from holdfast.sandbox.ownership import Ownership, controller_of, owner_words, ownership
from holdfast.sandbox.propagation import metadata_patch
from holdfast.sandbox.status import Said

CLUSTER_DOMAIN = "cluster.local"


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one sandbox at one moment, as the API server has it."""

    sandbox: dict[str, Any]
    now: datetime
    pods: tuple[dict[str, Any], ...] = ()
    claims: dict[str, dict[str, Any]] = {}
    service: dict[str, Any] | None = None
    policies: tuple[dict[str, Any], ...] = ()
    """network policies that nobody in this cluster keeps to"""
    unguarded: str = ""
    """its template, where that one's network policy is not there, for somebody else's has the name"""
    disk: Decimal | None = None
    """bytes of the cluster's largest disk, where known"""
    failure: str = ""
    """What the API server said to the last thing that was tried; then only the status says so."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, in this order; what the status is to be; in how many seconds to look again by itself."""

    actions: tuple[Action, ...] = ()
    status: dict[str, Any] | None = None
    again_in: float | None = None


def decide(seen: Observed) -> Decision:
    """Compare what is wanted with what is there."""
    if status.is_leaving(seen.sandbox):
        return Decision()
    if lifetime.is_over(seen.sandbox, seen.now):
        return _expired(seen)
    claims, claim_trouble = _claims(seen)
    service, service_trouble = _service(seen)
    trouble = _worst(_error(seen.failure) if seen.failure else None, claim_trouble, service_trouble)
    owned = [pod for pod in seen.pods if ownership(pod, seen.sandbox) is Ownership.OURS]
    if len(owned) > 1:
        words = f"{len(owned)} pods belong to this sandbox; delete all but one"
        return _ended(seen, (), _not_ready(Reason.MULTIPLE_PODS, words), unknown=True)
    pod = owned[0] if owned else _of_that_name(seen)
    if _is_to_sleep(seen.sandbox):
        # The pod goes first: a claim that cannot be made keeps nobody from being suspended.
        decision = _suspended(seen, pod)
        return msgspec.structs.replace(decision, actions=(*decision.actions, *claims, *service))
    decision = _running(seen, pod, trouble)
    return msgspec.structs.replace(decision, actions=(*claims, *service, *decision.actions))


def _running(seen: Observed, pod: dict[str, Any] | None, trouble: Said | None) -> Decision:
    not_suspended = Said(Condition.SUSPENDED, "False", Reason.NOT_SUSPENDED)
    if trouble is not None:
        return _ended(seen, (), trouble, not_suspended, pod=pod)
    if pod is None:
        waiting = _not_ready(Reason.DEPENDENCIES_NOT_READY, "the pod is being made")
        return _ended(seen, (Create(manifest=parts.pod(seen.sandbox)),), waiting, not_suspended)
    return _with_pod(seen, pod, not_suspended)


def _with_pod(seen: Observed, pod: dict[str, Any], not_suspended: Said) -> Decision:
    whose = ownership(pod, seen.sandbox)
    if whose is not Ownership.OURS and _is_former(pod, seen.sandbox):
        return _ended(seen, (), _still_there("pod", pod), not_suspended)
    if whose is Ownership.FOREIGN:
        return _ended(seen, (), _in_the_way("pod", pod), not_suspended)
    if whose is Ownership.ADOPTABLE:
        waiting = _not_ready(Reason.DEPENDENCIES_NOT_READY, "the pod is being taken over")
        return _ended(seen, (Adopt.of(pod, seen.sandbox),), waiting, not_suspended, pod=pod)
    if status.is_leaving(pod):
        waiting = _not_ready(Reason.DEPENDENCIES_NOT_READY, "the old pod is ending")
        return _ended(seen, (), waiting, not_suspended, pod=pod)
    if status.phase(pod) in ("Succeeded", "Failed"):
        return _over(seen, pod, not_suspended)
    patch = metadata_patch(pod, seen.sandbox)
    actions: tuple[Action, ...] = (Patch.of(pod, patch),) if patch else ()
    left = idle.seconds_until_sleep(seen.sandbox, seen.now)
    if left == 0:
        # As it was seen and not later: a use that is noted at this moment keeps it awake.
        bound = {"resourceVersion": seen.sandbox["metadata"].get("resourceVersion")}
        asleep = {"metadata": bound, "spec": {"operatingMode": Mode.SUSPENDED.value}}
        actions += (Patch.of(seen.sandbox, asleep),)
    said = (_readiness(seen, pod), not_suspended, status.scheduled(pod))
    return _ended(seen, actions, *said, pod=pod, again_in=left or None)


def _readiness(seen: Observed, pod: dict[str, Any]) -> Said:
    if not status.is_ready(pod):
        return _not_ready(Reason.DEPENDENCIES_NOT_READY, status.what_is_missing(pod))
    if seen.sandbox["spec"].get("service") and seen.service is None:
        return _not_ready(Reason.DEPENDENCIES_NOT_READY, "the Service is being made")
    return Said(Condition.READY, "True", Reason.DEPENDENCIES_READY, "the pod is ready")


def _over(seen: Observed, pod: dict[str, Any], not_suspended: Said) -> Decision:
    """A pod that ended: a failed one is made again unless that was not wanted, later each time."""
    failed = status.phase(pod) == "Failed"
    reason = Reason.POD_FAILED if failed else Reason.POD_SUCCEEDED
    words = status.how_it_ended(pod)
    said = (_not_ready(reason, words), Said(Condition.FINISHED, "True", reason, words), not_suspended)
    if not failed or not lifetime.recreates(seen.sandbox):
        return _ended(seen, (), *said, status.scheduled(pod), pod=pod)
    wait = lifetime.until_recreation(pod, seen.sandbox, seen.now)
    actions = () if wait > 0 else lifetime.replacement(pod, seen.sandbox)
    return _ended(seen, actions, *said, status.scheduled(pod), pod=pod, again_in=wait or None)


def _is_to_sleep(sandbox: dict[str, Any]) -> bool:
    return bool(sandbox["spec"].get("operatingMode") == Mode.SUSPENDED)


def _suspended(seen: Observed, pod: dict[str, Any] | None) -> Decision:
    ready = _not_ready(Reason.SANDBOX_SUSPENDED, "the sandbox is suspended; its workspace is kept")
    goes = pod is not None and ownership(pod, seen.sandbox) is Ownership.OURS and not status.is_leaving(pod)
    actions = (Delete.of(pod),) if pod is not None and goes else ()
    return _ended(seen, actions, ready, _asleep(seen, pod))


def _asleep(seen: Observed, pod: dict[str, Any] | None) -> Said:
    """How far a sandbox that is to be suspended is with that."""
    if pod is None:
        return Said(Condition.SUSPENDED, "True", Reason.POD_TERMINATED)
    if ownership(pod, seen.sandbox) is not Ownership.OURS and not _is_former(pod, seen.sandbox):
        words = f"the pod {pod['metadata']['name']} belongs to {owner_words(pod)}"
        return Said(Condition.SUSPENDED, "False", Reason.POD_NOT_OWNED, words)
    return Said(Condition.SUSPENDED, "False", Reason.POD_TERMINATING)


def _expired(seen: Observed) -> Decision:
    """Say so first, then take the pod and the Service away, then do as the policy says. Claims stay."""
    ready = _not_ready(Reason.SANDBOX_EXPIRED, "the sandbox's time is over")
    owned = [pod for pod in seen.pods if ownership(pod, seen.sandbox) is Ownership.OURS]
    staying = [pod for pod in owned if not status.is_leaving(pod)]
    suspended = Said(Condition.SUSPENDED, "False", Reason.NOT_SUSPENDED)
    if _is_to_sleep(seen.sandbox):
        suspended = _asleep(seen, owned[0] if owned else _of_that_name(seen))
    if not lifetime.is_marked(seen.sandbox):
        decision = _ended(seen, (), ready, suspended)
        return msgspec.structs.replace(decision, again_in=0.0)
    actions: list[Action] = [Delete.of(pod) for pod in staying]
    if seen.service is not None and ownership(seen.service, seen.sandbox) is Ownership.OURS:
        actions.append(Delete.of(seen.service))
    if seen.sandbox["spec"].get("shutdownPolicy", Shutdown.RETAIN) == Shutdown.DELETE:
        actions.append(Delete.of(seen.sandbox))
    return _ended(seen, tuple(actions), ready, suspended)


def _claims(seen: Observed) -> tuple[list[Action], Said | None]:
    actions: list[Action] = []
    for manifest in parts.claims(seen.sandbox):
        name = manifest["metadata"]["name"]
        found = seen.claims.get(name)
        if found is None:
            actions.append(Create(manifest=manifest))
            if disk.is_too_large(manifest, seen.disk):
                # Its class decides, and the class is known once it is there; a pod would have it bound.
                return actions, _error(f"the claim {name} is being made")
            continue
        whose = ownership(found, seen.sandbox)
        if whose is not Ownership.OURS and _is_former(found, seen.sandbox):
            return actions, _still_there("claim", found)
        if words := disk.cannot_be_had(found, seen.disk):
            return actions, _error(words)
        if whose is Ownership.FOREIGN:
            return actions, _in_the_way("claim", found)
        if whose is Ownership.ADOPTABLE:
            actions.append(Adopt.of(found, seen.sandbox))
    return actions, None


def _service(seen: Observed) -> tuple[list[Action], Said | None]:
    wanted = seen.sandbox["spec"].get("service")
    if wanted is None:
        return [], None
    if seen.service is None:
        return ([Create(manifest=parts.service(seen.sandbox))] if wanted else []), None
    whose = ownership(seen.service, seen.sandbox)
    if not wanted:
        return ([Delete.of(seen.service)] if whose is Ownership.OURS else []), None
    if whose is not Ownership.OURS and _is_former(seen.service, seen.sandbox):
        return [], _still_there("Service", seen.service)
    if whose is Ownership.FOREIGN:
        return [], _in_the_way("Service", seen.service)
    return ([Adopt.of(seen.service, seen.sandbox)] if whose is Ownership.ADOPTABLE else []), None


def _is_former(found: dict[str, Any], sandbox: dict[str, Any]) -> bool:
    """Whether what is not ours goes by itself: it is being deleted, or its owner was our name's last bearer.

    Names are unique: a Sandbox of ours with another uid is gone, and its parts follow it in a moment.
    """
    owner = controller_of(found) or {}
    named = (owner.get("kind"), owner.get("name")) == ("Sandbox", sandbox["metadata"]["name"])
    return status.is_leaving(found) or (named and owner.get("apiVersion", "").startswith(f"{GROUP}/"))


def _still_there(kind: str, found: dict[str, Any]) -> Said:
    words = f"the former {kind} {found['metadata']['name']} is still being deleted"
    return _not_ready(Reason.DEPENDENCIES_NOT_READY, words)


def _in_the_way(kind: str, found: dict[str, Any]) -> Said:
    return _error(f"a {kind} {found['metadata']['name']} is there that belongs to {owner_words(found)}")


def _error(words: str) -> Said:
    return _not_ready(Reason.RECONCILER_ERROR, words)


def _worst(*said: Said | None) -> Said | None:
    """What to tell of: the first error, else the first thing that is waited for."""
    there = [each for each in said if each is not None]
    errors = [each for each in there if each.reason == Reason.RECONCILER_ERROR]
    return next(iter([*errors, *there]), None)


def _of_that_name(seen: Observed) -> dict[str, Any] | None:
    wanted = pod_name(seen.sandbox)
    return next((pod for pod in seen.pods if pod["metadata"]["name"] == wanted), None)


def _pod_labels(seen: Observed) -> dict[str, str]:
    return parts.pod_metadata(seen.sandbox)["labels"]


def _not_ready(reason: Reason, words: str) -> Said:
    return Said(Condition.READY, "False", reason, words)


def _ended(
    seen: Observed,
    actions: tuple[Action, ...],
    *said: Said,
    pod: dict[str, Any] | None = None,
    again_in: float | None = None,
    unknown: bool = False,
) -> Decision:
    """The decision with the status that belongs to it."""
    metadata, old = seen.sandbox["metadata"], seen.sandbox.get("status") or {}
    if unknown:
        said = (*said, Said(Condition.SUSPENDED, "Unknown", Reason.POD_STATE_UNKNOWN))
    if seen.unguarded:
        said = (*said, network.not_made(seen.unguarded))
    elif seen.policies and (unkept := network.not_enforced(_pod_labels(seen), seen.policies)):
        said = (*said, unkept)
    new: dict[str, Any] = {
        "conditions": status.merged(
            old.get("conditions") or (), said, generation=metadata.get("generation", 0), now=seen.now
        ),
        "selector": selector(metadata["name"]),
    }
    if pod is not None and not status.is_leaving(pod):
        if ips := status.addresses(pod):
            new["podIPs"] = ips
        if node := (pod.get("spec") or {}).get("nodeName"):
            new["nodeName"] = node
    if seen.service is not None and ownership(seen.service, seen.sandbox) is Ownership.OURS:
        name = metadata["name"]
        new["service"] = name
        new["serviceFQDN"] = f"{name}.{metadata['namespace']}.svc.{CLUSTER_DOMAIN}"
    ends = lifetime.seconds_left(seen.sandbox, seen.now)
    waits = [wait for wait in (again_in, ends) if wait is not None]
    return Decision(actions=tuple(actions), status=new, again_in=min(waits) if waits else None)
