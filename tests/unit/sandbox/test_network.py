"""The policy of a template: made, kept alike, taken away, never taken from others; and said to be ignored."""

from __future__ import annotations

import copy

from tests.support.sandboxes import look, said, sandbox

from holdfast.sandbox.actions import Create, Delete, Patch
from holdfast.sandbox.blueprint import sandbox_spec
from holdfast.sandbox.names import name_hash, tracking
from holdfast.sandbox.network import Guarded, decide_template, policy

HASH = "agents.x-k8s.io/sandbox-template-ref-hash"
ENFORCED = "holdfast.dev/NetworkPolicyEnforced"


def template(**spec):
    return {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxTemplate",
        "metadata": {"name": "t", "namespace": "ns", "uid": "t-1"},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}, **spec},
    }


def living(of, **changes):
    made = copy.deepcopy(policy(of))
    made["metadata"] |= {"uid": "n-1", "resourceVersion": "1", **changes}
    return made


def decided(of, there=None):
    return decide_template(Guarded(template=of, policy=there))


def test_without_a_word_the_published_default_holds():
    (action,) = decided(template())
    assert isinstance(action, Create)
    assert action.manifest["metadata"]["name"] == "t-network-policy"
    spec = action.manifest["spec"]
    assert spec["podSelector"] == {"matchLabels": {HASH: name_hash("t")}}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"from": [{"podSelector": {"matchLabels": {"app": "sandbox-router"}}}]}]
    (rule,) = spec["egress"]
    blocked = {each["ipBlock"]["cidr"]: each["ipBlock"]["except"] for each in rule["to"]}
    assert "10.0.0.0/8" in blocked["0.0.0.0/0"]
    assert "169.254.0.0/16" in blocked["0.0.0.0/0"]
    assert blocked["::/0"] == ["fc00::/7"]


def test_the_pods_of_a_template_carry_the_label_that_its_policy_selects():
    metadata = sandbox_spec(template())["podTemplate"]["metadata"]
    assert metadata["labels"] == policy(template())["spec"]["podSelector"]["matchLabels"]


def test_empty_rules_let_nothing_through_and_are_not_written_twice():
    closed = template(networkPolicy={"ingress": [], "egress": []})
    (action,) = decided(closed)
    assert (action.manifest["spec"]["ingress"], action.manifest["spec"]["egress"]) == ([], [])
    there = living(closed)
    del there["spec"]["ingress"], there["spec"]["egress"]
    assert decided(closed, there) == ()


def test_changed_rules_are_put_right_and_the_rest_is_left():
    there = living(template())
    assert decided(template(), there) == ()
    (action,) = decided(template(networkPolicy={"egress": [{}]}), there)
    assert isinstance(action, Patch)
    assert action.patch["spec"]["egress"] == [{}]
    assert action.patch["spec"]["ingress"] == []


def test_unmanaged_takes_it_away_and_makes_none():
    free = template(networkPolicyManagement="Unmanaged")
    assert decided(free) == ()
    (action,) = decided(free, living(template()))
    assert isinstance(action, Delete)


def test_a_policy_of_that_name_that_is_somebodys_is_left_alone():
    theirs = living(template(), ownerReferences=[])
    assert decided(template(networkPolicyManagement="Unmanaged"), theirs) == ()
    assert decided(template(networkPolicy={}), theirs) == ()


def test_a_sandbox_says_which_policies_nobody_keeps_to():
    box = sandbox()
    box["spec"]["podTemplate"]["metadata"] = {"labels": {HASH: name_hash("t")}}
    own = {"metadata": {"name": "a"}, "spec": {"podSelector": {"matchLabels": tracking("a")}}}
    other = {"metadata": {"name": "b"}, "spec": {"podSelector": {"matchLabels": tracking("b")}}}
    decision = look(box, policies=(policy(template()), own, other))
    assert said(decision, ENFORCED) == ("False", "NotEnforced")
    (words,) = [row["message"] for row in decision.status["conditions"] if row["type"] == ENFORCED]
    assert "network policy a, t-network-policy is there" in words
    assert said(look(box), ENFORCED) is None
    assert said(look(box, policies=(other,)), ENFORCED) is None
