"""The network policy around the sandboxes of a template: one for each template that has it managed.

Pure, as decide.py is. Where a template says nothing, the published default holds: in come only routers, out
goes only what is public. Whether anything keeps to a policy is the cluster's matter: where nobody does, the
sandbox says so. Not here: policies of single sandboxes (creation.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.sandbox.actions import Action, Create, Delete, Patch
from holdfast.sandbox.api import MANAGED_BY, TEMPLATE_REF_HASH, Condition
from holdfast.sandbox.names import name_hash
from holdfast.sandbox.ownership import is_owned, owner_reference
from holdfast.sandbox.status import Said, is_leaving

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OURS = {MANAGED_BY: "holdfast"}
"""Label of the policies that holdfast made: only those are watched."""
_SUFFIX = "-network-policy"
_ROUTER = {"app": "sandbox-router"}
_PRIVATE = {
    "0.0.0.0/0": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"],
    "::/0": ["fc00::/7"],
}


class Guarded(msgspec.Struct, frozen=True, kw_only=True):
    """A template, and the object that has its policy's name."""

    template: dict[str, Any]
    policy: dict[str, Any] | None = None


def policy_name(template: str) -> str:
    """What the policy of a template is called."""
    return f"{template}{_SUFFIX}"


def template_of(policy: str) -> str:
    """The template whose policy would have this name; empty where it can be none's."""
    return policy.removesuffix(_SUFFIX) if policy.endswith(_SUFFIX) else ""


def template_label(template: str) -> dict[str, str]:
    """The label by which the pods of a template are found."""
    return {TEMPLATE_REF_HASH: name_hash(template)}


def decide_template(seen: Guarded) -> tuple[Action, ...]:
    """The policy as the template has it, or none; one that is somebody else's is left alone."""
    if is_leaving(seen.template):
        return ()
    there, managed = seen.policy, _is_managed(seen.template)
    if there is None:
        return (Create(manifest=policy(seen.template)),) if managed else ()
    if not is_owned(there, seen.template) or is_leaving(there):
        return ()
    if not managed:
        return (Delete.of(there),)
    wanted = policy(seen.template)["spec"]
    return () if _alike(there["spec"], wanted) else (Patch.of(there, {"spec": wanted}),)


def in_the_way(seen: Guarded) -> bool:
    """Whether somebody else's policy has the name of the one that the template asks for."""
    there = seen.policy
    if there is None or is_leaving(seen.template) or not _is_managed(seen.template):
        return False
    return not is_owned(there, seen.template)


def policy(template: Mapping[str, Any]) -> dict[str, Any]:
    """The NetworkPolicy of a template."""
    metadata, rules = template["metadata"], template["spec"].get("networkPolicy")
    if rules is None:
        rules = _usual()
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": policy_name(metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": dict(OURS),
            "ownerReferences": [owner_reference(template)],
        },
        "spec": {
            "podSelector": {"matchLabels": template_label(metadata["name"])},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": list(rules.get("ingress") or ()),
            "egress": list(rules.get("egress") or ()),
        },
    }


def not_enforced(pod_labels: Mapping[str, str], policies: Sequence[Mapping[str, Any]]) -> Said | None:
    """What a sandbox says where policies around its pod are there and nobody keeps to them."""
    names = [each["metadata"]["name"] for each in policies if _selects(each, pod_labels)]
    if not names:
        return None
    words = f"the network policy {', '.join(sorted(names))} is there, but this cluster's network does not "
    words += "enforce it: every pod reaches every other"
    return Said(Condition.NETWORK_POLICY_ENFORCED, "False", "NotEnforced", words)


def not_made(template: str) -> Said:
    """What a sandbox says whose template's policy is not there, for its name is taken."""
    words = f"the network policy {policy_name(template)} of the template {template} is not made: one of that "
    words += "name is there, and is not the template's; the template's rules do not hold"
    return Said(Condition.NETWORK_POLICY_ENFORCED, "False", "NotMade", words)


def opened_by(labels: Mapping[str, str], found: Mapping[str, Any], *, namespace: str) -> str | None:
    """Which of a pod's labels a policy lets it through by, into another pod or as where one may go."""
    if not labels:
        return None
    here = found["metadata"]["namespace"] == namespace
    for way, side in (("ingress", "from"), ("egress", "to")):
        for rule in found["spec"].get(way) or ():
            for peer in rule.get(side) or ():
                if (here or peer.get("namespaceSelector") is not None) and (key := _named(peer, labels)):
                    return key
    return None


def _named(peer: Mapping[str, Any], labels: Mapping[str, str]) -> str | None:
    """A selector's key that one of these labels fulfils."""
    selector = peer.get("podSelector") or {}
    wanted = selector.get("matchLabels") or {}
    keys = [key for key, value in wanted.items() if labels.get(key) == value]
    for each in selector.get("matchExpressions") or ():
        value = labels.get(each["key"])
        fits = each["operator"] == "Exists" or (each["operator"] == "In" and value in each["values"])
        keys += [each["key"]] if value is not None and fits else []
    return next(iter(keys), None)


def _is_managed(template: Mapping[str, Any]) -> bool:
    return bool(template["spec"].get("networkPolicyManagement", "Managed") != "Unmanaged")


def _selects(found: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    wanted = (found["spec"].get("podSelector") or {}).get("matchLabels") or {}
    return bool(wanted) and all(labels.get(key) == value for key, value in wanted.items())


def _alike(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """The server leaves empty lists out."""
    return all((there.get(key) or None) == (value or None) for key, value in wanted.items())


def _usual() -> dict[str, Any]:
    public = [{"ipBlock": {"cidr": cidr, "except": list(private)}} for cidr, private in _PRIVATE.items()]
    return {
        "ingress": [{"from": [{"podSelector": {"matchLabels": dict(_ROUTER)}}]}],
        "egress": [{"to": public}],
    }
