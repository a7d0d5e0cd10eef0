"""Edits to a claim that has its sandbox: they follow, are refused, or are left aside and told of."""

from __future__ import annotations

import json

import pytest
from tests.support.pool_decisions import NOW, claim, look, pool, ready, template, waiting
from tests.support.pools import merged

from holdfast.sandbox.actions import Adopt, Create, Patch
from holdfast.sandbox.claim import Claimed, decide_claim

FROM_CLAIM = "holdfast.dev/from-claim"
FAILED_PODS = "holdfast.dev/failed-pods"
EDITS = "holdfast.dev/EditsFollowed"


@pytest.fixture(params=["cold", "warm"])
def taken(request):
    """Gives the sandbox that a claim got, and whatever it becomes by the claim's later actions."""

    def got(asked, having=None):
        waits = (waiting("w"),) if request.param == "warm" else ()
        action = look(asked, *waits, having=having).actions[0]
        if isinstance(action, Create):
            made = waiting("w")
            return {**made, **action.manifest, "metadata": made["metadata"] | action.manifest["metadata"]}
        assert isinstance(action, Adopt)
        return merged(waits[0], action.patch)

    return got


def remembering(name="w", **spec):
    asked = claim(**spec)
    asked["metadata"]["annotations"] = {"agents.x-k8s.io/sandbox-name": name}
    return asked


def followed(own, asked):
    """The sandbox after its claim was edited, and the last decision, which has come to rest."""
    asked["metadata"].setdefault("annotations", {})["agents.x-k8s.io/sandbox-name"] = own["metadata"]["name"]
    decision = look(asked, own)
    for action in decision.actions:
        assert isinstance(action, Patch)
        own = merged(own, action.patch)
    again = look(asked, own)
    assert again.actions == ()
    return own, again


def condition(decision, kind):
    return next((row for row in decision.status["conditions"] if row["type"] == kind), None)


def pod_labels(own):
    return {
        key: value
        for key, value in own["spec"]["podTemplate"]["metadata"]["labels"].items()
        if "/" not in key
    }


def metadata(**labels):
    return {"labels": labels}


def test_a_claim_that_nobody_edited_asks_nothing_of_its_sandbox(taken):
    asked = remembering(additionalPodMetadata=metadata(a="1"), lifecycle={"ttlSecondsAfterFinished": 5})
    own = taken(asked)
    same, decision = followed(own, asked)
    assert same == own
    assert ready(decision) == ("True", "DependenciesReady")
    assert condition(decision, EDITS) is None


def test_labels_and_annotations_follow_and_what_the_template_gave_stays(taken):
    having = template()
    having["spec"]["podTemplate"]["metadata"] = {"labels": {"app": "x"}, "annotations": {"why": "so"}}
    own = taken(claim(additionalPodMetadata=metadata(a="1", b="2")), having)
    own, _ = followed(
        own, claim(additionalPodMetadata={"labels": {"b": "3", "c": "4"}, "annotations": {"n": "5"}})
    )
    assert pod_labels(own) == {"app": "x", "b": "3", "c": "4"}
    assert own["spec"]["podTemplate"]["metadata"]["annotations"] == {"why": "so", "n": "5"}
    own, decision = followed(own, claim())
    assert pod_labels(own) == {"app": "x"}
    assert own["spec"]["podTemplate"]["metadata"]["annotations"] == {"why": "so"}
    assert own["spec"]["podTemplate"]["metadata"]["labels"]["agents.x-k8s.io/claim-uid"] == "claim-1"
    assert ready(decision) == ("True", "DependenciesReady")


def test_a_label_that_the_template_and_the_claim_both_say_is_the_templates(taken):
    having = template()
    having["spec"]["podTemplate"]["metadata"] = {"labels": {"app": "x"}}
    own = taken(claim(additionalPodMetadata=metadata(app="x", a="1")), having)
    own, _ = followed(own, claim())
    assert pod_labels(own) == {"app": "x"}
    _, decision = followed(own, claim(additionalPodMetadata=metadata(app="y")))
    assert ready(decision) == ("False", "InvalidMetadata")


def test_what_somebody_else_put_on_the_sandbox_is_not_taken_away(taken):
    own = taken(claim(additionalPodMetadata=metadata(a="1")))
    own["spec"]["podTemplate"]["metadata"]["labels"]["theirs"] = "x"
    own, _ = followed(own, claim())
    assert pod_labels(own) == {"theirs": "x"}
    _, decision = followed(own, claim(additionalPodMetadata=metadata(theirs="y")))
    words = "additionalPodMetadata.labels: the sandbox has theirs=x, and a claim cannot say theirs=y"
    assert condition(decision, "Ready")["message"] == words


@pytest.mark.parametrize("bad", [{"app": "mine"}, {"holdfast.dev/x": "1"}, {"app": "sandbox-router"}])
def test_an_edit_that_is_not_the_claims_to_make_is_refused_and_changes_nothing(taken, bad):
    having = template()
    having["spec"]["podTemplate"]["metadata"] = {"labels": {"app": "x"}}
    own = taken(claim(additionalPodMetadata=metadata(a="1")), having)
    same, decision = followed(own, claim(additionalPodMetadata=metadata(**bad)))
    assert same == own
    assert ready(decision) == ("False", "InvalidMetadata")
    assert decision.status["sandbox"]["name"] == own["metadata"]["name"]
    own, decision = followed(own, claim(additionalPodMetadata=metadata(b="2")))
    assert ready(decision) == ("True", "DependenciesReady")
    assert pod_labels(own) == {"app": "x", "b": "2"}


def test_a_time_that_counts_from_the_end_makes_a_failed_pod_that_end_and_back_again(taken):
    own = taken(claim())
    assert FAILED_PODS not in own["metadata"]["annotations"]
    own, _ = followed(own, claim(lifecycle={"ttlSecondsAfterFinished": 5}))
    assert own["metadata"]["annotations"][FAILED_PODS] == "Keep"
    own, _ = followed(own, claim(lifecycle={"shutdownPolicy": "Delete"}))
    assert FAILED_PODS not in own["metadata"]["annotations"]


def test_failed_pods_that_somebody_else_has_kept_stay_kept(taken):
    own = taken(claim())
    own["metadata"]["annotations"][FAILED_PODS] = "Keep"
    for lifecycle in ({"ttlSecondsAfterFinished": 5}, {}):
        own, _ = followed(own, claim(lifecycle=lifecycle))
        assert own["metadata"]["annotations"][FAILED_PODS] == "Keep"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("env", [{"name": "A", "value": "2"}]),
        ("volumeClaimTemplates", [{"metadata": {"name": "w"}, "spec": {}}]),
        ("warmPoolRef", {"name": "p2"}),
    ],
)
def test_what_made_the_sandbox_cannot_be_edited_and_the_claim_says_so(taken, field, value):
    own = taken(claim())
    same, decision = followed(own, claim(**{field: value}))
    assert same == own
    assert ready(decision) == ("True", "DependenciesReady")
    told = condition(decision, EDITS)
    assert (told["status"], told["reason"]) == ("False", "EditIgnored")
    assert told["message"].startswith(f"{field}: ")
    _, decision = followed(own, claim())
    assert condition(decision, EDITS) is None


@pytest.mark.parametrize("note", ["", "{", "[]", json.dumps({"labels": 3})])
def test_a_sandbox_without_a_note_that_can_be_read_follows_what_it_can(taken, note):
    own = taken(claim(additionalPodMetadata=metadata(a="1")))
    own["metadata"]["annotations"][FROM_CLAIM] = note
    own, decision = followed(own, claim(additionalPodMetadata=metadata(a="1", b="2")))
    assert pod_labels(own) == {"a": "1", "b": "2"}
    assert ready(decision) == ("True", "DependenciesReady")
    own, _ = followed(own, claim())
    assert pod_labels(own) == {}


def test_a_policy_that_comes_later_says_nothing_about_labels_that_are_there(taken):
    rules = {"ingress": [{"from": [{"podSelector": {"matchLabels": {"a": "1"}}}]}]}
    policy = {"metadata": {"name": "n", "namespace": "ns"}, "spec": rules}
    asked = claim(additionalPodMetadata=metadata(a="1"))
    own = taken(asked)
    seen = Claimed(
        claim=asked, pool=pool(), template=template(), sandboxes=(own,), policies=(policy,), now=NOW
    )
    assert ready(decide_claim(seen)) == ("True", "DependenciesReady")


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize(
    ("part", "key", "value", "other"),
    [
        ("labels", "app.kubernetes.io/name", "x", "z"),
        ("labels", "app", "sandbox-router", "Sandbox-Router"),
        ("annotations", "a.k8s.io/b", "y", "z"),
    ],
)
def test_a_rule_that_comes_later_says_nothing_about_what_is_there(taken, noted, part, key, value, other):
    """A controller that was updated meets claims that an older one let through."""
    own = taken(claim())
    own["spec"]["podTemplate"]["metadata"].setdefault(part, {})[key] = value
    if noted:
        own["metadata"]["annotations"][FROM_CLAIM] = json.dumps({part: [key]})
    else:
        del own["metadata"]["annotations"][FROM_CLAIM]
    asked = claim(additionalPodMetadata={part: {key: value}})
    own, decision = followed(own, asked)
    assert ready(decision) == ("True", "DependenciesReady")
    same, decision = followed(own, claim(additionalPodMetadata={part: {key: other}}))
    assert same["spec"] == own["spec"]
    assert ready(decision) == ("False", "InvalidMetadata")
