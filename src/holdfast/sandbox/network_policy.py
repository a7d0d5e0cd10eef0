"""Network policies of templates: one NetworkPolicy selects the pods of all sandboxes of a template.

A template without rules gets the published default: ingress only from routers, egress only to public
addresses. The policy of a single sandbox is in from_request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import (
    EXTENSIONS_GROUP,
    MANAGED_BY_LABEL,
    PUBLISHED_NAMESPACE,
    ConditionType,
    HoldfastReason,
)
from holdfast.kube import differences
from holdfast.sandbox.actions import Action, Create, Delete, Patch
from holdfast.sandbox.from_template import template_labels
from holdfast.sandbox.manifests import controller_of, is_controlled_by, owner_reference
from holdfast.sandbox.status import ConditionUpdate, is_being_deleted
from holdfast.sandbox.validation import ROUTER_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MANAGED_LABELS = {MANAGED_BY_LABEL: "holdfast"}
_NAME_SUFFIX = "-network-policy"
_ROUTER_NAMESPACE = {"kubernetes.io/metadata.name": PUBLISHED_NAMESPACE}
# Link-local 169.254.0.0/16 contains the metadata services of clouds, which give out credentials.
_PRIVATE_RANGES = {
    "0.0.0.0/0": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"],
    "::/0": ["fc00::/7", "fe80::/10"],
}


class ObservedTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A template, and the NetworkPolicy with the name of its policy, if one exists."""

    template: dict[str, Any]
    policy: dict[str, Any] | None = None


def policy_name(template: str) -> str:
    """Name of a template's network policy."""
    return f"{template}{_NAME_SUFFIX}"


def template_name(policy: str) -> str:
    """Name of the template that a network policy of this name belongs to; empty if there can be none."""
    return policy.removesuffix(_NAME_SUFFIX) if policy.endswith(_NAME_SUFFIX) else ""


def is_managed_policy(policy: Mapping[str, Any]) -> bool:
    """Whether a network policy belongs to a template or to holdfast, and not to a user."""
    labels = policy["metadata"].get("labels") or {}
    owner = controller_of(policy) or {}
    is_of_template = owner.get("kind") == "SandboxTemplate" and str(owner.get("apiVersion", "")).startswith(
        f"{EXTENSIONS_GROUP}/"
    )
    return is_of_template or MANAGED_LABELS.items() <= labels.items()


def selected_labels(policy: Mapping[str, Any]) -> dict[str, str]:
    """The labels of the pods that a policy selects; policies of this module select by nothing else."""
    return dict((policy["spec"].get("podSelector") or {}).get("matchLabels") or {})


def reconcile_template(observed: ObservedTemplate) -> tuple[Action, ...]:
    """Create, update or delete the template's policy, and label the template.

    A policy of another owner is left alone.
    """
    if is_being_deleted(observed.template):
        return ()
    return (*_policy_actions(observed), *_label_actions(observed.template))


def _label_actions(template: dict[str, Any]) -> tuple[Action, ...]:
    labels = template_labels(template["metadata"]["name"])
    if labels.items() <= (template["metadata"].get("labels") or {}).items():
        return ()
    return (Patch.of(template, {"metadata": {"labels": labels}}),)


def _policy_actions(observed: ObservedTemplate) -> tuple[Action, ...]:
    policy, managed = observed.policy, _is_managed(observed.template)
    if policy is None:
        return (Create(manifest=policy_manifest(observed.template)),) if managed else ()
    if not is_controlled_by(policy, observed.template) or is_being_deleted(policy):
        return ()
    if not managed:
        return (Delete.of(policy),)
    spec = policy_manifest(observed.template)["spec"]
    is_same = not differences({"kind": policy["kind"], "spec": spec}, policy)
    return () if is_same else (Patch.of(policy, {"spec": spec}),)


def has_name_conflict(observed: ObservedTemplate) -> bool:
    """Whether a policy of another owner has the name that the template's policy needs."""
    if is_being_deleted(observed.template) or not _is_managed(observed.template):
        return False
    return observed.policy is not None and not is_controlled_by(observed.policy, observed.template)


def policy_manifest(template: Mapping[str, Any]) -> dict[str, Any]:
    """NetworkPolicy of a template."""
    metadata, rules = template["metadata"], template["spec"].get("networkPolicy")
    if rules is None:
        rules = _default_rules()
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": policy_name(metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": dict(MANAGED_LABELS),
            "ownerReferences": [owner_reference(template)],
        },
        "spec": {
            "podSelector": {"matchLabels": template_labels(metadata["name"])},
            # Always both: the policy would not restrict a direction that is not listed.
            "policyTypes": ["Ingress", "Egress"],
            "ingress": list(rules.get("ingress") or ()),
            "egress": list(rules.get("egress") or ()),
        },
    }


def not_protected_condition(
    pod_labels: Mapping[str, str], unprotected_template: str, unenforced_policies: Sequence[Mapping[str, Any]]
) -> ConditionUpdate | None:
    """The condition of a sandbox without effective network policies; None if it is protected as requested.

    Args:
        pod_labels: labels of the sandbox's pod.
        unprotected_template: the sandbox's template, if its policy could not be created.
        unenforced_policies: policies that the cluster does not enforce.
    """
    names = [policy["metadata"]["name"] for policy in unenforced_policies if _selects(policy, pod_labels)]
    if unprotected_template:
        reason = HoldfastReason.POLICY_NAME_CONFLICT
        message = (
            f"network policy {policy_name(unprotected_template)} of template {unprotected_template} was not "
            "created: a policy of another owner has that name; the template's rules do not apply"
        )
    elif names:
        reason = HoldfastReason.NOT_ENFORCED
        message = (
            f"network policy {', '.join(sorted(names))} exists, but this cluster does not enforce network "
            "policies: every pod can connect to every other"
        )
    else:
        return None
    return ConditionUpdate(ConditionType.NETWORK_POLICY_ENFORCED, "False", reason, message)


def find_allowing_label(
    labels: Mapping[str, str], policy: Mapping[str, Any], *, namespace: str
) -> str | None:
    """Find a label by which a policy allows connections to or from a pod.

    Args:
        labels: labels of the pod.
        policy: the NetworkPolicy to check.
        namespace: namespace of the pod.

    Returns:
        The key of the first label that a peer selector matches, or None.
    """
    same_namespace = policy["metadata"]["namespace"] == namespace
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for rule in policy["spec"].get(direction) or () if labels else ():
            for peer in rule.get(side) or ():
                # Without a namespaceSelector, a peer selects pods in the namespace of the policy only. Labels
                # of namespaces are unknown here, so each namespaceSelector counts as a match.
                applies = same_namespace or peer.get("namespaceSelector") is not None
                if applies and (key := _find_matching_key(peer, labels)):
                    return key
    return None


def _find_matching_key(peer: Mapping[str, Any], labels: Mapping[str, str]) -> str | None:
    selector = peer.get("podSelector") or {}
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) == value:
            return str(key)
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression["key"], expression["operator"]
        # NotIn and DoesNotExist match pods without the label too, so adding it allows nothing new.
        if key in labels and (
            operator == "Exists" or (operator == "In" and labels[key] in expression["values"])
        ):
            return str(key)
    return None


def _is_managed(template: Mapping[str, Any]) -> bool:
    return bool(template["spec"].get("networkPolicyManagement", "Managed") != "Unmanaged")


def _selects(policy: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    selected = selected_labels(policy)
    return bool(selected) and all(labels.get(key) == value for key, value in selected.items())


def _default_rules() -> dict[str, Any]:
    public = [
        {"ipBlock": {"cidr": cidr, "except": list(private)}} for cidr, private in _PRIVATE_RANGES.items()
    ]
    router = {
        "podSelector": {"matchLabels": dict([ROUTER_LABEL])},
        "namespaceSelector": {"matchLabels": dict(_ROUTER_NAMESPACE)},
    }
    return {
        "ingress": [{"from": [router]}],
        "egress": [{"to": public}],
    }
