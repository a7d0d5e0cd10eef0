"""Pools and claims on a real control plane: every reason of the published API, made real."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.api_rows import CLAIM_ROWS, all_heard
from tests.support.controllers import SOON, ended, pod_spec_of, says, status_of

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]


@pytest.fixture(autouse=True)
def _controlled(controller, kubelet):
    return controller


def template(place, name, **spec):
    return place.make("SandboxTemplate", name, {"podTemplate": {"spec": pod_spec_of()}, **spec})


def pool(place, name, replicas=1, template_name=None, **spec):
    spec = {"replicas": replicas, "sandboxTemplateRef": {"name": template_name or name}, **spec}
    return place.make("SandboxWarmPool", name, spec)


def claim(place, name, of, **spec):
    return place.make("SandboxClaim", name, {"warmPoolRef": {"name": of}, **spec})


def ready_pool(place, name, replicas=1, **spec):
    template(place, name, **spec)
    pool(place, name, replicas)
    return place.wait(
        "SandboxWarmPool", name, lambda found: status_of(found).get("readyReplicas") == replicas
    )


def waiting(place, name):
    """The sandboxes that a pool has right now."""
    return [
        each
        for each in place.list("Sandbox")
        if any(owner["name"] == name for owner in each["metadata"].get("ownerReferences", ()))
        and not each["metadata"].get("deletionTimestamp")
    ]


def test_a_claim_gets_a_waiting_sandbox_and_the_pool_makes_another(place):
    found = ready_pool(place, "warm", 2)
    assert found["status"]["replicas"] == 2
    before = {each["metadata"]["name"] for each in waiting(place, "warm")}
    made = claim(place, "mine", "warm", additionalPodMetadata={"labels": {"team": "blue"}})
    bound = place.wait_said("SandboxClaim", "mine", Ready="True DependenciesReady")
    name = bound["status"]["sandbox"]["name"]
    assert name in before
    assert bound["status"]["sandbox"]["podIPs"] == ["10.9.0.1"]
    box = place.get("Sandbox", name)
    assert box["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    place.wait("Pod", name, lambda pod: pod["metadata"]["labels"].get("team") == "blue")
    SOON.call(lambda: assert_two_wait(place, but=name))
    place.delete("SandboxClaim", "mine")
    place.wait_gone("Sandbox", name)
    place.wait_gone("Pod", name)


def assert_two_wait(place, *, but):
    names = {each["metadata"]["name"] for each in waiting(place, "warm")}
    assert len(names - {but}) == len(names) == 2


def test_many_claims_at_once_get_one_sandbox_each(place):
    ready_pool(place, "busy", 3)
    for number in range(6):
        claim(place, f"busy-{number}", "busy")
    names = [
        place.wait_said("SandboxClaim", f"busy-{number}", Ready="True DependenciesReady")["status"][
            "sandbox"
        ]["name"]
        for number in range(6)
    ]
    assert len(set(names)) == 6


def test_a_pool_follows_its_number_up_and_down(place):
    ready_pool(place, "number", 1)
    place.patch("SandboxWarmPool", "number", {"spec": {"replicas": 3}})
    place.wait("SandboxWarmPool", "number", lambda found: status_of(found).get("readyReplicas") == 3)
    place.patch("SandboxWarmPool", "number", {"spec": {"replicas": 0}})
    place.wait("SandboxWarmPool", "number", lambda found: status_of(found).get("replicas") == 0)
    assert waiting(place, "number") == []


def test_recreate_replaces_what_waits_when_the_template_changes(place):
    template(place, "fresh")
    pool(place, "fresh", 1, updateStrategy={"type": "Recreate"})
    place.wait("SandboxWarmPool", "fresh", lambda found: status_of(found).get("readyReplicas") == 1)
    (old,) = waiting(place, "fresh")
    image = {"containers": [{"name": "main", "image": "app:2"}]}
    place.patch("SandboxTemplate", "fresh", {"spec": {"podTemplate": {"spec": image}}})
    place.wait_gone("Sandbox", old["metadata"]["name"])
    place.wait("SandboxWarmPool", "fresh", lambda found: status_of(found).get("readyReplicas") == 1)
    (new,) = waiting(place, "fresh")
    assert new["spec"]["podTemplate"]["spec"]["containers"][0]["image"] == "app:2"


def test_a_claim_on_a_pool_or_template_that_is_not_there_says_so_and_recovers(place):
    claim(place, "early", "later")
    place.wait_said("SandboxClaim", "early", Ready="False WarmPoolNotFound")
    pool(place, "later", 0)
    place.wait_said("SandboxClaim", "early", Ready="False TemplateNotFound")
    template(place, "later")
    bound = place.wait_said("SandboxClaim", "early", Ready="True DependenciesReady")
    assert bound["status"]["sandbox"]["name"] == "early"


@pytest.mark.parametrize(
    ("name", "asked", "reason"),
    [
        ("meta", {"additionalPodMetadata": {"labels": {"holdfast.dev/x": "1"}}}, "InvalidMetadata"),
        ("below", {"additionalPodMetadata": {"labels": {"x.agents.x-k8s.io/y": "1"}}}, "InvalidMetadata"),
        ("router", {"additionalPodMetadata": {"labels": {"app": "sandbox-router"}}}, "InvalidMetadata"),
        ("same", {"additionalPodMetadata": {"labels": {"tier": "mine"}}}, "InvalidMetadata"),
        ("env", {"env": [{"name": "A", "value": "1"}]}, "EnvVarsInjectionRejected"),
        (
            "volumes",
            {
                "volumeClaimTemplates": [
                    {"metadata": {"name": "w"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
                ]
            },
            "VolumeClaimTemplatesError",
        ),
    ],
)
def test_what_a_template_does_not_allow_is_refused(place, name, asked, reason):
    labelled = {"metadata": {"labels": {"tier": "theirs"}}, "spec": pod_spec_of()}
    template(place, f"strict-{name}", podTemplate=labelled)
    pool(place, f"strict-{name}", 0)
    claim(place, f"refused-{name}", f"strict-{name}", **asked)
    place.wait_said("SandboxClaim", f"refused-{name}", Ready=f"False {reason}")
    assert place.get("Sandbox", f"refused-{name}") is None


def test_a_claim_with_variables_gets_a_sandbox_of_its_own(place):
    ready_pool(place, "open", 1, envVarsInjectionPolicy="Allowed")
    claim(place, "own", "open", env=[{"name": "A", "value": "1"}])
    place.wait_said("SandboxClaim", "own", Ready="True DependenciesReady")
    assert place.get("Pod", "own")["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


def test_variables_reach_a_container_that_runs_first(place):
    setup = {"name": "setup", "image": "app:1", "env": [{"name": "A", "value": "theirs"}]}
    pods = {"spec": {**pod_spec_of(), "initContainers": [setup]}}
    template(place, "init", podTemplate=pods, envVarsInjectionPolicy="Overrides")
    pool(place, "init", 0)
    claim(place, "init", "init", env=[{"name": "A", "value": "mine", "containerName": "setup"}])
    place.wait_said("SandboxClaim", "init", Ready="True DependenciesReady")
    pod = place.get("Pod", "init")
    assert pod["spec"]["initContainers"][0]["env"] == [{"name": "A", "value": "mine"}]
    assert "env" not in pod["spec"]["containers"][0]


def test_a_label_that_opens_a_way_is_refused_until_the_policy_is_gone(place):
    ingress = [{"from": [{"podSelector": {"matchLabels": {"role": "front"}}}]}]
    template(place, "opened", networkPolicy={"ingress": ingress})
    place.wait("NetworkPolicy", "opened-network-policy", bool)
    template(place, "opener")
    pool(place, "opener", 0)
    front = {"additionalPodMetadata": {"labels": {"role": "front"}}}
    claim(place, "bound-opener", "opener")
    place.wait_said("SandboxClaim", "bound-opener", Ready="True DependenciesReady")
    place.patch("SandboxClaim", "bound-opener", {"spec": front})
    claim(place, "opener", "opener", **front)
    for name in ("opener", "bound-opener"):
        found = place.wait_said("SandboxClaim", name, Ready="False InvalidMetadata")
        words = found["status"]["conditions"][0]["message"]
        assert "opened-network-policy lets pods through by role" in words
    place.patch("SandboxTemplate", "opened", {"spec": {"networkPolicyManagement": "Unmanaged"}})
    for name in ("opener", "bound-opener"):
        place.wait_said("SandboxClaim", name, Ready="True DependenciesReady")
        place.wait("Pod", name, lambda pod: pod["metadata"]["labels"].get("role") == "front")


def test_a_claim_that_finds_nothing_waiting_tells_each_step_on_its_way(place):
    template(place, "steps")
    claim(place, "steps", "steps")
    place.wait_said("SandboxClaim", "steps", Ready="False WarmPoolNotFound")
    looking = threading.Event()
    # From before its first step on: a pool that comes after the claim.
    with ThreadPoolExecutor(1) as beside:
        waited = beside.submit(place.wait_told, "SandboxClaim", "steps", "True DependenciesReady", looking)
        assert looking.wait(20)
        pool(place, "steps", 0)
        told = waited.result()
    assert told[:2] == ["False WarmPoolNotFound", "False SandboxCreatePending"]
    assert "False SandboxNotReady" in told
    assert (
        place.get("SandboxClaim", "steps")["metadata"]["annotations"]["agents.x-k8s.io/sandbox-name"]
        == "steps"
    )


def test_a_name_that_is_taken_is_a_conflict_until_the_one_that_has_it_is_gone(place):
    template(place, "named")
    pool(place, "named", 0)
    place.sandbox("taken-name")
    made = claim(place, "taken-name", "named")
    place.wait_said("SandboxClaim", "taken-name", Ready="False AdoptionConflict")
    place.delete("Sandbox", "taken-name")
    bound = place.wait_said("SandboxClaim", "taken-name", Ready="True DependenciesReady")
    assert bound["status"]["sandbox"]["name"] == "taken-name"
    owner = place.get("Sandbox", "taken-name")["metadata"]["ownerReferences"][0]
    assert owner["uid"] == made["metadata"]["uid"]


def test_a_claim_tells_when_its_sandbox_is_not_ready_is_over_or_is_gone(place):
    template(place, "told")
    pool(place, "told", 0)
    claim(place, "told", "told")
    place.wait_said("SandboxClaim", "told", Ready="True DependenciesReady")
    place.patch("Sandbox", "told", {"spec": {"operatingMode": "Suspended"}})
    place.wait_said("SandboxClaim", "told", Ready="False SandboxSuspended")
    place.patch("Sandbox", "told", {"spec": {"operatingMode": "Running"}})
    place.wait_said("SandboxClaim", "told", Ready="True DependenciesReady")
    place.patch("Pod", "told", {"status": ended("Succeeded", 0)}, subresource="status")
    place.wait_said("SandboxClaim", "told", Ready="False PodSucceeded", Finished="True PodSucceeded")
    place.delete("Sandbox", "told")
    place.wait_said("SandboxClaim", "told", Ready="False SandboxMissing")


@pytest.mark.parametrize("policy", ["Retain", "Delete", "DeleteForeground"])
def test_a_claims_time_ends_with_its_sandbox(place, policy):
    name = f"timed-{policy.lower()}"
    template(place, name)
    pool(place, name, 0)
    ends = (datetime.now(UTC) + timedelta(seconds=8)).strftime("%Y-%m-%dT%H:%M:%SZ")
    claim(place, name, name, lifecycle={"shutdownTime": ends, "shutdownPolicy": policy})
    place.wait_said("SandboxClaim", name, Ready="True DependenciesReady")
    place.wait_gone("Sandbox", name)
    if policy == "Retain":
        found = place.wait_said("SandboxClaim", name, Ready="False ClaimExpired")
        assert says(found, "Ready") == "False ClaimExpired"
    else:
        place.wait_gone("SandboxClaim", name)


@pytest.mark.parametrize("replicas", [0, 1], ids=["cold", "warm"])
def test_edits_of_a_claim_reach_its_sandbox_and_its_pod(place, replicas):
    name = f"edited-{replicas}"
    ready_pool(place, name, replicas)
    claim(place, name, name, additionalPodMetadata={"labels": {"team": "blue", "tier": "one"}})
    bound = place.wait_said("SandboxClaim", name, Ready="True DependenciesReady")
    box = bound["status"]["sandbox"]["name"]
    place.wait("Pod", box, lambda pod: pod["metadata"]["labels"].get("team") == "blue")
    before = place.get("Pod", box)
    lifecycle = {"ttlSecondsAfterFinished": 2, "shutdownPolicy": "Delete"}
    metadata = {"labels": {"team": "red", "tier": None}, "annotations": {"note": "x"}}
    place.patch("SandboxClaim", name, {"spec": {"additionalPodMetadata": metadata, "lifecycle": lifecycle}})
    pod = place.wait("Pod", box, lambda pod: pod["metadata"]["labels"].get("team") == "red")
    assert "tier" not in pod["metadata"]["labels"]
    assert pod["metadata"]["annotations"]["note"] == "x"
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    # Its time counts from the end now, and a pod that failed is that end: it is not made again.
    place.wait("Sandbox", box, lambda found: "holdfast.dev/failed-pods" in found["metadata"]["annotations"])
    place.patch("Pod", box, {"status": ended("Failed", 7)}, subresource="status")
    place.wait_gone("SandboxClaim", name)
    place.wait_gone("Sandbox", box)


def test_an_edit_that_cannot_follow_is_told_of_and_one_that_may_not_is_refused(place):
    ready_pool(place, "unmoved", 1, envVarsInjectionPolicy="Allowed")
    claim(place, "unmoved", "unmoved")
    bound = place.wait_said("SandboxClaim", "unmoved", Ready="True DependenciesReady")
    box = bound["status"]["sandbox"]["name"]
    place.patch("SandboxClaim", "unmoved", {"spec": {"env": [{"name": "A", "value": "1"}]}})
    found = place.wait_said(
        "SandboxClaim",
        "unmoved",
        Ready="True DependenciesReady",
        **{"holdfast.dev/EditsFollowed": "False EditIgnored"},
    )
    (words,) = [row["message"] for row in found["status"]["conditions"] if "Edits" in row["type"]]
    assert words.startswith("env: ")
    assert "env" not in place.get("Pod", box)["spec"]["containers"][0]
    bad = {"additionalPodMetadata": {"labels": {"app": "sandbox-router"}}, "env": None}
    place.patch("SandboxClaim", "unmoved", {"spec": bad})
    found = place.wait_said(
        "SandboxClaim",
        "unmoved",
        Ready="False InvalidMetadata",
        **{"holdfast.dev/EditsFollowed": None},
    )
    assert found["status"]["sandbox"]["name"] == box
    assert place.get("Pod", box)["metadata"]["labels"].get("app") is None
    place.patch("SandboxClaim", "unmoved", {"spec": {"additionalPodMetadata": None}})
    place.wait_said("SandboxClaim", "unmoved", Ready="True DependenciesReady")


def test_a_shutdown_time_that_is_set_later_holds(place):
    ready_pool(place, "later-end", 1)
    claim(place, "later-end", "later-end")
    bound = place.wait_said("SandboxClaim", "later-end", Ready="True DependenciesReady")
    ends = (datetime.now(UTC) + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    place.patch("SandboxClaim", "later-end", {"spec": {"lifecycle": {"shutdownTime": ends}}})
    place.wait_said("SandboxClaim", "later-end", Ready="False ClaimExpired")
    place.wait_gone("Sandbox", bound["status"]["sandbox"]["name"])


def test_a_claim_goes_some_seconds_after_its_sandbox_finished(place):
    template(place, "ttl")
    pool(place, "ttl", 0)
    claim(place, "ttl", "ttl", lifecycle={"ttlSecondsAfterFinished": 2, "shutdownPolicy": "Delete"})
    place.wait_said("SandboxClaim", "ttl", Ready="True DependenciesReady")
    place.patch("Pod", "ttl", {"status": ended("Succeeded", 0)}, subresource="status")
    place.wait_gone("SandboxClaim", "ttl")
    place.wait_gone("Sandbox", "ttl")


def test_a_template_has_its_network_policy_and_its_sandboxes_say_that_nobody_keeps_to_it(place):
    ready_pool(place, "guarded", 1, networkPolicy={"egress": [{"ports": [{"port": 443}]}]})
    found = place.wait("NetworkPolicy", "guarded-network-policy", bool)
    assert found["spec"]["egress"][0]["ports"][0]["port"] == 443
    (box,) = waiting(place, "guarded")
    told = place.wait_said(
        "Sandbox", box["metadata"]["name"], **{"holdfast.dev/NetworkPolicyEnforced": "False NotEnforced"}
    )
    assert any("does not enforce it" in row["message"] for row in told["status"]["conditions"])
    pod = place.get("Pod", box["metadata"]["name"])
    selected = found["spec"]["podSelector"]["matchLabels"].items()
    assert selected <= pod["metadata"]["labels"].items()
    place.delete("NetworkPolicy", "guarded-network-policy")
    place.wait("NetworkPolicy", "guarded-network-policy", bool)
    place.patch("SandboxTemplate", "guarded", {"spec": {"networkPolicyManagement": "Unmanaged"}})
    place.wait_gone("NetworkPolicy", "guarded-network-policy")
    place.wait_said("Sandbox", box["metadata"]["name"], **{"holdfast.dev/NetworkPolicyEnforced": None})


@pytest.mark.parametrize(
    ("of", "labels"), [("foreign", {}), ("orphaned", {"holdfast.dev/managed-by": "holdfast"})]
)
def test_a_policy_of_somebody_else_under_the_templates_name_is_told_of(place, controller, of, labels):
    """One that was ours once has our label, and is watched; the others are met when ours is made."""
    name = f"{of}-network-policy"
    place.objects.create(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": place.namespace, "labels": labels},
            "spec": {"podSelector": {"matchLabels": {"app": "theirs"}}},
        }
    )
    ready_pool(place, of, 1)
    (box,) = waiting(place, of)
    enforced = "holdfast.dev/NetworkPolicyEnforced"
    told = place.wait_said("Sandbox", box["metadata"]["name"], **{enforced: "False NotMade"})
    assert any(f"{name} of the template {of} is not made" in row["message"] for row in conditions(told))
    assert f"its network policy {name} is not made" in controller.log()
    assert place.get("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"] == {"app": "theirs"}
    place.delete("NetworkPolicy", name)
    place.wait_said("Sandbox", box["metadata"]["name"], **{enforced: "False NotEnforced"})


def conditions(found):
    return found["status"]["conditions"]


def test_every_reason_of_a_claim_was_heard(place, request):
    assert CLAIM_ROWS - all_heard(place, request) == set()
