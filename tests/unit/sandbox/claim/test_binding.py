"""Warm pools and claims: every reason of the published API, and what is done about it."""

from __future__ import annotations

import copy
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st
from tests.support.fake_api_server import apply_merge_patch
from tests.support.warm_pool_objects import (
    NOW,
    claim,
    name_sequence,
    pool,
    ready_condition,
    reconcile_claim,
    template,
    warm_sandbox,
)

from holdfast.sandbox.actions import Adopt, Create, Delete, Patch
from holdfast.sandbox.claim.binding import ObservedSandboxClaim, reconcile_sandbox_claim
from holdfast.sandbox.manifests import name_hash
from holdfast.sandbox.warmpool import ObservedWarmPool, matches_template, reconcile_warm_pool


def test_pool_creates_missing_sandboxes_and_counts_ready_ones():
    decision = reconcile_warm_pool(
        ObservedWarmPool(
            now=NOW,
            pool=pool(replicas=3),
            template=template(),
            sandboxes=(warm_sandbox("a"), warm_sandbox("b", ready=False)),
        ),
        name_sequence(),
    )
    (create,) = decision.actions
    assert create.manifest["metadata"]["name"] == "p-1"
    assert create.manifest["metadata"]["ownerReferences"][0]["uid"] == "pool-1"
    assert create.manifest["metadata"]["labels"]["agents.x-k8s.io/warm-pool-sandbox"] == name_hash("p")
    assert create.manifest["spec"]["podTemplate"]["spec"]["automountServiceAccountToken"] is False
    pod = create.manifest["spec"]["podTemplate"]["metadata"]
    assert pod["labels"]["agents.x-k8s.io/warm-pool-sandbox"] == name_hash("p")
    assert decision.status == {
        "replicas": 2,
        "readyReplicas": 1,
        "selector": f"agents.x-k8s.io/warm-pool-sandbox={name_hash('p')}",
        "observedGeneration": 2,
    }


def test_scale_down_deletes_unready_sandboxes_first():
    boxes = (warm_sandbox("a", age=9), warm_sandbox("b", ready=False), warm_sandbox("c", age=5))
    decision = reconcile_warm_pool(
        ObservedWarmPool(now=NOW, pool=pool(replicas=1), template=template(), sandboxes=boxes),
        name_sequence(),
    )
    assert [action.target.name for action in decision.actions] == ["b", "c"]


def test_terminating_sandbox_counts_until_it_is_gone():
    leaving = warm_sandbox("a")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    decision = reconcile_warm_pool(
        ObservedWarmPool(
            now=NOW, pool=pool(replicas=2), template=template(), sandboxes=(leaving, warm_sandbox("b"))
        ),
        name_sequence(),
    )
    assert decision.actions == ()
    assert decision.status["replicas"] == 1


def test_sandbox_without_controller_is_adopted_or_deleted():
    orphan, stale = warm_sandbox("a"), warm_sandbox("b")
    stale["metadata"]["labels"]["agents.x-k8s.io/sandbox-template-ref-hash"] = name_hash("other")
    for one in (orphan, stale):
        one["metadata"]["ownerReferences"] = []
    decision = reconcile_warm_pool(
        ObservedWarmPool(now=NOW, pool=pool(replicas=1), template=template(), orphans=(orphan, stale)),
        name_sequence(),
    )
    adopt, delete = decision.actions
    assert (adopt.target.name, adopt.patch["metadata"]["resourceVersion"]) == ("a", "7")
    assert adopt.patch["metadata"]["ownerReferences"][0]["uid"] == "pool-1"
    assert (delete.target.name, delete.resource_version) == ("b", "7")


def test_member_without_launch_type_gets_it():
    members = [warm_sandbox("a"), warm_sandbox("b"), warm_sandbox("c")]
    for one in members[1:]:
        del one["metadata"]["labels"]["agents.x-k8s.io/launch-type"]
    members[2]["metadata"]["ownerReferences"] = []
    decision = reconcile_warm_pool(
        ObservedWarmPool(
            now=NOW, pool=pool(replicas=3), template=template(), sandboxes=members[:2], orphans=members[2:]
        ),
        name_sequence(),
    )
    labels = {
        one.target.name: one.patch["metadata"]["labels"]["agents.x-k8s.io/launch-type"]
        for one in decision.actions
    }
    assert labels == {"b": "warm", "c": "warm"}


def test_template_change_replaces_sandboxes_only_with_recreate_strategy():
    newer = template()
    newer["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = "app:2"
    boxes = (warm_sandbox("a"), warm_sandbox("b"))
    asked = pool(updateStrategy={"type": "Recreate"})
    decision = reconcile_warm_pool(
        ObservedWarmPool(now=NOW, pool=asked, template=newer, sandboxes=boxes), name_sequence()
    )
    assert [type(action) for action in decision.actions] == [Delete, Delete, Create, Create]
    assert (
        reconcile_warm_pool(
            ObservedWarmPool(now=NOW, pool=pool(), template=newer, sandboxes=boxes), name_sequence()
        ).actions
        == ()
    )
    relabelled = template()
    relabelled["spec"]["podTemplate"]["metadata"] = {"labels": {"x": "y"}}
    assert matches_template(boxes[0], relabelled)
    assert not matches_template(boxes[0], newer)


def test_finished_sandbox_in_pool_is_replaced():
    decision = reconcile_warm_pool(
        ObservedWarmPool(
            now=NOW, pool=pool(replicas=1), template=template(), sandboxes=(warm_sandbox("a", finished=True),)
        ),
        name_sequence(),
    )
    assert [type(action) for action in decision.actions] == [Delete, Create]


def test_pool_without_template_creates_nothing_and_keeps_existing():
    decision = reconcile_warm_pool(
        ObservedWarmPool(now=NOW, pool=pool(), template=None, sandboxes=(warm_sandbox("a"),)), name_sequence()
    )
    assert decision.actions == ()
    assert decision.status["replicas"] == 1


def test_foreign_sandboxes_do_not_count():
    foreign = warm_sandbox("a", owner=claim() | {"metadata": claim()["metadata"] | {"uid": "other"}})
    decision = reconcile_warm_pool(
        ObservedWarmPool(now=NOW, pool=pool(replicas=1), template=template(), sandboxes=(foreign,)),
        name_sequence(),
    )
    assert [type(action) for action in decision.actions] == [Create]


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8), st.integers(0, 8))
def test_pool_converges_to_its_size(states, size):
    boxes = [warm_sandbox(f"s{n}", ready=r, finished=f) for n, (r, f) in enumerate(states)]
    asked, name = pool(replicas=size), name_sequence()
    for _ in range(3):
        decision = reconcile_warm_pool(
            ObservedWarmPool(now=NOW, pool=asked, template=template(), sandboxes=tuple(boxes)), name
        )
        gone = {action.target.name for action in decision.actions if isinstance(action, Delete)}
        boxes = [box for box in boxes if box["metadata"]["name"] not in gone]
        boxes += [
            warm_sandbox(action.manifest["metadata"]["name"])
            for action in decision.actions
            if isinstance(action, Create)
        ]
    assert decision.actions == ()
    assert len(boxes) == size


def test_claim_adopts_oldest_ready_sandbox_with_one_conditional_write():
    decision = reconcile_claim(
        claim(), warm_sandbox("new"), warm_sandbox("old", age=60), warm_sandbox("cold", ready=False, age=99)
    )
    remember, take = decision.actions
    assert isinstance(take, Adopt)
    assert take.target.name == "old"
    assert take.patch["metadata"]["resourceVersion"] == "7"
    assert take.patch["metadata"]["ownerReferences"][0]["uid"] == "claim-1"
    assert take.patch["metadata"]["labels"]["agents.x-k8s.io/warm-pool-sandbox"] is None
    pod = take.patch["spec"]["podTemplate"]["metadata"]
    assert pod["labels"]["agents.x-k8s.io/claim-uid"] == "claim-1"
    assert pod["labels"]["agents.x-k8s.io/warm-pool-sandbox"] is None
    assert isinstance(remember, Patch)
    assert remember.patch["metadata"]["annotations"] == {"agents.x-k8s.io/sandbox-name": "old"}
    assert decision.status is None


@pytest.mark.parametrize("sandboxes", [(), (warm_sandbox("w"),)], ids=["cold", "warm"])
def test_adopted_sandbox_has_claim_labels_and_id(sandboxes):
    asked = claim()
    given = {"team": "blue", "holdfast.dev/sandbox-id": "1", "holdfast.dev/managed-by": "holdfast"}
    others = {
        "app.kubernetes.io/instance": "x",
        "agents.x-k8s.io/warm-pool-sandbox": "y",
        "holdfast.dev/z": "1",
    }
    asked["metadata"]["labels"] = given | others
    first = reconcile_claim(asked, *sandboxes).actions[-1]
    labels = (first.manifest if isinstance(first, Create) else first.patch)["metadata"]["labels"]
    assert given.items() <= labels.items()
    assert not others.items() & labels.items()
    assert labels["agents.x-k8s.io/claim-uid"] == "claim-1"


def test_unready_sandbox_is_preferred_to_none():
    (_, take) = reconcile_claim(claim(), warm_sandbox("slow", ready=False)).actions
    assert take.target.name == "slow"


def test_empty_pool_creates_new_sandbox():
    decision = reconcile_claim(claim())
    (create,) = decision.actions
    assert create.manifest["metadata"]["name"] == "c"
    assert create.manifest["metadata"]["labels"]["agents.x-k8s.io/launch-type"] == "cold"
    assert decision.status is None


def test_name_conflict_is_reported():
    foreign = warm_sandbox("c", owner=claim() | {"metadata": claim()["metadata"] | {"uid": "other"}})
    decision = reconcile_claim(
        claim(env=[{"name": "A", "value": "1"}]),
        foreign,
        template_object=template(envVarsInjectionPolicy="Allowed"),
    )
    assert decision.actions == ()
    assert ready_condition(decision) == ("False", "ReconcilerError")


def test_claim_mirrors_sandbox_conditions():
    asked = claim()
    record, take = reconcile_claim(asked, warm_sandbox("old")).actions
    asked["metadata"]["annotations"] |= record.patch["metadata"]["annotations"]
    own = apply_merge_patch(warm_sandbox("old"), take.patch)
    decision = reconcile_claim(asked, own)
    assert (decision.actions, decision.after_status) == ((), ())
    assert ready_condition(decision) == ("True", "DependenciesReady")
    assert decision.status["sandbox"] == {"name": "old", "podIPs": ["10.0.0.3"]}
    over = reconcile_claim(asked, warm_sandbox("old", owner=claim(), ready=False, finished=True))
    assert [one["type"] for one in over.status["conditions"]] == ["Finished", "Ready"]


def test_claim_with_deleted_sandbox_reports_missing_then_gets_new_one():
    asked = claim()
    asked["status"] = {"sandbox": {"name": "old"}}
    told = reconcile_claim(asked, warm_sandbox("other"))
    assert (told.actions, told.requeue_after) == ((), 0.0)
    assert ready_condition(told) == ("False", "SandboxMissing")
    asked["status"] = told.status
    (_, take) = reconcile_claim(asked, warm_sandbox("other")).actions
    assert take.target.name == "other"


def test_finished_claim_gets_new_sandbox_after_deletion():
    asked = claim()
    asked["status"] = reconcile_claim(
        asked, warm_sandbox("old", owner=claim(), ready=False, finished=True)
    ).status
    told = reconcile_claim(asked, warm_sandbox("other"))
    assert ready_condition(told) == ("False", "SandboxMissing")
    assert [one["type"] for one in told.status["conditions"]] == ["Ready"]
    asked["status"] = told.status
    assert reconcile_claim(asked, warm_sandbox("other")).actions[-1].target.name == "other"


def test_claim_does_not_adopt_terminating_sandbox():
    newer = template()
    newer["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = "app:2"
    asked = pool(updateStrategy={"type": "Recreate"})
    (create,) = reconcile_claim(
        claim(), warm_sandbox("a"), warm_sandbox("b"), pool_object=asked, template_object=newer
    ).actions
    assert isinstance(create, Create)
    _, take = reconcile_claim(
        claim(),
        warm_sandbox("a"),
        warm_sandbox("b", template_object=newer),
        pool_object=asked,
        template_object=newer,
    ).actions
    assert take.target.name == "b"


def test_pool_deletes_only_observed_version():
    decision = reconcile_warm_pool(
        ObservedWarmPool(now=NOW, pool=pool(replicas=0), template=template(), sandboxes=(warm_sandbox("a"),)),
        name_sequence(),
    )
    assert [action.resource_version for action in decision.actions] == ["7"]


def test_missing_pool_or_template_is_named():
    missing = reconcile_sandbox_claim(
        ObservedSandboxClaim(sandbox_claim=claim(), pool=None, template=None, now=NOW)
    )
    assert ready_condition(missing) == ("False", "WarmPoolNotFound")
    missing = reconcile_sandbox_claim(
        ObservedSandboxClaim(sandbox_claim=claim(), pool=pool(), template=None, now=NOW)
    )
    assert ready_condition(missing) == ("False", "TemplateNotFound")


@pytest.mark.parametrize(
    ("asked", "having", "reason"),
    [
        ({"env": [{"name": "A", "value": "1"}]}, {}, "EnvVarsInjectionRejected"),
        (
            {"env": [{"name": "LANG", "value": "de"}]},
            {"envVarsInjectionPolicy": "Allowed"},
            "ReconcilerError",
        ),
        (
            {"env": [{"name": "A", "value": "1", "containerName": "none"}]},
            {"envVarsInjectionPolicy": "Overrides"},
            "ReconcilerError",
        ),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            {"envVarsInjectionPolicy": "Allowed"},
            "ReconcilerError",
        ),
        (
            {"env": [{"name": "A", "value": "1"}]},
            {
                "envVarsInjectionPolicy": "Allowed",
                "podTemplate": {"spec": {"containers": [{"name": "main", "envFrom": [{"secretRef": {}}]}]}},
            },
            "EnvVarsInjectionRejected",
        ),
        (
            {"volumeClaimTemplates": [{"metadata": {"name": "w"}, "spec": {}}]},
            {},
            "VolumeClaimTemplatesError",
        ),
        (
            {"volumeClaimTemplates": [{"metadata": {"name": "w"}, "spec": {}}] * 2},
            {"volumeClaimTemplatesPolicy": "Overrides"},
            "VolumeClaimTemplatesError",
        ),
        (
            {"volumeClaimTemplates": [{"spec": {}}]},
            {"volumeClaimTemplatesPolicy": "Allowed"},
            "VolumeClaimTemplatesError",
        ),
        (
            {"volumeClaimTemplates": [{"metadata": {"name": "w"}, "spec": {}}]},
            {
                "volumeClaimTemplatesPolicy": "Allowed",
                "volumeClaimTemplates": [{"metadata": {"name": "w"}, "spec": {}}],
            },
            "VolumeClaimTemplatesError",
        ),
        ({"additionalPodMetadata": {"labels": {"a b": "c"}}}, {}, "InvalidMetadata"),
        ({"additionalPodMetadata": {"labels": {"a": "x" * 64}}}, {}, "InvalidMetadata"),
        ({"additionalPodMetadata": {"labels": {"agents.x-k8s.io/claim-uid": "z"}}}, {}, "InvalidMetadata"),
    ],
)
def test_template_policy_violations_are_rejected_with_reason(asked, having, reason):
    decision = reconcile_claim(claim(**asked), warm_sandbox("a"), template_object=template(**having))
    assert decision.actions == ()
    assert ready_condition(decision) == ("False", reason)


def test_overrides_create_new_sandbox_and_keep_template():
    having = template(
        envVarsInjectionPolicy="Overrides",
        volumeClaimTemplatesPolicy="Overrides",
        volumeClaimTemplates=[{"metadata": {"name": "w"}, "spec": {"a": 1}}],
    )
    before = copy.deepcopy(having)
    asked = claim(
        env=[{"name": "LANG", "value": "de"}, {"name": "B", "value": "2", "containerName": "side"}],
        volumeClaimTemplates=[{"metadata": {"name": "w"}, "spec": {"a": 2}}],
        additionalPodMetadata={"labels": {"team": "blue"}, "annotations": {"why": "so"}},
    )
    (create,) = reconcile_claim(asked, warm_sandbox("a"), template_object=having).actions
    main, side = create.manifest["spec"]["podTemplate"]["spec"]["containers"]
    assert main["env"] == [{"name": "LANG", "value": "de"}]
    assert side["env"] == [{"name": "B", "value": "2"}]
    assert create.manifest["spec"]["volumeClaimTemplates"] == [{"metadata": {"name": "w"}, "spec": {"a": 2}}]
    assert create.manifest["spec"]["podTemplate"]["metadata"]["annotations"] == {"why": "so"}
    assert having == before


def with_init(policy):
    found = template(envVarsInjectionPolicy=policy)
    setup = {
        "name": "setup",
        "image": "x",
        "env": [{"name": "FIRST", "value": "1"}, {"name": "B", "value": "$(FIRST)"}],
    }
    found["spec"]["podTemplate"]["spec"]["initContainers"] = [setup]
    return found


def test_env_reaches_init_container_in_order():
    asked = claim(
        env=[
            {"name": "FIRST", "value": "2", "containerName": "setup"},
            {"name": "NEW", "value": "3", "containerName": "setup"},
            {"name": "ELSE", "value": "4"},
        ]
    )
    create = reconcile_claim(asked, template_object=with_init("Overrides")).actions[0]
    pod = create.manifest["spec"]["podTemplate"]["spec"]
    assert pod["initContainers"][0]["env"] == [
        {"name": "FIRST", "value": "2"},
        {"name": "B", "value": "$(FIRST)"},
        {"name": "NEW", "value": "3"},
    ]
    assert pod["containers"][0]["env"][-1] == {"name": "ELSE", "value": "4"}


def test_init_container_has_same_security_context():
    new = claim(env=[{"name": "NEW", "value": "3", "containerName": "setup"}])
    assert isinstance(reconcile_claim(new, template_object=with_init("Allowed")).actions[0], Create)
    known = claim(env=[{"name": "FIRST", "value": "3", "containerName": "setup"}])
    assert ready_condition(reconcile_claim(known, template_object=with_init("Allowed"))) == (
        "False",
        "ReconcilerError",
    )


@pytest.mark.parametrize(
    ("policy", "kinds"),
    [("Retain", ["Sandbox"]), ("Delete", ["SandboxClaim"]), ("DeleteForeground", ["SandboxClaim"])],
)
def test_expired_claim_is_reported_before_action(policy, kinds):
    asked = claim(lifecycle={"shutdownTime": NOW.isoformat(), "shutdownPolicy": policy})
    own = warm_sandbox("old", owner=claim())
    told = reconcile_claim(asked, own)
    assert (told.actions, told.requeue_after) == ((), 0.0)
    assert ready_condition(told) == ("False", "ClaimExpired")
    asked["status"] = told.status
    done = reconcile_claim(asked, own)
    assert [action.target.kind for action in done.actions] == kinds
    wanted = {"DeleteForeground": "Foreground"}.get(policy)
    assert done.actions[0].propagation == wanted


@pytest.mark.parametrize("sandboxes", [(), (warm_sandbox("w", ready=True),)], ids=["cold", "warm"])
@pytest.mark.parametrize(("lifecycle", "kept"), [({"ttlSecondsAfterFinished": 400}, "Keep"), ({}, None)])
def test_failed_pod_finishes_claim_with_ttl(sandboxes, lifecycle, kept):
    found = reconcile_claim(claim(lifecycle=lifecycle), *sandboxes).actions[-1]
    metadata = (found.manifest if isinstance(found, Create) else found.patch)["metadata"]
    assert metadata["annotations"].get("holdfast.dev/failed-pods") == kept


def test_ttl_counts_from_first_finished_condition():
    asked = claim(lifecycle={"ttlSecondsAfterFinished": 30})
    own = warm_sandbox("old", owner=claim(), ready=False, finished=True)
    asked["status"] = reconcile_claim(asked, own).status
    later = reconcile_claim(asked, own, now=NOW + timedelta(seconds=10))
    assert later.requeue_after == 20.0
    over = reconcile_claim(asked, own, now=NOW + timedelta(seconds=31))
    assert ready_condition(over) == ("False", "ClaimExpired")


@pytest.mark.parametrize("seconds", [2**31, 2**62])
def test_ttl_beyond_maximum_date_never_expires(seconds):
    asked = claim(lifecycle={"ttlSecondsAfterFinished": seconds})
    own = warm_sandbox("old", owner=claim(), ready=False, finished=True)
    asked["status"] = reconcile_claim(asked, own).status
    later = reconcile_claim(asked, own, now=NOW + timedelta(seconds=10))
    assert later.requeue_after == 2**31 - 11


def old_policy(**metadata):
    found = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {}}
    return found | {"metadata": {"name": "c-network-policy", "namespace": "ns", "uid": "n-1", **metadata}}


@pytest.mark.parametrize(
    ("policy", "deleted"),
    [
        (old_policy(), ["c-network-policy"]),
        (old_policy(name="other"), []),
        (old_policy(deletionTimestamp="2026-01-01T12:00:00Z"), []),
    ],
)
def test_network_policy_of_older_controllers_is_deleted(policy, deleted):
    observed = ObservedSandboxClaim(
        sandbox_claim=claim(), pool=None, template=None, now=NOW, own_policies=(policy,)
    )
    actions = reconcile_sandbox_claim(observed).actions
    assert [one.target.name for one in actions if isinstance(one, Delete)] == deleted


@pytest.mark.parametrize("seconds", [5.0, 0.5])
def test_claim_without_pool_expires_in_time(seconds):
    asked = claim(lifecycle={"shutdownTime": (NOW + timedelta(seconds=seconds)).isoformat()})
    missing = ObservedSandboxClaim(sandbox_claim=asked, pool=None, template=None, now=NOW)
    assert reconcile_sandbox_claim(missing).requeue_after == seconds
    assert reconcile_claim(asked, warm_sandbox("c", owner=asked)).requeue_after == seconds


def test_sandbox_of_the_status_is_the_bound_one_of_several():
    asked = claim()
    owned = (warm_sandbox("a", owner=asked), warm_sandbox("b", owner=asked))
    assert reconcile_claim(asked, *owned).status["sandbox"]["name"] == "a"
    asked["status"] = {"sandbox": {"name": "b"}}
    assert reconcile_claim(asked, *owned).status["sandbox"]["name"] == "b"


def test_name_of_another_sandbox_is_reported_before_a_missing_pool():
    observed = ObservedSandboxClaim(
        sandbox_claim=claim(), pool=None, template=None, now=NOW, sandboxes=(warm_sandbox("c"),)
    )
    assert ready_condition(reconcile_sandbox_claim(observed)) == ("False", "ReconcilerError")
