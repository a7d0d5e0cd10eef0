"""Pools and claims on a real control plane: every reason of the published API, made real."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
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
    template(place, f"strict-{name}")
    pool(place, f"strict-{name}", 0)
    claim(place, f"refused-{name}", f"strict-{name}", **asked)
    place.wait_said("SandboxClaim", f"refused-{name}", Ready=f"False {reason}")
    assert place.get("Sandbox", f"refused-{name}") is None


def test_a_claim_with_variables_gets_a_sandbox_of_its_own(place):
    ready_pool(place, "open", 1, envVarsInjectionPolicy="Allowed")
    claim(place, "own", "open", env=[{"name": "A", "value": "1"}])
    place.wait_said("SandboxClaim", "own", Ready="True DependenciesReady")
    assert place.get("Pod", "own")["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


def test_a_claim_that_finds_nothing_waiting_tells_each_step_on_its_way(place):
    template(place, "steps")
    claim(place, "steps", "steps")
    place.wait_said("SandboxClaim", "steps", Ready="False WarmPoolNotFound")
    told, looking = [], threading.Event()

    def until(found):
        told.append(says(found, "Ready"))
        looking.set()
        return told[-1] == "True DependenciesReady"

    # From before its first step on: a pool that comes after the claim.
    with ThreadPoolExecutor(1) as beside:
        waited = beside.submit(place.wait, "SandboxClaim", "steps", until)
        assert looking.wait(20)
        pool(place, "steps", 0)
        waited.result()
    assert list(dict.fromkeys(told))[:2] == ["False WarmPoolNotFound", "False SandboxCreatePending"]
    assert "False SandboxNotReady" in told
    assert (
        place.get("SandboxClaim", "steps")["metadata"]["annotations"]["agents.x-k8s.io/sandbox-name"]
        == "steps"
    )


def test_a_name_that_is_taken_is_a_conflict(place):
    template(place, "named")
    pool(place, "named", 0)
    place.sandbox("taken-name")
    claim(place, "taken-name", "named")
    place.wait_said("SandboxClaim", "taken-name", Ready="False AdoptionConflict")


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
