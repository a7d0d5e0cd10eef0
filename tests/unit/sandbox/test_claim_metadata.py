"""A claim adds labels and annotations to its pod, and never takes over what others select by."""

from __future__ import annotations

import pytest
from tests.support.pool_decisions import NOW, claim, pool, ready, template, waiting

from holdfast.sandbox.actions import Adopt, Create
from holdfast.sandbox.claim import Claimed, decide_claim


def labelled(**labels):
    """A template whose pods have these labels, and one annotation."""
    found = template()
    found["spec"]["podTemplate"]["metadata"] = {"labels": labels, "annotations": {"team": "red"}}
    return found


def asking(labels=None, annotations=None):
    return claim(additionalPodMetadata={"labels": labels or {}, "annotations": annotations or {}})


def look(asked, *sandboxes, having=None, policies=()):
    having = template() if having is None else having
    return decide_claim(
        Claimed(
            claim=asked, pool=pool(), template=having, sandboxes=sandboxes, policies=tuple(policies), now=NOW
        )
    )


def message(decision):
    return decision.status["conditions"][0]["message"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (asking({"agents.x-k8s.io/claim-uid": "z"}), "reserved"),
        (asking({"x.agents.x-k8s.io/a": "z"}), "reserved"),
        (asking({"extensions.agents.x-k8s.io/a": "z"}), "reserved"),
        (asking({"holdfast.dev/network-policy": "own"}), "reserved"),
        (asking({"a.holdfast.dev/b": "z"}), "reserved"),
        (asking({"app.kubernetes.io/name": "z"}), "reserved"),
        (asking({"node-role.k8s.io/a": "z"}), "reserved"),
        (asking({"app": "sandbox-router"}), "app=sandbox-router is reserved"),
        (asking({"App": "Sandbox-Router"}), "is reserved"),
        (asking(annotations={"kubernetes.io/change-cause": "z"}), "reserved"),
        (asking(annotations={"a.k8s.io/b": "z"}), "reserved"),
        (asking({"app": "mine"}), "the template says app=theirs, and a claim cannot say app=mine"),
        (asking(annotations={"team": "blue"}), "the template says team=red"),
    ],
)
@pytest.mark.parametrize("waits", [(), (waiting("w"),)], ids=["cold", "warm"])
def test_what_is_not_the_claims_to_set_is_refused_with_the_key(asked, words, waits):
    decision = look(asked, *waits, having=labelled(app="theirs"))
    assert decision.actions == ()
    assert ready(decision) == ("False", "InvalidMetadata")
    assert words in message(decision)
    assert message(decision).startswith("additionalPodMetadata.")


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
@pytest.mark.parametrize("waits", [(), (waiting("w"),)], ids=["cold", "warm"])
def test_what_nobody_selects_by_and_what_the_template_says_itself_is_let_through(asked, waits):
    decision = look(asked, *waits, having=labelled(app="theirs"))
    assert ready(decision)[1] in ("SandboxCreatePending", "SandboxNotReady")


def taken(decision):
    """What the pod's metadata becomes by the write that takes a sandbox."""
    take = decision.actions[0]
    assert isinstance(take, Adopt)
    return take.patch["spec"]["podTemplate"]["metadata"]


OUT_OF_ITS_POOL = {"agents.x-k8s.io/claim-uid": "claim-1", "agents.x-k8s.io/warm-pool-sandbox": None}


def test_a_sandbox_that_waited_gets_what_its_template_says_now_and_loses_nothing():
    """Who put the rest on it, a webhook or a person, had reasons."""
    older, newer = labelled(app="one", old="x"), labelled(app="two")
    waited = waiting("w", made_from=older)
    waited["spec"]["podTemplate"]["metadata"]["labels"]["theirs"] = "x"
    assert taken(look(asking({"a": "b"}), waited, having=newer)) == {
        "labels": {"app": "two", "a": "b"} | OUT_OF_ITS_POOL
    }


def another(**labels):
    """The template that a pool has now."""
    found = labelled(**labels)
    found["metadata"] |= {"name": "u", "uid": "u-1"}
    return found


def test_a_sandbox_of_the_pools_former_template_keeps_that_ones_labels():
    """They are what that template's network policy finds the pod by."""
    waited = waiting("w", made_from=labelled(app="one"))
    assert taken(look(asking({"a": "b"}), waited, having=another(app="two"))) == {
        "labels": {"a": "b"} | OUT_OF_ITS_POOL
    }


def test_what_the_pools_template_lets_a_claim_say_and_a_waiting_pod_does_not_gets_a_new_sandbox():
    waited, other = waiting("w", made_from=labelled(app="one")), waiting("x", made_from=another(app="two"))
    asked = asking({"app": "two"})
    assert isinstance(look(asked, waited, having=another(app="two")).actions[0], Create)
    assert look(asked, waited, other, having=another(app="two")).actions[0].target.name == "x"


def test_a_label_of_the_pools_template_opens_no_way_for_a_pod_of_the_former_one():
    waited = waiting("w", made_from=labelled(app="one"))
    decision = look(
        asking({"role": "front"}), waited, having=another(role="front"), policies=[policy(BY_LABEL)]
    )
    assert isinstance(decision.actions[0], Create)


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
def test_a_label_by_which_a_policy_lets_pods_through_is_refused(found):
    decision = look(asking({"role": "front"}), policies=[found])
    assert ready(decision) == ("False", "InvalidMetadata")
    assert "lets pods through by role" in message(decision)


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
def test_a_policy_that_does_not_mean_the_label_is_in_nobodys_way(found):
    assert ready(look(asking({"role": "front"}), policies=[found]))[1] == "SandboxCreatePending"


def test_a_label_that_the_template_gives_itself_opens_nothing_new():
    decision = look(asking({"role": "front"}), having=labelled(role="front"), policies=[policy(BY_LABEL)])
    assert ready(decision)[1] == "SandboxCreatePending"
