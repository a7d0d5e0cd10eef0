"""A claim adds labels and annotations to its pod, and never takes over what others select by."""

from __future__ import annotations

import pytest
from tests.support.warm_pool_objects import NOW, claim, pool, ready_condition, template, warm_sandbox

from holdfast.sandbox.actions import Adopt, Create
from holdfast.sandbox.claim.binding import ObservedSandboxClaim, reconcile_sandbox_claim
from holdfast.sandbox.claim.metadata import find_invalid_metadata


def labelled(**labels):
    """A template whose pods have these labels, and one annotation."""
    found = template()
    found["spec"]["podTemplate"]["metadata"] = {"labels": labels, "annotations": {"team": "red"}}
    return found


def asking(labels=None, annotations=None):
    return claim(additionalPodMetadata={"labels": labels or {}, "annotations": annotations or {}})


def look(asked, *sandboxes, having=None, policies=()):
    having = template() if having is None else having
    return reconcile_sandbox_claim(
        ObservedSandboxClaim(
            sandbox_claim=asked,
            pool=pool(),
            template=having,
            sandboxes=sandboxes,
            network_policies=tuple(policies),
            now=NOW,
            label_domains=(),
        )
    )


def message(decision):
    return decision.status["conditions"][0]["message"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (asking({"agents.x-k8s.io/claim-uid": "z"}), "restricted system domain"),
        (asking({"x.agents.x-k8s.io/a": "z"}), "restricted system domain"),
        (asking({"extensions.agents.x-k8s.io/a": "z"}), "restricted system domain"),
        (asking({"holdfast.dev/network-policy": "own"}), "restricted system domain"),
        (asking({"a.holdfast.dev/b": "z"}), "restricted system domain"),
        (asking({"app.kubernetes.io/name": "z"}), "restricted system domain"),
        (asking({"node-role.k8s.io/a": "z"}), "restricted system domain"),
        (asking({"app": "sandbox-router"}), "restricted system label value"),
        (asking({"App": "Sandbox-Router"}), "restricted system label value"),
        (asking(annotations={"kubernetes.io/change-cause": "z"}), "restricted system domain"),
        (asking(annotations={"a.k8s.io/b": "z"}), "restricted system domain"),
    ],
)
@pytest.mark.parametrize("waits", [(), (warm_sandbox("w"),)], ids=["cold", "warm"])
def test_forbidden_keys_are_rejected_by_name(asked, words, waits):
    decision = look(asked, *waits, having=labelled(app="theirs"))
    assert decision.actions == ()
    assert ready_condition(decision) == ("False", "InvalidMetadata")
    assert words in message(decision)
    assert message(decision).startswith("invalid additionalPodMetadata: failed to validate ")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (asking({"app": "mine"}), 'label "app" is defined in template with value "theirs"'),
        (asking(annotations={"team": "blue"}), 'annotation "team" is defined in template with value "red"'),
    ],
)
@pytest.mark.parametrize("waits", [(), (warm_sandbox("w"),)], ids=["cold", "warm"])
def test_values_of_template_are_not_overridden(asked, words, waits):
    decision = look(asked, *waits, having=labelled(app="theirs"))
    assert decision.actions == ()
    assert ready_condition(decision) == ("False", "ReconcilerError")
    assert words in message(decision)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("team", "must have a domain prefix"),
        ("example.com/team", 'label domain "example.com" is not in the allowlist'),
        ("notsandbox.users.io/team", "is not in the allowlist"),
        ("sandbox.users.io/team", ""),
        ("a.sandbox.users.io/team", ""),
    ],
)
def test_labels_need_an_allowed_domain(key, words):
    invalid = find_invalid_metadata(asking({key: "blue"}))
    assert (words in invalid.message) if words else invalid is None


@pytest.mark.parametrize("key", ["team", "holdfast.dev/x", "example.com/team"])
def test_label_of_the_api_does_not_allow_other_labels(key):
    """Everyone who may create a SandboxClaim can set it."""
    asked = asking({key: "blue"})
    asked["metadata"]["labels"] = {"holdfast.dev/managed-by": "holdfast"}
    assert find_invalid_metadata(asked).reason == "InvalidMetadata"


@pytest.mark.parametrize(
    "asked",
    [
        asking({"sandbox.users.io/team": "blue"}),
        asking({"notkubernetes.io/a": "b"}),
        asking({"app": "theirs"}, {"team": "red"}),
        asking({"router": "sandbox-router"}),
        asking(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
        asking(annotations={"app": "sandbox-router"}),
    ],
)
@pytest.mark.parametrize("waits", [(), (warm_sandbox("w"),)], ids=["cold", "warm"])
def test_unselected_and_template_labels_are_allowed(asked, waits):
    decision = look(asked, *waits, having=labelled(app="theirs"))
    assert isinstance(decision.actions[-1], Adopt if waits else Create)


def taken(decision):
    """What the pod's metadata becomes by the write that takes a sandbox."""
    take = decision.actions[-1]
    assert isinstance(take, Adopt)
    return take.patch["spec"]["podTemplate"]["metadata"]


OUT_OF_ITS_POOL = {
    "agents.x-k8s.io/claim-uid": "claim-1",
    "agents.x-k8s.io/warm-pool-sandbox": None,
    "agents.x-k8s.io/sandbox-template-hash": None,
    "agents.x-k8s.io/sandbox-pod-template-hash": None,
    "agents.x-k8s.io/created-by": None,
}
NOT_EVICTABLE = {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": None}}


def test_warm_sandbox_gets_current_template_metadata():
    """Labels that a webhook or a user added to the warm sandbox are removed."""
    older, newer = labelled(app="one", old="x"), labelled(app="two")
    waited = warm_sandbox("w", template_object=older)
    waited["spec"]["podTemplate"]["metadata"]["labels"]["theirs"] = "x"
    assert (
        taken(look(asking({"a": "b"}), waited, having=newer))
        == {"labels": {"app": "two", "a": "b", "old": None, "theirs": None} | OUT_OF_ITS_POOL} | NOT_EVICTABLE
    )


def another(**labels):
    """The template that a pool has now."""
    found = labelled(**labels)
    found["metadata"] |= {"name": "u", "uid": "u-1"}
    return found


def test_sandbox_of_previous_template_keeps_its_labels():
    """They are what that template's network policy finds the pod by."""
    waited = warm_sandbox("w", template_object=labelled(app="one"))
    assert (
        taken(look(asking({"a": "b"}), waited, having=another(app="two")))
        == {"labels": {"a": "b"} | OUT_OF_ITS_POOL} | NOT_EVICTABLE
    )


def test_claim_needing_changed_pod_gets_new_sandbox():
    waited, other = (
        warm_sandbox("w", template_object=labelled(app="one")),
        warm_sandbox("x", template_object=another(app="two")),
    )
    asked = asking({"app": "two"})
    assert isinstance(look(asked, waited, having=another(app="two")).actions[0], Create)
    assert look(asked, waited, other, having=another(app="two")).actions[-1].target.name == "x"


def test_current_template_label_does_not_open_policy_for_old_pod():
    waited = warm_sandbox("w", template_object=labelled(app="one"))
    decision = look(
        asking({"role": "front"}), waited, having=another(role="front"), policies=[policy(BY_LABEL)]
    )
    assert isinstance(decision.actions[-1], Create)


def policy(*peers, way="ingress", namespace="ns"):
    side = "from" if way == "ingress" else "to"
    return {"metadata": {"name": "n", "namespace": namespace}, "spec": {way: [{side: list(peers)}]}}


BY_LABEL = {"podSelector": {"matchLabels": {"role": "front"}}}
BY_EXPRESSION = {
    "podSelector": {"matchExpressions": [{"key": "role", "operator": "In", "values": ["front"]}]}
}
BY_KEY = {"podSelector": {"matchExpressions": [{"key": "role", "operator": "Exists"}]}}
FROM_AFAR = {**BY_LABEL, "namespaceSelector": {}}


@pytest.mark.parametrize(
    "found",
    [
        policy(BY_LABEL),
        policy(BY_LABEL, way="egress"),
        policy({"ipBlock": {"cidr": "10.0.0.0/8"}}, BY_EXPRESSION),
        policy(BY_KEY),
        policy(FROM_AFAR, namespace="elsewhere"),
    ],
)
def test_label_selected_by_ingress_policy_is_rejected(found):
    decision = look(asking({"role": "front"}), policies=[found])
    assert ready_condition(decision) == ("False", "InvalidMetadata")
    assert "allows connections of pods with the label role" in message(decision)


@pytest.mark.parametrize(
    "found",
    [
        policy(BY_LABEL, namespace="elsewhere"),
        policy({"podSelector": {"matchLabels": {"role": "back"}}}),
        policy({"podSelector": {"matchExpressions": [{"key": "role", "operator": "DoesNotExist"}]}}),
        policy({"podSelector": {}}),
        policy({"ipBlock": {"cidr": "0.0.0.0/0"}}),
    ],
)
def test_unrelated_policy_does_not_reject_label(found):
    assert isinstance(look(asking({"role": "front"}), policies=[found]).actions[0], Create)


def test_label_already_set_by_template_is_allowed():
    decision = look(asking({"role": "front"}), having=labelled(role="front"), policies=[policy(BY_LABEL)])
    assert isinstance(decision.actions[0], Create)
