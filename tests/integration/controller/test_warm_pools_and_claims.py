"""Pools and claims on a real control plane: every reason of the published API, made real."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.condition_coverage import CLAIM_CONDITIONS, observed_conditions_of_file
from tests.support.controller_process import (
    EVENTUALLY,
    condition_summary,
    default_pod_spec,
    is_pool_ready,
    status_of,
    terminated_pod_status,
)
from tests.support.eventually import eventually

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]


@pytest.fixture(autouse=True)
def _running_controller(controller, kubelet):
    return controller


def create_template(place, name, **spec):
    return place.create("SandboxTemplate", name, {"podTemplate": {"spec": default_pod_spec()}, **spec})


def create_pool(place, name, replicas=1, template_name=None, **spec):
    spec = {"replicas": replicas, "sandboxTemplateRef": {"name": template_name or name}, **spec}
    return place.create("SandboxWarmPool", name, spec)


def create_claim(place, name, of, **spec):
    return place.create("SandboxClaim", name, {"warmPoolRef": {"name": of}, **spec})


def create_ready_pool(place, name, replicas=1, **spec):
    create_template(place, name, **spec)
    create_pool(place, name, replicas)
    return place.wait("SandboxWarmPool", name, lambda found: is_pool_ready(found, replicas))


def warm_sandboxes(place, name):
    """The sandboxes that a pool has right now."""
    return [
        each
        for each in place.list("Sandbox")
        if any(owner["name"] == name for owner in each["metadata"].get("ownerReferences", ()))
        and not each["metadata"].get("deletionTimestamp")
    ]


def test_claim_adopts_warm_sandbox_and_pool_is_refilled(ns):
    found = create_ready_pool(ns, "warm", 2)
    assert found["status"]["replicas"] == 2
    before = {each["metadata"]["name"] for each in warm_sandboxes(ns, "warm")}
    made = create_claim(
        ns, "mine", "warm", additionalPodMetadata={"labels": {"sandbox.users.io/team": "blue"}}
    )
    bound = ns.wait_conditions("SandboxClaim", "mine", Ready="True DependenciesReady")
    name = bound["status"]["sandbox"]["name"]
    assert name in before
    assert bound["status"]["sandbox"]["podIPs"] == ["10.9.0.1"]
    box = ns.get("Sandbox", name)
    assert box["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    ns.wait("Pod", name, lambda pod: pod["metadata"]["labels"].get("sandbox.users.io/team") == "blue")
    EVENTUALLY.call(lambda: assert_two_warm_sandboxes(ns, but=name))
    ns.delete("SandboxClaim", "mine")
    ns.wait_gone("Sandbox", name)
    ns.wait_gone("Pod", name)


def assert_two_warm_sandboxes(place, *, but):
    names = {each["metadata"]["name"] for each in warm_sandboxes(place, "warm")}
    assert len(names - {but}) == len(names) == 2


def test_concurrent_claims_get_distinct_sandboxes(ns):
    create_ready_pool(ns, "busy", 3)
    for number in range(6):
        create_claim(ns, f"busy-{number}", "busy")
    names = [
        ns.wait_conditions("SandboxClaim", f"busy-{number}", Ready="True DependenciesReady")["status"][
            "sandbox"
        ]["name"]
        for number in range(6)
    ]
    assert len(set(names)) == 6


def test_pool_scales_up_and_down(ns):
    create_ready_pool(ns, "number", 1)
    ns.patch("SandboxWarmPool", "number", {"spec": {"replicas": 3}})
    ns.wait("SandboxWarmPool", "number", lambda found: status_of(found).get("readyReplicas") == 3)
    ns.patch("SandboxWarmPool", "number", {"spec": {"replicas": 0}})
    ns.wait("SandboxWarmPool", "number", lambda found: not status_of(found).get("replicas"))
    assert warm_sandboxes(ns, "number") == []


def test_recreate_strategy_replaces_warm_sandboxes_on_template_change(ns):
    create_template(ns, "fresh")
    create_pool(ns, "fresh", 1, updateStrategy={"type": "Recreate"})
    ns.wait("SandboxWarmPool", "fresh", lambda found: status_of(found).get("readyReplicas") == 1)
    (old,) = warm_sandboxes(ns, "fresh")
    image = {"containers": [{"name": "main", "image": "app:2"}]}
    ns.patch("SandboxTemplate", "fresh", {"spec": {"podTemplate": {"spec": image}}})
    ns.wait_gone("Sandbox", old["metadata"]["name"])
    # The status may still count the old sandbox.
    (new,) = eventually(lambda: warm_sandboxes(ns, "fresh"))
    assert new["spec"]["podTemplate"]["spec"]["containers"][0]["image"] == "app:2"


def test_claim_reports_missing_pool_or_template_and_recovers(ns):
    create_claim(ns, "early", "later")
    ns.wait_conditions("SandboxClaim", "early", Ready="False WarmPoolNotFound")
    create_pool(ns, "later", 0)
    ns.wait_conditions("SandboxClaim", "early", Ready="False TemplateNotFound")
    create_template(ns, "later")
    bound = ns.wait_conditions("SandboxClaim", "early", Ready="True DependenciesReady")
    assert bound["status"]["sandbox"]["name"] == "early"


@pytest.mark.parametrize(
    ("name", "asked", "reason"),
    [
        ("meta", {"additionalPodMetadata": {"labels": {"holdfast.dev/x": "1"}}}, "InvalidMetadata"),
        ("below", {"additionalPodMetadata": {"labels": {"x.agents.x-k8s.io/y": "1"}}}, "InvalidMetadata"),
        ("router", {"additionalPodMetadata": {"labels": {"app": "sandbox-router"}}}, "InvalidMetadata"),
        ("same", {"additionalPodMetadata": {"labels": {"sandbox.users.io/tier": "mine"}}}, "ReconcilerError"),
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
def test_template_policy_violations_are_rejected(ns, name, asked, reason):
    labelled = {"metadata": {"labels": {"sandbox.users.io/tier": "theirs"}}, "spec": default_pod_spec()}
    create_template(ns, f"strict-{name}", podTemplate=labelled)
    create_pool(ns, f"strict-{name}", 0)
    create_claim(ns, f"refused-{name}", f"strict-{name}", **asked)
    ns.wait_conditions("SandboxClaim", f"refused-{name}", Ready=f"False {reason}")
    assert ns.get("Sandbox", f"refused-{name}") is None


def test_claim_with_env_gets_new_sandbox(ns):
    create_ready_pool(ns, "open", 1, envVarsInjectionPolicy="Allowed")
    create_claim(ns, "own", "open", env=[{"name": "A", "value": "1"}])
    ns.wait_conditions("SandboxClaim", "own", Ready="True DependenciesReady")
    assert ns.get("Pod", "own")["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


def test_env_reaches_init_container(ns):
    setup = {"name": "setup", "image": "app:1", "env": [{"name": "A", "value": "theirs"}]}
    pods = {"spec": {**default_pod_spec(), "initContainers": [setup]}}
    create_template(ns, "init", podTemplate=pods, envVarsInjectionPolicy="Overrides")
    create_pool(ns, "init", 0)
    create_claim(ns, "init", "init", env=[{"name": "A", "value": "mine", "containerName": "setup"}])
    ns.wait_conditions("SandboxClaim", "init", Ready="True DependenciesReady")
    pod = ns.get("Pod", "init")
    assert pod["spec"]["initContainers"][0]["env"] == [{"name": "A", "value": "mine"}]
    assert "env" not in pod["spec"]["containers"][0]


def test_label_allowed_by_network_policy_is_rejected_until_policy_is_deleted(ns):
    ingress = [{"from": [{"podSelector": {"matchLabels": {"sandbox.users.io/role": "front"}}}]}]
    create_template(ns, "opened", networkPolicy={"ingress": ingress})
    ns.wait("NetworkPolicy", "opened-network-policy", bool)
    create_template(ns, "opener")
    create_pool(ns, "opener", 0)
    front = {"additionalPodMetadata": {"labels": {"sandbox.users.io/role": "front"}}}
    create_claim(ns, "bound-opener", "opener")
    ns.wait_conditions("SandboxClaim", "bound-opener", Ready="True DependenciesReady")
    ns.patch("SandboxClaim", "bound-opener", {"spec": front})
    create_claim(ns, "opener", "opener", **front)
    for name in ("opener", "bound-opener"):
        found = ns.wait_conditions("SandboxClaim", name, Ready="False InvalidMetadata")
        words = found["status"]["conditions"][0]["message"]
        assert (
            "opened-network-policy allows connections of pods with the label sandbox.users.io/role" in words
        )
    ns.patch("SandboxTemplate", "opened", {"spec": {"networkPolicyManagement": "Unmanaged"}})
    for name in ("opener", "bound-opener"):
        ns.wait_conditions("SandboxClaim", name, Ready="True DependenciesReady")
        ns.wait("Pod", name, lambda pod: pod["metadata"]["labels"].get("sandbox.users.io/role") == "front")


def test_claim_on_empty_pool_reports_each_reason(ns):
    create_template(ns, "steps")
    create_claim(ns, "steps", "steps")
    ns.wait_conditions("SandboxClaim", "steps", Ready="False WarmPoolNotFound")
    looking = threading.Event()
    # From before its first step on: a pool that comes after the claim.
    with ThreadPoolExecutor(1) as beside:
        waited = beside.submit(
            ns.wait_ready_transitions, "SandboxClaim", "steps", "True DependenciesReady", looking
        )
        assert looking.wait(20)
        create_pool(ns, "steps", 0)
        told = waited.result()
    assert told[:2] == ["False WarmPoolNotFound", "False SandboxNotReady"]
    annotations = ns.get("SandboxClaim", "steps")["metadata"]["annotations"]
    assert "agents.x-k8s.io/sandbox-name" not in annotations


def test_name_conflict_lasts_until_other_sandbox_is_deleted(ns):
    create_template(ns, "named")
    create_pool(ns, "named", 0)
    ns.create_sandbox("taken-name")
    made = create_claim(ns, "taken-name", "named")
    ns.wait_conditions("SandboxClaim", "taken-name", Ready="False ReconcilerError")
    ns.delete("Sandbox", "taken-name")
    bound = ns.wait_conditions("SandboxClaim", "taken-name", Ready="True DependenciesReady")
    assert bound["status"]["sandbox"]["name"] == "taken-name"
    owner = ns.get("Sandbox", "taken-name")["metadata"]["ownerReferences"][0]
    assert owner["uid"] == made["metadata"]["uid"]


def test_claim_reports_sandbox_not_ready_or_finished_and_replaces_it(ns):
    create_template(ns, "told")
    create_pool(ns, "told", 0)
    create_claim(ns, "told", "told")
    ns.wait_conditions("SandboxClaim", "told", Ready="True DependenciesReady")
    ns.patch("Sandbox", "told", {"spec": {"operatingMode": "Suspended"}})
    ns.wait_conditions("SandboxClaim", "told", Ready="False SandboxSuspended")
    ns.patch("Sandbox", "told", {"spec": {"operatingMode": "Running"}})
    ns.wait_conditions("SandboxClaim", "told", Ready="True DependenciesReady")
    ns.patch("Pod", "told", {"status": terminated_pod_status("Succeeded", 0)}, subresource="status")
    ns.wait_conditions("SandboxClaim", "told", Ready="False PodSucceeded", Finished="True PodSucceeded")
    ns.delete("Sandbox", "told")
    ns.wait_conditions("SandboxClaim", "told", Ready="True DependenciesReady", Finished=None)


@pytest.mark.parametrize("policy", ["Retain", "Delete", "DeleteForeground"])
def test_expired_claim_deletes_its_sandbox(ns, policy):
    name = f"timed-{policy.lower()}"
    create_template(ns, name)
    create_pool(ns, name, 0)
    ends = (datetime.now(UTC) + timedelta(seconds=8)).strftime("%Y-%m-%dT%H:%M:%SZ")
    create_claim(ns, name, name, lifecycle={"shutdownTime": ends, "shutdownPolicy": policy})
    ns.wait_conditions("SandboxClaim", name, Ready="True DependenciesReady")
    ns.wait_gone("Sandbox", name)
    if policy == "Retain":
        found = ns.wait_conditions("SandboxClaim", name, Ready="False ClaimExpired")
        assert condition_summary(found, "Ready") == "False ClaimExpired"
    else:
        ns.wait_gone("SandboxClaim", name)


@pytest.mark.parametrize("replicas", [0, 1], ids=["cold", "warm"])
def test_claim_edits_propagate_to_sandbox_and_pod(ns, replicas):
    name = f"edited-{replicas}"
    create_ready_pool(ns, name, replicas)
    create_claim(
        ns,
        name,
        name,
        additionalPodMetadata={"labels": {"sandbox.users.io/team": "blue", "sandbox.users.io/tier": "one"}},
    )
    bound = ns.wait_conditions("SandboxClaim", name, Ready="True DependenciesReady")
    box = bound["status"]["sandbox"]["name"]
    ns.wait("Pod", box, lambda pod: pod["metadata"]["labels"].get("sandbox.users.io/team") == "blue")
    before = ns.get("Pod", box)
    lifecycle = {"ttlSecondsAfterFinished": 2, "shutdownPolicy": "Delete"}
    metadata = {
        "labels": {"sandbox.users.io/team": "red", "sandbox.users.io/tier": None},
        "annotations": {"note": "x"},
    }
    ns.patch("SandboxClaim", name, {"spec": {"additionalPodMetadata": metadata, "lifecycle": lifecycle}})
    pod = ns.wait("Pod", box, lambda pod: pod["metadata"]["labels"].get("sandbox.users.io/team") == "red")
    assert "sandbox.users.io/tier" not in pod["metadata"]["labels"]
    assert pod["metadata"]["annotations"]["note"] == "x"
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    # Its time counts from the end now, and a pod that failed is that end: it is not made again.
    ns.wait("Sandbox", box, lambda found: "holdfast.dev/failed-pods" in found["metadata"]["annotations"])
    ns.patch("Pod", box, {"status": terminated_pod_status("Failed", 7)}, subresource="status")
    ns.wait_gone("SandboxClaim", name)
    ns.wait_gone("Sandbox", box)


def test_unapplicable_edit_is_reported_and_forbidden_edit_is_rejected(ns):
    create_ready_pool(ns, "unmoved", 1, envVarsInjectionPolicy="Allowed")
    create_claim(ns, "unmoved", "unmoved")
    bound = ns.wait_conditions("SandboxClaim", "unmoved", Ready="True DependenciesReady")
    box = bound["status"]["sandbox"]["name"]
    ns.patch("SandboxClaim", "unmoved", {"spec": {"env": [{"name": "A", "value": "1"}]}})
    found = ns.wait_conditions(
        "SandboxClaim",
        "unmoved",
        Ready="True DependenciesReady",
        **{"holdfast.dev/EditsFollowed": "False EditIgnored"},
    )
    (words,) = [row["message"] for row in found["status"]["conditions"] if "Edits" in row["type"]]
    assert words.startswith("env: ")
    assert "env" not in ns.get("Pod", box)["spec"]["containers"][0]
    bad = {"additionalPodMetadata": {"labels": {"app": "sandbox-router"}}, "env": None}
    ns.patch("SandboxClaim", "unmoved", {"spec": bad})
    found = ns.wait_conditions(
        "SandboxClaim",
        "unmoved",
        Ready="False InvalidMetadata",
        **{"holdfast.dev/EditsFollowed": None},
    )
    assert found["status"]["sandbox"]["name"] == box
    assert ns.get("Pod", box)["metadata"]["labels"].get("app") is None
    ns.patch("SandboxClaim", "unmoved", {"spec": {"additionalPodMetadata": None}})
    ns.wait_conditions("SandboxClaim", "unmoved", Ready="True DependenciesReady")


def test_shutdown_time_set_later_is_applied(ns):
    create_ready_pool(ns, "later-end", 1)
    create_claim(ns, "later-end", "later-end")
    bound = ns.wait_conditions("SandboxClaim", "later-end", Ready="True DependenciesReady")
    ends = (datetime.now(UTC) + timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ns.patch("SandboxClaim", "later-end", {"spec": {"lifecycle": {"shutdownTime": ends}}})
    ns.wait_conditions("SandboxClaim", "later-end", Ready="False ClaimExpired")
    ns.wait_gone("Sandbox", bound["status"]["sandbox"]["name"])


def test_claim_is_deleted_after_ttl_of_finished_sandbox(ns):
    create_template(ns, "ttl")
    create_pool(ns, "ttl", 0)
    create_claim(ns, "ttl", "ttl", lifecycle={"ttlSecondsAfterFinished": 2, "shutdownPolicy": "Delete"})
    ns.wait_conditions("SandboxClaim", "ttl", Ready="True DependenciesReady")
    ns.patch("Pod", "ttl", {"status": terminated_pod_status("Succeeded", 0)}, subresource="status")
    ns.wait_gone("SandboxClaim", "ttl")
    ns.wait_gone("Sandbox", "ttl")


def test_template_network_policy_is_created_and_reported_unenforced(ns):
    create_ready_pool(ns, "guarded", 1, networkPolicy={"egress": [{"ports": [{"port": 443}]}]})
    found = ns.wait("NetworkPolicy", "guarded-network-policy", bool)
    assert found["spec"]["egress"][0]["ports"][0]["port"] == 443
    (box,) = warm_sandboxes(ns, "guarded")
    told = ns.wait_conditions(
        "Sandbox", box["metadata"]["name"], **{"holdfast.dev/NetworkPolicyEnforced": "False NotEnforced"}
    )
    assert any("does not enforce network policies" in row["message"] for row in told["status"]["conditions"])
    pod = ns.get("Pod", box["metadata"]["name"])
    selected = found["spec"]["podSelector"]["matchLabels"].items()
    assert selected <= pod["metadata"]["labels"].items()
    ns.delete("NetworkPolicy", "guarded-network-policy")
    ns.wait("NetworkPolicy", "guarded-network-policy", bool)
    ns.patch("SandboxTemplate", "guarded", {"spec": {"networkPolicyManagement": "Unmanaged"}})
    ns.wait_gone("NetworkPolicy", "guarded-network-policy")
    ns.wait_conditions("Sandbox", box["metadata"]["name"], **{"holdfast.dev/NetworkPolicyEnforced": None})


@pytest.mark.parametrize(
    ("of", "labels"), [("foreign", {}), ("orphaned", {"holdfast.dev/managed-by": "holdfast"})]
)
def test_foreign_network_policy_with_template_name_is_reported(ns, controller, of, labels):
    """One that was ours once has our label, and is watched; the others are met when ours is made."""
    name = f"{of}-network-policy"
    ns.objects.create(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": ns.namespace, "labels": labels},
            "spec": {"podSelector": {"matchLabels": {"app": "theirs"}}},
        }
    )
    create_ready_pool(ns, of, 1)
    (box,) = warm_sandboxes(ns, of)
    enforced = "holdfast.dev/NetworkPolicyEnforced"
    told = ns.wait_conditions("Sandbox", box["metadata"]["name"], **{enforced: "False PolicyNameConflict"})
    assert any(f"{name} of template {of} was not created" in row["message"] for row in conditions(told))
    assert f"network policy {name} cannot be created" in controller.log()
    assert ns.get("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"] == {"app": "theirs"}
    ns.delete("NetworkPolicy", name)
    ns.wait_conditions("Sandbox", box["metadata"]["name"], **{enforced: "False NotEnforced"})


def conditions(found):
    return found["status"]["conditions"]


def test_every_claim_reason_was_observed(ns, request):
    assert CLAIM_CONDITIONS - observed_conditions_of_file(ns, request) == set()
