"""Pools and claims that pull at the same sandboxes, on a real control plane: no claim loses what it got."""

from __future__ import annotations

import pytest
from tests.support.controllers import SOON, pod_spec_of, says, status_of

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

REPLICAS, CLAIMS = 12, 6


@pytest.fixture(autouse=True)
def _controlled(controller, kubelet):
    return controller


def ready_pool(place, name, replicas, **spec):
    template = {"podTemplate": {"spec": pod_spec_of()}, "networkPolicyManagement": "Unmanaged"}
    place.make("SandboxTemplate", name, template)
    place.make("SandboxWarmPool", name, {"replicas": replicas, "sandboxTemplateRef": {"name": name}, **spec})
    place.wait("SandboxWarmPool", name, lambda found: status_of(found).get("readyReplicas") == replicas)


def claim(place, name, of):
    return place.make("SandboxClaim", name, {"warmPoolRef": {"name": of}})


def owner(found):
    return found["metadata"]["ownerReferences"][0]["uid"]


@pytest.mark.parametrize("change", ["shrink", "edit"])
def test_claims_keep_what_they_got_while_their_pool_lets_go(place, change):
    ready_pool(place, change, REPLICAS, updateStrategy={"type": "Recreate"})
    if change == "shrink":
        place.patch("SandboxWarmPool", change, {"spec": {"replicas": 0}})
    else:
        image = {"containers": [{"name": "main", "image": "app:2"}]}
        place.patch("SandboxTemplate", change, {"spec": {"podTemplate": {"spec": image}}})
    made = [claim(place, f"{change}-{number}", change) for number in range(CLAIMS)]
    missed = []

    def ready(found):
        missed.extend([says(found, "Ready")] if says(found, "Ready") == "False SandboxMissing" else [])
        return says(found, "Ready") == "True DependenciesReady"

    names = {}
    for each in made:
        bound = place.wait("SandboxClaim", each["metadata"]["name"], ready)
        names[bound["status"]["sandbox"]["name"]] = each["metadata"]["uid"]
    wanted = 0 if change == "shrink" else REPLICAS
    place.wait("SandboxWarmPool", change, lambda found: status_of(found).get("readyReplicas") == wanted)
    assert missed == []
    assert len(names) == CLAIMS
    for name, uid in names.items():
        own = place.get("Sandbox", name)
        assert owner(own) == uid
        assert "deletionTimestamp" not in own["metadata"]


def test_a_claim_whose_sandbox_was_deleted_gets_another_one(place):
    ready_pool(place, "again", 1)
    claim(place, "again", "again")
    bound = place.wait_said("SandboxClaim", "again", Ready="True DependenciesReady")
    lost = bound["status"]["sandbox"]["name"]
    place.delete("Sandbox", lost)

    def other():
        found = place.get("SandboxClaim", "again")
        assert says(found, "Ready") == "True DependenciesReady"
        assert found["status"]["sandbox"]["name"] != lost

    SOON.call(other)


def test_a_volume_that_lost_its_label_is_seen_and_not_made_again_and_again(place, controller):
    volume = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    place.sandbox("bare", volumeClaimTemplates=[{"metadata": {"name": "workspace"}, "spec": volume}])
    place.wait_said("Sandbox", "bare", Ready="True DependenciesReady")
    bare = {"metadata": {"ownerReferences": None, "labels": {"agents.x-k8s.io/sandbox-name-hash": None}}}
    before = creates(controller)
    place.patch("PersistentVolumeClaim", "workspace-bare", bare)
    place.wait_said("Sandbox", "bare", Ready="False ReconcilerError")
    place.patch("Sandbox", "bare", {"spec": {"operatingMode": "Suspended"}})
    place.wait_gone("Pod", "bare")
    assert creates(controller) - before <= 3


def creates(controller):
    """How many objects the controller has asked for so far."""
    rows = [row for row in controller.asked("/metrics").splitlines() if "writes" in row and "create" in row]
    assert rows
    return sum(float(row.rpartition(" ")[2]) for row in rows)


@pytest.fixture
def full(place):
    """Nobody can make sandboxes here; afterwards nothing is left that would go on trying."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    quota["spec"] = {"hard": {"count/sandboxes.agents.x-k8s.io": "0"}}
    place.objects.create(quota, namespace=place.namespace)
    yield
    for kind in ("SandboxClaim", "SandboxWarmPool"):
        place.delete(kind, "quota")
        place.wait_gone(kind, "quota")
    place.objects.delete("ResourceQuota", "none", namespace=place.namespace, api_version="v1")


def test_what_the_server_refuses_is_told_with_its_words(place, full):
    ready_pool(place, "quota", 0)
    claim(place, "quota", "quota")
    place.patch("SandboxWarmPool", "quota", {"spec": {"replicas": 1}})
    for kind in ("SandboxClaim", "SandboxWarmPool"):
        found = place.wait_said(kind, "quota", Ready="False ReconcilerError")
        (row,) = found["status"]["conditions"]
        assert "quota: none" in row["message"]
