"""Edits of a bound SandboxClaim are applied, rejected, or ignored and reported."""

from __future__ import annotations

import json

import pytest
from tests.support.fake_api_server import apply_merge_patch
from tests.support.warm_pool_objects import (
    NOW,
    claim,
    pool,
    ready_condition,
    reconcile_claim,
    template,
    warm_sandbox,
)

from holdfast.sandbox.actions import Adopt, Create, Patch
from holdfast.sandbox.claim.binding import ObservedSandboxClaim, reconcile_sandbox_claim

FROM_CLAIM = "holdfast.dev/from-claim"
FAILED_PODS = "holdfast.dev/failed-pods"
EDITS = "holdfast.dev/EditsFollowed"


@pytest.fixture(params=["cold", "warm"])
def adopted_sandbox(request):
    """Return the sandbox that a SandboxClaim binds, with the SandboxClaim's later actions applied."""

    def got(asked, having=None):
        waits = (warm_sandbox("w"),) if request.param == "warm" else ()
        action = reconcile_claim(asked, *waits, template_object=having).actions[-1]
        if isinstance(action, Create):
            made = warm_sandbox("w")
            return {**made, **action.manifest, "metadata": made["metadata"] | action.manifest["metadata"]}
        assert isinstance(action, Adopt)
        return apply_merge_patch(waits[0], action.patch)

    return got


def remembering(name="w", **spec):
    asked = claim(**spec)
    asked["metadata"]["annotations"] |= {"agents.x-k8s.io/sandbox-name": name}
    return asked


def followed(own, asked, having=None):
    """The sandbox after its claim was edited, and the last decision, which has come to rest."""
    asked["metadata"].setdefault("annotations", {})["agents.x-k8s.io/sandbox-name"] = own["metadata"]["name"]
    decision = reconcile_claim(asked, own, template_object=having)
    for action in decision.actions:
        assert isinstance(action, Patch)
        own = apply_merge_patch(own, action.patch)
    again = reconcile_claim(asked, own, template_object=having)
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


def test_unedited_claim_changes_nothing(adopted_sandbox):
    asked = remembering(additionalPodMetadata=metadata(a="1"), lifecycle={"ttlSecondsAfterFinished": 5})
    own = adopted_sandbox(asked)
    same, decision = followed(own, asked)
    assert same == own
    assert ready_condition(decision) == ("True", "DependenciesReady")
    assert condition(decision, EDITS) is None


def test_record_on_sandbox_keeps_its_stored_keys(adopted_sandbox):
    own = adopted_sandbox(
        remembering(env=[{"name": "A", "value": "1"}], lifecycle={"ttlSecondsAfterFinished": 5}),
        template(envVarsInjectionPolicy="Allowed"),
    )
    record = json.loads(own["metadata"]["annotations"][FROM_CLAIM])
    assert record["final"] is True
    assert record["fixed"].keys() == {"warmPoolRef", "env"}


def labelled_template(**labels):
    having = template()
    having["spec"]["podTemplate"]["metadata"] = {"labels": labels, "annotations": {"why": "so"}}
    return having


def test_labels_and_annotations_propagate_and_template_values_stay(adopted_sandbox):
    having = labelled_template(app="x")
    own = adopted_sandbox(claim(additionalPodMetadata=metadata(a="1", b="2")), having)
    edited = claim(additionalPodMetadata={"labels": {"b": "3", "c": "4"}, "annotations": {"n": "5"}})
    own, _ = followed(own, edited, having)
    assert pod_labels(own) == {"app": "x", "b": "3", "c": "4"}
    assert own["spec"]["podTemplate"]["metadata"]["annotations"] == {"why": "so", "n": "5"}
    own, decision = followed(own, claim(), having)
    assert pod_labels(own) == {"app": "x"}
    assert own["spec"]["podTemplate"]["metadata"]["annotations"] == {"why": "so"}
    assert own["spec"]["podTemplate"]["metadata"]["labels"]["agents.x-k8s.io/claim-uid"] == "claim-1"
    assert ready_condition(decision) == ("True", "DependenciesReady")


def test_template_label_wins_over_claim_label(adopted_sandbox):
    having = labelled_template(app="x")
    own = adopted_sandbox(claim(additionalPodMetadata=metadata(app="x", a="1")), having)
    own, _ = followed(own, claim(), having)
    assert pod_labels(own) == {"app": "x"}
    _, decision = followed(own, claim(additionalPodMetadata=metadata(app="y")), having)
    assert ready_condition(decision) == ("False", "ReconcilerError")


def test_template_edits_reach_bound_sandbox_and_other_labels_are_removed(adopted_sandbox):
    own = adopted_sandbox(claim(additionalPodMetadata=metadata(a="1")), labelled_template(app="x", old="1"))
    own["spec"]["podTemplate"]["metadata"]["labels"]["theirs"] = "x"
    own, _ = followed(own, claim(additionalPodMetadata=metadata(a="1")), labelled_template(app="y"))
    assert pod_labels(own) == {"app": "y", "a": "1"}


def test_labels_stay_when_pool_has_another_template(adopted_sandbox):
    own = adopted_sandbox(claim(additionalPodMetadata=metadata(a="1")), labelled_template(app="x"))
    other = labelled_template(app="y")
    other["metadata"]["name"] = "other"
    own, _ = followed(own, claim(), other)
    assert pod_labels(own) == {"app": "x"}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"app": "mine"}, "ReconcilerError"),
        ({"holdfast.dev/x": "1"}, "InvalidMetadata"),
        ({"app": "sandbox-router"}, "InvalidMetadata"),
    ],
)
def test_forbidden_edit_is_rejected_without_changes(adopted_sandbox, bad, reason):
    having = labelled_template(app="x")
    own = adopted_sandbox(claim(additionalPodMetadata=metadata(a="1")), having)
    same, decision = followed(own, claim(additionalPodMetadata=metadata(**bad)), having)
    assert same == own
    assert ready_condition(decision) == ("False", reason)
    assert decision.status["sandbox"]["name"] == own["metadata"]["name"]
    own, decision = followed(own, claim(additionalPodMetadata=metadata(b="2")), having)
    assert ready_condition(decision) == ("True", "DependenciesReady")
    assert pod_labels(own) == {"app": "x", "b": "2"}


def test_ttl_after_finished_toggles_failed_pod_policy(adopted_sandbox):
    own = adopted_sandbox(claim())
    assert FAILED_PODS not in own["metadata"]["annotations"]
    own, _ = followed(own, claim(lifecycle={"ttlSecondsAfterFinished": 5}))
    assert own["metadata"]["annotations"][FAILED_PODS] == "Keep"
    own, _ = followed(own, claim(lifecycle={"shutdownPolicy": "Delete"}))
    assert FAILED_PODS not in own["metadata"]["annotations"]


def test_foreign_keep_annotation_is_kept(adopted_sandbox):
    own = adopted_sandbox(claim())
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
def test_immutable_fields_are_reported_on_claim(adopted_sandbox, field, value):
    own = adopted_sandbox(claim())
    same, decision = followed(own, claim(**{field: value}))
    assert same == own
    assert ready_condition(decision) == ("True", "DependenciesReady")
    told = condition(decision, EDITS)
    assert (told["status"], told["reason"]) == ("False", "EditIgnored")
    assert told["message"].startswith(f"{field}: ")
    _, decision = followed(own, claim())
    assert condition(decision, EDITS) is None


@pytest.mark.parametrize("note", ["", "{", "[]", json.dumps({"labels": 3})])
def test_sandbox_with_unreadable_annotation_gets_possible_edits(adopted_sandbox, note):
    own = adopted_sandbox(claim(additionalPodMetadata=metadata(a="1")))
    own["metadata"]["annotations"][FROM_CLAIM] = note
    own, decision = followed(own, claim(additionalPodMetadata=metadata(a="1", b="2")))
    assert pod_labels(own) == {"a": "1", "b": "2"}
    assert ready_condition(decision) == ("True", "DependenciesReady")
    own, _ = followed(own, claim())
    assert pod_labels(own) == {}


def test_later_policy_does_not_reject_existing_labels(adopted_sandbox):
    rules = {"ingress": [{"from": [{"podSelector": {"matchLabels": {"a": "1"}}}]}]}
    policy = {"metadata": {"name": "n", "namespace": "ns"}, "spec": rules}
    asked = claim(additionalPodMetadata=metadata(a="1"))
    own = adopted_sandbox(asked)
    seen = ObservedSandboxClaim(
        sandbox_claim=asked,
        pool=pool(),
        template=template(),
        sandboxes=(own,),
        network_policies=(policy,),
        now=NOW,
        label_domains=(),
    )
    assert ready_condition(reconcile_sandbox_claim(seen)) == ("True", "DependenciesReady")


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize(
    ("part", "key", "value", "other"),
    [
        ("labels", "app.kubernetes.io/name", "x", "z"),
        ("labels", "app", "sandbox-router", "Sandbox-Router"),
        ("annotations", "a.k8s.io/b", "y", "z"),
    ],
)
def test_later_rule_does_not_reject_existing_values(adopted_sandbox, noted, part, key, value, other):
    """A controller that was updated meets claims that an older one let through."""
    own = adopted_sandbox(claim())
    own["spec"]["podTemplate"]["metadata"].setdefault(part, {})[key] = value
    if noted:
        own["metadata"]["annotations"][FROM_CLAIM] = json.dumps({part: [key]})
    else:
        del own["metadata"]["annotations"][FROM_CLAIM]
    asked = claim(additionalPodMetadata={part: {key: value}})
    own, decision = followed(own, asked)
    assert ready_condition(decision) == ("True", "DependenciesReady")
    same, decision = followed(own, claim(additionalPodMetadata={part: {key: other}}))
    assert same["spec"] == own["spec"]
    assert ready_condition(decision) == ("False", "InvalidMetadata")
