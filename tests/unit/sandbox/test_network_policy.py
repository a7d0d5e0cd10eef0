"""The policy of a template: made, kept alike, taken away, never taken from others; and said to be ignored."""

from __future__ import annotations

import copy

from tests.support.sandbox_objects import condition_of, reconcile, sandbox

from holdfast.sandbox.actions import Create, Delete, Patch
from holdfast.sandbox.from_template import sandbox_spec
from holdfast.sandbox.manifests import name_hash, tracking_labels
from holdfast.sandbox.network_policy import ObservedTemplate, policy_manifest, reconcile_template

HASH = "agents.x-k8s.io/sandbox-template-ref-hash"
ENFORCED = "holdfast.dev/NetworkPolicyEnforced"


def template(**spec):
    return {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxTemplate",
        "metadata": {"name": "t", "namespace": "ns", "uid": "t-1", "labels": {HASH: name_hash("t")}},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}, **spec},
    }


def living(of, **changes):
    made = copy.deepcopy(policy_manifest(of))
    made["metadata"] |= {"uid": "n-1", "resourceVersion": "1", **changes}
    return made


def decided(of, there=None):
    return reconcile_template(ObservedTemplate(template=of, policy=there))


def test_published_default_applies():
    (action,) = decided(template())
    assert isinstance(action, Create)
    assert action.manifest["metadata"]["name"] == "t-network-policy"
    spec = action.manifest["spec"]
    assert spec["podSelector"] == {"matchLabels": {HASH: name_hash("t")}}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    (ingress,) = spec["ingress"]
    assert ingress["from"] == [
        {
            "podSelector": {"matchLabels": {"app": "sandbox-router"}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"}},
        }
    ]
    (rule,) = spec["egress"]
    blocked = {each["ipBlock"]["cidr"]: each["ipBlock"]["except"] for each in rule["to"]}
    assert "10.0.0.0/8" in blocked["0.0.0.0/0"]
    assert "169.254.0.0/16" in blocked["0.0.0.0/0"]
    assert blocked["::/0"] == ["fc00::/7", "fe80::/10"]


def test_template_gets_its_label():
    bare = template()
    del bare["metadata"]["labels"]
    _, label = decided(bare)
    assert label.patch == {"metadata": {"labels": {HASH: name_hash("t")}}}


def test_template_pods_carry_policy_label():
    metadata = sandbox_spec(template())["podTemplate"]["metadata"]
    assert metadata["labels"] == policy_manifest(template())["spec"]["podSelector"]["matchLabels"]


def test_empty_rules_deny_all_and_are_written_once():
    closed = template(networkPolicy={"ingress": [], "egress": []})
    (action,) = decided(closed)
    assert (action.manifest["spec"]["ingress"], action.manifest["spec"]["egress"]) == ([], [])
    there = living(closed)
    del there["spec"]["ingress"], there["spec"]["egress"]
    assert decided(closed, there) == ()


def test_changed_rules_are_restored_and_other_fields_kept():
    there = living(template())
    assert decided(template(), there) == ()
    (action,) = decided(template(networkPolicy={"egress": [{}]}), there)
    assert isinstance(action, Patch)
    assert action.patch["spec"]["egress"] == [{}]
    assert action.patch["spec"]["ingress"] == []


def test_unmanaged_deletes_policy():
    free = template(networkPolicyManagement="Unmanaged")
    assert decided(free) == ()
    (action,) = decided(free, living(template()))
    assert isinstance(action, Delete)


def test_foreign_policy_with_same_name_is_left_alone():
    theirs = living(template(), ownerReferences=[])
    assert decided(template(networkPolicyManagement="Unmanaged"), theirs) == ()
    assert decided(template(networkPolicy={}), theirs) == ()


def test_sandbox_reports_name_conflict_of_template_policy():
    decision = reconcile(sandbox(), unprotected_template="t")
    assert condition_of(decision, ENFORCED) == ("False", "PolicyNameConflict")


def test_sandbox_reports_unenforced_policies():
    box = sandbox()
    box["metadata"]["labels"] = {HASH: name_hash("t")}
    owner = {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "uid": "c"}
    box["metadata"]["ownerReferences"] = [{**owner, "name": "c", "controller": True}]
    own = {"metadata": {"name": "a"}, "spec": {"podSelector": {"matchLabels": tracking_labels("a")}}}
    other = {"metadata": {"name": "b"}, "spec": {"podSelector": {"matchLabels": tracking_labels("b")}}}
    decision = reconcile(box, unenforced_policies=(policy_manifest(template()), own, other))
    assert condition_of(decision, ENFORCED) == ("False", "NotEnforced")
    (words,) = [row["message"] for row in decision.status["conditions"] if row["type"] == ENFORCED]
    assert "network policy a, t-network-policy exists" in words
    assert condition_of(reconcile(box), ENFORCED) is None
    assert condition_of(reconcile(box, unenforced_policies=(other,)), ENFORCED) is None
