"""Warm pools and claims: every reason of the published API, and what is done about it."""

from __future__ import annotations

import copy
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.pool_decisions import NOW, claim, look, named, pool, ready, template, waiting

from holdfast.sandbox.actions import Adopt, Create, Delete, Patch
from holdfast.sandbox.blueprint import template_hash
from holdfast.sandbox.claim import Claimed, decide_claim
from holdfast.sandbox.names import name_hash
from holdfast.sandbox.pool import Pool, decide_pool


def test_a_pool_makes_what_is_missing_and_counts_what_is_ready():
    decision = decide_pool(
        Pool(
            now=NOW,
            pool=pool(replicas=3),
            template=template(),
            sandboxes=(waiting("a"), waiting("b", ready=False)),
        ),
        named(),
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


def test_a_pool_that_shrinks_lets_go_of_those_that_are_not_ready_first():
    boxes = (waiting("a", age=9), waiting("b", ready=False), waiting("c", age=5))
    decision = decide_pool(
        Pool(now=NOW, pool=pool(replicas=1), template=template(), sandboxes=boxes), named()
    )
    assert [action.target.name for action in decision.actions] == ["b", "a"]


def test_a_changed_template_replaces_only_where_the_pool_asks_for_it():
    newer = template()
    newer["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = "app:2"
    boxes = (waiting("a"), waiting("b"))
    asked = pool(updateStrategy={"type": "Recreate"})
    decision = decide_pool(Pool(now=NOW, pool=asked, template=newer, sandboxes=boxes), named())
    assert [type(action) for action in decision.actions] == [Delete, Delete, Create, Create]
    assert decide_pool(Pool(now=NOW, pool=pool(), template=newer, sandboxes=boxes), named()).actions == ()
    relabelled = template()
    relabelled["spec"]["podTemplate"]["metadata"] = {"labels": {"x": "y"}}
    assert template_hash(relabelled) == template_hash(template())


def test_a_sandbox_that_ended_in_the_pool_is_replaced():
    decision = decide_pool(
        Pool(now=NOW, pool=pool(replicas=1), template=template(), sandboxes=(waiting("a", finished=True),)),
        named(),
    )
    assert [type(action) for action in decision.actions] == [Delete, Create]


def test_a_pool_without_its_template_makes_nothing_and_keeps_what_it_has():
    decision = decide_pool(Pool(now=NOW, pool=pool(), template=None, sandboxes=(waiting("a"),)), named())
    assert decision.actions == ()
    assert decision.status["replicas"] == 1


def test_sandboxes_of_others_do_not_count():
    foreign = waiting("a", owner=claim() | {"metadata": claim()["metadata"] | {"uid": "other"}})
    decision = decide_pool(
        Pool(now=NOW, pool=pool(replicas=1), template=template(), sandboxes=(foreign,)), named()
    )
    assert [type(action) for action in decision.actions] == [Create]


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8), st.integers(0, 8))
def test_a_pool_comes_to_rest_at_its_size(states, size):
    boxes = [waiting(f"s{n}", ready=r, finished=f) for n, (r, f) in enumerate(states)]
    asked, name = pool(replicas=size), named()
    for _ in range(3):
        decision = decide_pool(Pool(now=NOW, pool=asked, template=template(), sandboxes=tuple(boxes)), name)
        gone = {action.target.name for action in decision.actions if isinstance(action, Delete)}
        boxes = [box for box in boxes if box["metadata"]["name"] not in gone]
        boxes += [
            waiting(action.manifest["metadata"]["name"])
            for action in decision.actions
            if isinstance(action, Create)
        ]
    assert decision.actions == ()
    assert len(boxes) == size


def test_a_claim_takes_the_oldest_ready_sandbox_with_one_write_on_the_version_it_saw():
    decision = look(claim(), waiting("new"), waiting("old", age=60), waiting("cold", ready=False, age=99))
    take, remember = decision.actions
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
    assert ready(decision) == ("False", "SandboxNotReady")


@pytest.mark.parametrize("sandboxes", [(), (waiting("w"),)], ids=["cold", "warm"])
def test_a_sandbox_is_found_by_what_its_claim_is_found_by_and_has_the_same_id(sandboxes):
    asked = claim()
    given = {"team": "blue", "holdfast.dev/sandbox-id": "1", "holdfast.dev/managed-by": "holdfast"}
    others = {
        "app.kubernetes.io/instance": "x",
        "agents.x-k8s.io/warm-pool-sandbox": "y",
        "holdfast.dev/z": "1",
    }
    asked["metadata"]["labels"] = given | others
    first = look(asked, *sandboxes).actions[0]
    labels = (first.manifest if isinstance(first, Create) else first.patch)["metadata"]["labels"]
    assert given.items() <= labels.items()
    assert not others.items() & labels.items()
    assert labels["agents.x-k8s.io/claim-uid"] == "claim-1"


def test_a_sandbox_that_is_not_ready_is_better_than_none():
    (take, _) = look(claim(), waiting("slow", ready=False)).actions
    assert take.target.name == "slow"


def test_an_empty_pool_means_a_sandbox_of_its_own():
    decision = look(claim())
    create, _ = decision.actions
    assert create.manifest["metadata"]["name"] == "c"
    assert create.manifest["metadata"]["labels"]["agents.x-k8s.io/launch-type"] == "cold"
    assert ready(decision) == ("False", "SandboxCreatePending")


def test_a_name_that_is_taken_is_a_conflict():
    foreign = waiting("c", owner=claim() | {"metadata": claim()["metadata"] | {"uid": "other"}})
    decision = look(
        claim(env=[{"name": "A", "value": "1"}]), foreign, having=template(envVarsInjectionPolicy="Allowed")
    )
    assert decision.actions == ()
    assert ready(decision) == ("False", "AdoptionConflict")


def test_a_claim_says_what_its_sandbox_says():
    own = waiting("old", owner=claim())
    own["spec"]["podTemplate"]["metadata"]["labels"]["agents.x-k8s.io/claim-uid"] = "claim-1"
    asked = claim()
    asked["metadata"]["annotations"] = {"agents.x-k8s.io/sandbox-name": "old"}
    decision = look(asked, own)
    assert decision.actions == ()
    assert ready(decision) == ("True", "DependenciesReady")
    assert decision.status["sandbox"] == {"name": "old", "podIPs": ["10.0.0.3"]}
    over = look(asked, waiting("old", owner=claim(), ready=False, finished=True))
    assert [one["type"] for one in over.status["conditions"]] == ["Ready", "Finished"]


def test_a_claim_whose_sandbox_is_gone_says_so_and_then_gets_another_one():
    asked = claim()
    asked["status"] = {"sandbox": {"name": "old"}}
    told = look(asked, waiting("other"))
    assert (told.actions, told.again_in) == ((), 0.0)
    assert ready(told) == ("False", "SandboxMissing")
    asked["status"] = told.status
    (take, _) = look(asked, waiting("other")).actions
    assert take.target.name == "other"


def test_a_claim_that_has_finished_is_not_done_again_when_its_sandbox_is_gone():
    asked = claim()
    asked["status"] = look(asked, waiting("old", owner=claim(), ready=False, finished=True)).status
    for _ in range(2):
        decision = look(asked, waiting("other"))
        assert (decision.actions, decision.again_in) == ((), None)
        assert ready(decision) == ("False", "SandboxMissing")
        asked["status"] = decision.status


def test_a_claim_leaves_alone_what_its_pool_lets_go_of():
    newer = template()
    newer["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = "app:2"
    asked = pool(updateStrategy={"type": "Recreate"})
    create, _ = look(claim(), waiting("a"), waiting("b"), by=asked, having=newer).actions
    assert isinstance(create, Create)
    take, _ = look(claim(), waiting("a"), waiting("b", made_from=newer), by=asked, having=newer).actions
    assert take.target.name == "b"


def test_a_pool_deletes_only_what_is_as_it_was_seen():
    decision = decide_pool(
        Pool(now=NOW, pool=pool(replicas=0), template=template(), sandboxes=(waiting("a"),)), named()
    )
    assert [action.version for action in decision.actions] == ["7"]


def test_a_pool_or_template_that_is_not_there_is_named():
    missing = decide_claim(Claimed(claim=claim(), pool=None, template=None, now=NOW))
    assert ready(missing) == ("False", "WarmPoolNotFound")
    missing = decide_claim(Claimed(claim=claim(), pool=pool(), template=None, now=NOW))
    assert ready(missing) == ("False", "TemplateNotFound")


@pytest.mark.parametrize(
    ("asked", "having", "reason"),
    [
        ({"env": [{"name": "A", "value": "1"}]}, {}, "EnvVarsInjectionRejected"),
        (
            {"env": [{"name": "LANG", "value": "de"}]},
            {"envVarsInjectionPolicy": "Allowed"},
            "EnvVarsInjectionRejected",
        ),
        (
            {"env": [{"name": "A", "value": "1", "containerName": "none"}]},
            {"envVarsInjectionPolicy": "Overrides"},
            "EnvVarsInjectionRejected",
        ),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            {"envVarsInjectionPolicy": "Allowed"},
            "EnvVarsInjectionRejected",
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
def test_what_the_template_does_not_allow_is_refused_with_its_reason(asked, having, reason):
    decision = look(claim(**asked), waiting("a"), having=template(**having))
    assert decision.actions == ()
    assert ready(decision) == ("False", reason)


def test_overrides_land_in_a_sandbox_of_the_claims_own_and_the_template_stays_as_it_is():
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
    (create, _) = look(asked, waiting("a"), having=having).actions
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


def test_variables_reach_a_container_that_runs_first_and_stay_in_their_place():
    asked = claim(
        env=[
            {"name": "FIRST", "value": "2", "containerName": "setup"},
            {"name": "NEW", "value": "3", "containerName": "setup"},
            {"name": "ELSE", "value": "4"},
        ]
    )
    create = look(asked, having=with_init("Overrides")).actions[0]
    pod = create.manifest["spec"]["podTemplate"]["spec"]
    assert pod["initContainers"][0]["env"] == [
        {"name": "FIRST", "value": "2"},
        {"name": "B", "value": "$(FIRST)"},
        {"name": "NEW", "value": "3"},
    ]
    assert pod["containers"][0]["env"][-1] == {"name": "ELSE", "value": "4"}


def test_a_container_that_runs_first_is_guarded_as_the_others_are():
    new = claim(env=[{"name": "NEW", "value": "3", "containerName": "setup"}])
    assert ready(look(new, having=with_init("Allowed"))) == ("False", "SandboxCreatePending")
    known = claim(env=[{"name": "FIRST", "value": "3", "containerName": "setup"}])
    assert ready(look(known, having=with_init("Allowed"))) == ("False", "EnvVarsInjectionRejected")


@pytest.mark.parametrize(
    ("policy", "kinds"),
    [("Retain", ["Sandbox"]), ("Delete", ["SandboxClaim"]), ("DeleteForeground", ["SandboxClaim"])],
)
def test_a_claim_whose_time_is_over_says_so_first_and_then_acts(policy, kinds):
    asked = claim(lifecycle={"shutdownTime": NOW.isoformat(), "shutdownPolicy": policy})
    own = waiting("old", owner=claim())
    told = look(asked, own)
    assert (told.actions, told.again_in) == ((), 0.0)
    assert ready(told) == ("False", "ClaimExpired")
    asked["status"] = told.status
    done = look(asked, own)
    assert [action.target.kind for action in done.actions] == kinds
    wanted = {"DeleteForeground": "Foreground", "Delete": "Background", "Retain": None}[policy]
    assert done.actions[0].propagation == wanted


@pytest.mark.parametrize("sandboxes", [(), (waiting("w", ready=True),)], ids=["cold", "warm"])
@pytest.mark.parametrize(("lifecycle", "kept"), [({"ttlSecondsAfterFinished": 400}, "Keep"), ({}, None)])
def test_a_failed_pod_is_the_end_of_a_claim_whose_time_counts_from_there(sandboxes, lifecycle, kept):
    found = look(claim(lifecycle=lifecycle), *sandboxes).actions[0]
    metadata = (found.manifest if isinstance(found, Create) else found.patch)["metadata"]
    assert metadata["annotations"].get("holdfast.dev/failed-pods") == kept


def test_the_time_after_it_finished_counts_from_when_that_was_first_said():
    asked = claim(lifecycle={"ttlSecondsAfterFinished": 30})
    own = waiting("old", owner=claim(), ready=False, finished=True)
    asked["status"] = look(asked, own).status
    later = look(asked, own, now=NOW + timedelta(seconds=10))
    assert later.again_in == 20.0
    over = look(asked, own, now=NOW + timedelta(seconds=31))
    assert ready(over) == ("False", "ClaimExpired")


@pytest.mark.parametrize("seconds", [2**31, 2**62])
def test_a_time_after_it_finished_that_is_no_date_is_far_away(seconds):
    asked = claim(lifecycle={"ttlSecondsAfterFinished": seconds})
    own = waiting("old", owner=claim(), ready=False, finished=True)
    asked["status"] = look(asked, own).status
    later = look(asked, own, now=NOW + timedelta(seconds=10))
    assert later.again_in == 2**31 - 11
