"""Pools and claims that pull at the same sandboxes, on a real control plane: no claim loses what it got."""

from __future__ import annotations

import pytest
from tests.support.controller_process import (
    EVENTUALLY,
    condition_summary,
    default_pod_spec,
    is_pool_ready,
)

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

REPLICAS, CLAIMS = 12, 6


@pytest.fixture(autouse=True)
def _running_controller(controller, kubelet):
    return controller


def create_ready_pool(place, name, replicas, **spec):
    template = {"podTemplate": {"spec": default_pod_spec()}, "networkPolicyManagement": "Unmanaged"}
    place.create("SandboxTemplate", name, template)
    place.create(
        "SandboxWarmPool", name, {"replicas": replicas, "sandboxTemplateRef": {"name": name}, **spec}
    )
    place.wait("SandboxWarmPool", name, lambda found: is_pool_ready(found, replicas))


def create_claim(place, name, of):
    return place.create("SandboxClaim", name, {"warmPoolRef": {"name": of}})


def owner_uid(found):
    return found["metadata"]["ownerReferences"][0]["uid"]


@pytest.mark.parametrize("change", ["shrink", "edit"])
def test_claims_keep_adopted_sandboxes_while_pool_scales_down(ns, change):
    create_ready_pool(ns, change, REPLICAS, updateStrategy={"type": "Recreate"})
    if change == "shrink":
        ns.patch("SandboxWarmPool", change, {"spec": {"replicas": 0}})
    else:
        image = {"containers": [{"name": "main", "image": "app:2"}]}
        ns.patch("SandboxTemplate", change, {"spec": {"podTemplate": {"spec": image}}})
    made = [create_claim(ns, f"{change}-{number}", change) for number in range(CLAIMS)]
    missed = []

    def ready(found):
        missed.extend(
            [condition_summary(found, "Ready")]
            if condition_summary(found, "Ready") == "False SandboxMissing"
            else []
        )
        return condition_summary(found, "Ready") == "True DependenciesReady"

    names = {}
    for each in made:
        bound = ns.wait("SandboxClaim", each["metadata"]["name"], ready)
        names[bound["status"]["sandbox"]["name"]] = each["metadata"]["uid"]
    wanted = 0 if change == "shrink" else REPLICAS
    ns.wait("SandboxWarmPool", change, lambda found: is_pool_ready(found, wanted))
    assert missed == []
    assert len(names) == CLAIMS
    for name, uid in names.items():
        own = ns.get("Sandbox", name)
        assert owner_uid(own) == uid
        assert "deletionTimestamp" not in own["metadata"]


def test_claim_gets_new_sandbox_after_deletion(ns):
    create_ready_pool(ns, "again", 1)
    create_claim(ns, "again", "again")
    bound = ns.wait_conditions("SandboxClaim", "again", Ready="True DependenciesReady")
    lost = bound["status"]["sandbox"]["name"]
    ns.delete("Sandbox", lost)

    def other():
        found = ns.get("SandboxClaim", "again")
        assert condition_summary(found, "Ready") == "True DependenciesReady"
        assert found["status"]["sandbox"]["name"] != lost

    EVENTUALLY.call(other)


def test_pvc_without_label_is_found_and_not_recreated_repeatedly(ns, controller):
    volume = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    ns.create_sandbox("bare", volumeClaimTemplates=[{"metadata": {"name": "workspace"}, "spec": volume}])
    ns.wait_conditions("Sandbox", "bare", Ready="True DependenciesReady")
    bare = {"metadata": {"ownerReferences": None, "labels": {"agents.x-k8s.io/sandbox-name-hash": None}}}
    before = create_requests(controller)
    ns.patch("PersistentVolumeClaim", "workspace-bare", bare)
    ns.wait_conditions("Sandbox", "bare", Ready="False ReconcilerError")
    ns.patch("Sandbox", "bare", {"spec": {"operatingMode": "Suspended"}})
    ns.wait_gone("Pod", "bare")
    assert create_requests(controller) - before <= 3


def create_requests(controller):
    """How many objects the controller has asked for so far."""
    prefix = 'holdfast_controller_writes_total{verb="create"} '
    (line,) = [line for line in controller.http_get("/metrics").splitlines() if line.startswith(prefix)]
    return float(line.removeprefix(prefix))


@pytest.fixture
def zero_sandbox_quota(ns):
    """The namespace forbids sandboxes; the objects are deleted, so that the controller stops retrying."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    quota["spec"] = {"hard": {"count/sandboxes.agents.x-k8s.io": "0"}}
    ns.objects.create(quota, namespace=ns.namespace)
    yield
    for kind in ("SandboxClaim", "SandboxWarmPool"):
        ns.delete(kind, "quota")
        ns.wait_gone(kind, "quota")
    ns.objects.delete("ResourceQuota", "none", namespace=ns.namespace, api_version="v1")


def test_server_rejection_is_reported_in_status(ns, zero_sandbox_quota):
    create_ready_pool(ns, "quota", 0)
    create_claim(ns, "quota", "quota")
    ns.patch("SandboxWarmPool", "quota", {"spec": {"replicas": 1}})
    for kind in ("SandboxClaim", "SandboxWarmPool"):
        found = ns.wait_conditions(kind, "quota", Ready="False ReconcilerError")
        (row,) = found["status"]["conditions"]
        assert "quota: none" in row["message"]
