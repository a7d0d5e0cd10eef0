"""Sandboxes on a real control plane: every condition and reason of the published API, made real."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.api_rows import SANDBOX_ROWS, all_heard
from tests.support.controllers import ended, running, says, status_of

from holdfast.sandbox.names import name_hash, tracking

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

LABEL = "agents.x-k8s.io/sandbox-name-hash"
WORKSPACE = {
    "metadata": {"name": "workspace", "labels": {"a": "b"}},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest.fixture(autouse=True)
def _controlled(controller):
    return controller


def ready(place, name, **options):
    """A sandbox whose pod runs."""
    place.sandbox(name, **options)
    place.wait("Pod", name, bool)
    place.run_pod(name)
    return place.wait_said("Sandbox", name, Ready="True DependenciesReady")


def later(seconds):
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_sandbox_becomes_its_pod_its_claim_and_its_service(place):
    place.sandbox("whole", volumeClaimTemplates=[WORKSPACE], service=True)
    place.wait_said("Sandbox", "whole", Ready="False DependenciesNotReady", Suspended="False NotSuspended")
    pod = place.wait("Pod", "whole", bool)
    place.run_pod("whole")
    found = place.wait_said(
        "Sandbox", "whole", Ready="True DependenciesReady", PodScheduled="True PodScheduled"
    )
    claim, service = place.get("PersistentVolumeClaim", "workspace-whole"), place.get("Service", "whole")
    for part in (pod, claim, service):
        (owner,) = part["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (found["metadata"]["uid"], True)
        assert part["metadata"]["labels"][LABEL] == name_hash("whole")
    assert claim["metadata"]["labels"]["a"] == "b"
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == "workspace-whole"
    status = found["status"]
    assert status["podIPs"] == ["10.9.0.1"]
    assert status["selector"] == f"{LABEL}={name_hash('whole')}"
    assert status["service"] == "whole"
    assert status["serviceFQDN"] == f"whole.{place.namespace}.svc.cluster.local"
    assert {row["observedGeneration"] for row in status["conditions"]} == {found["metadata"]["generation"]}
    assert "finalizers" not in found["metadata"]
    assert not any("kopf" in key for key in found["metadata"].get("annotations", {}))


def test_suspend_takes_the_pod_and_keeps_the_rest_and_resume_makes_a_new_one_of_the_new_image(place):
    ready(place, "sleepy", volumeClaimTemplates=[WORKSPACE], service=True)
    old = place.get("Pod", "sleepy")["metadata"]["uid"]
    claim = place.get("PersistentVolumeClaim", "workspace-sleepy")["metadata"]["uid"]
    image = {"containers": [{"name": "main", "image": "app:2"}]}
    patch = {"spec": {"operatingMode": "Suspended", "podTemplate": {"spec": image}}}
    place.patch("Sandbox", "sleepy", patch)
    found = place.wait_said(
        "Sandbox", "sleepy", Ready="False SandboxSuspended", Suspended="True PodTerminated"
    )
    assert place.get("Pod", "sleepy") is None
    assert "podIPs" not in found["status"]
    assert "nodeName" not in found["status"]
    assert place.get("Service", "sleepy") is not None
    place.patch("Sandbox", "sleepy", {"spec": {"operatingMode": "Running"}})
    pod = place.wait("Pod", "sleepy", lambda pod: pod["metadata"]["uid"] != old)
    assert pod["spec"]["containers"][0]["image"] == "app:2"
    assert place.get("PersistentVolumeClaim", "workspace-sleepy")["metadata"]["uid"] == claim
    place.run_pod("sleepy")
    place.wait_said("Sandbox", "sleepy", Ready="True DependenciesReady", Suspended="False NotSuspended")


def test_a_pod_that_takes_its_time_to_end_is_terminating(place, control_plane):
    place.sandbox("slow", pod_spec={"terminationGracePeriodSeconds": 30, "nodeName": "far"})
    place.wait("Pod", "slow", bool)
    place.run_pod("slow")
    found = place.wait_said("Sandbox", "slow", Ready="True DependenciesReady")
    assert found["status"]["nodeName"] == "far"
    place.patch("Sandbox", "slow", {"spec": {"operatingMode": "Suspended"}})
    place.wait_said("Sandbox", "slow", Ready="False SandboxSuspended", Suspended="False PodTerminating")
    # What a kubelet does when the containers have ended.
    path = f"/api/v1/namespaces/{place.namespace}/pods/slow"
    control_plane.request("DELETE", path, {"gracePeriodSeconds": 0})
    place.wait_said("Sandbox", "slow", Suspended="True PodTerminated")


def test_a_deleted_pod_is_made_again(place):
    ready(place, "again")
    old = place.get("Pod", "again")["metadata"]["uid"]
    place.delete("Pod", "again")
    place.wait("Pod", "again", lambda pod: pod["metadata"]["uid"] != old)
    place.run_pod("again")
    place.wait_said("Sandbox", "again", Ready="True DependenciesReady")


def test_a_failed_pod_is_told_of_and_made_again(place):
    ready(place, "fails")
    old = place.get("Pod", "fails")["metadata"]["uid"]
    place.patch("Pod", "fails", {"status": ended("Failed", 7)}, subresource="status")
    found = place.wait_said("Sandbox", "fails", Ready="False PodFailed", Finished="True PodFailed")
    assert (
        "exit code 7"
        in next(row for row in found["status"]["conditions"] if row["type"] == "Ready")["message"]
    )
    place.wait("Pod", "fails", lambda pod: pod["metadata"]["uid"] != old)
    place.run_pod("fails")
    found = place.wait_said("Sandbox", "fails", Ready="True DependenciesReady", Finished=None)
    assert found["metadata"]["annotations"]["holdfast.dev/failures"] == "1"


def test_a_failed_pod_is_kept_where_that_is_wanted(place):
    ready(place, "kept", metadata={"annotations": {"holdfast.dev/failed-pods": "Keep"}})
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    place.patch("Pod", "kept", {"status": ended("Failed", 1, long_ago)}, subresource="status")
    place.wait_said("Sandbox", "kept", Ready="False PodFailed", Finished="True PodFailed")
    marker(place)
    assert status_of(place.get("Pod", "kept"))["phase"] == "Failed"


def marker(place):
    """Whatever the controller had to do before this sandbox became ready, it has done."""
    name = f"marker-{datetime.now(UTC):%H%M%S%f}"
    ready(place, name)
    place.delete("Sandbox", name)


def test_a_pod_that_succeeded_is_over(place):
    ready(place, "done")
    place.patch("Pod", "done", {"status": ended("Succeeded", 0)}, subresource="status")
    place.wait_said("Sandbox", "done", Ready="False PodSucceeded", Finished="True PodSucceeded")


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_when_its_time_is_over_pod_and_service_go_and_then_what_the_policy_says(place, policy):
    name = f"short-{policy.lower()}"
    ready(
        place,
        name,
        service=True,
        volumeClaimTemplates=[WORKSPACE],
        shutdownTime=later(4),
        shutdownPolicy=policy,
    )
    place.wait_gone("Pod", name)
    place.wait_gone("Service", name)
    if policy == "Delete":
        place.wait_gone("Sandbox", name)
        return
    found = place.wait_said("Sandbox", name, Ready="False SandboxExpired")
    assert "podIPs" not in found["status"]
    assert place.get("PersistentVolumeClaim", f"workspace-{name}") is not None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("small", "2020-01-01t00:00:00z"),
        ("offset", "2020-01-01T00:00:00+24:30"),
        ("year", "0000-01-01T00:00:00Z"),
    ],
)
def test_every_time_that_the_server_takes_is_a_time(place, name, text):
    place.sandbox(f"odd-{name}", shutdownTime=text)
    place.wait_said("Sandbox", f"odd-{name}", Ready="False SandboxExpired")
    made = place.make(
        "SandboxClaim", f"odd-{name}", {"warmPoolRef": {"name": "p"}, "lifecycle": {"shutdownTime": text}}
    )
    assert made["spec"]["lifecycle"]["shutdownTime"] == text
    place.wait_said("SandboxClaim", f"odd-{name}", Ready="False ClaimExpired")


def test_two_pods_of_one_sandbox_stop_it(place):
    found = ready(place, "twice")
    (owner,) = place.get("Pod", "twice")["metadata"]["ownerReferences"]
    pod(place, "twice-more", ownerReferences=[owner], labels=tracking("twice"))
    place.wait_said("Sandbox", "twice", Ready="False MultiplePods", Suspended="Unknown PodStateUnknown")
    place.delete("Pod", "twice-more")
    place.wait_said("Sandbox", "twice", Ready="True DependenciesReady")
    assert found["metadata"]["uid"] == owner["uid"]


def pod(place, name, **metadata):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": place.namespace, **metadata},
        "spec": {"containers": [{"name": "main", "image": "x"}], "terminationGracePeriodSeconds": 0},
    }
    return place.objects.create(body)


def test_a_foreign_pod_of_its_name_is_in_the_way_and_named(place):
    pod(place, "taken")
    place.sandbox("taken")
    found = place.wait_said("Sandbox", "taken", Ready="False ReconcilerError")
    (words,) = [row["message"] for row in found["status"]["conditions"] if row["type"] == "Ready"]
    assert "a pod taken is there" in words
    assert place.get("Pod", "taken")["metadata"].get("ownerReferences") is None
    place.patch("Sandbox", "taken", {"spec": {"operatingMode": "Suspended"}})
    place.wait_said("Sandbox", "taken", Suspended="False PodNotOwned")
    assert place.get("Pod", "taken") is not None
    place.patch("Sandbox", "taken", {"spec": {"operatingMode": "Running"}})
    place.delete("Pod", "taken")
    place.wait("Pod", "taken", lambda found: found["metadata"].get("ownerReferences"))


def test_an_adoptable_pod_is_taken_over(place):
    made = pod(place, "orphan", labels={"agents.x-k8s.io/adoptable": "true"})
    box = place.sandbox("orphan")
    found = place.wait("Pod", "orphan", lambda found: found["metadata"].get("ownerReferences"))
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert found["metadata"]["ownerReferences"][0]["uid"] == box["metadata"]["uid"]
    assert found["metadata"]["labels"][LABEL] == name_hash("orphan")


def test_labels_follow_the_template_and_the_running_pod_is_left_alone(place):
    ready(place, "labels")
    before = place.get("Pod", "labels")
    metadata = {"labels": {"team": "blue"}, "annotations": {"note": "x"}}
    place.patch("Sandbox", "labels", {"spec": {"podTemplate": {"metadata": metadata}}})
    place.wait("Pod", "labels", lambda found: found["metadata"]["labels"].get("team") == "blue")
    place.patch("Sandbox", "labels", {"spec": {"podTemplate": {"metadata": {"labels": {"team": None}}}}})
    after = place.wait("Pod", "labels", lambda found: "team" not in found["metadata"]["labels"])
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["annotations"]["note"] == "x"
    assert after["spec"] == before["spec"]


def test_a_pod_that_no_server_accepts_is_told_of_with_the_servers_words(place):
    place.sandbox("bad", pod_spec={"containers": [{"name": "main", "image": "app:1", "volumeMounts": [
        {"name": "nowhere", "mountPath": "/x"}]}]})  # fmt: skip
    found = place.wait_said("Sandbox", "bad", Ready="False ReconcilerError")
    (words,) = [row["message"] for row in found["status"]["conditions"] if row["type"] == "Ready"]
    assert "nowhere" in words


def test_an_image_that_does_not_exist_is_told_of_while_the_pod_waits(place):
    place.sandbox("noimage")
    place.wait("Pod", "noimage", bool)
    status = running()
    status["phase"] = "Pending"
    del status["podIP"], status["podIPs"]
    status["conditions"] = [row for row in status["conditions"] if row["type"] == "PodScheduled"]
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "app:1: not found"}}
    status["containerStatuses"][0] |= {"ready": False, "state": waiting}
    place.patch("Pod", "noimage", {"status": status}, subresource="status")

    def told(found):
        rows = status_of(found).get("conditions") or ()
        return any("ErrImagePull: app:1: not found" in row["message"] for row in rows)

    found = place.wait("Sandbox", "noimage", told)
    assert says(found, "Ready") == "False DependenciesNotReady"


def test_a_pod_that_no_node_takes_is_told_of(place):
    place.sandbox("nowhere")
    # Nobody places pods here: this one has no word about it yet.
    place.wait_said("Sandbox", "nowhere", PodScheduled="Unknown PodSchedulingUnknown")
    words = "0/1 nodes are available: 1 Insufficient cpu."
    row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    place.patch("Pod", "nowhere", {"status": {"conditions": [row]}}, subresource="status")
    found = place.wait_said(
        "Sandbox", "nowhere", PodScheduled="False Unschedulable", Ready="False DependenciesNotReady"
    )
    assert any("Insufficient cpu" in row["message"] for row in found["status"]["conditions"])


def test_service_can_be_taken_away_and_unset_keeps_it(place):
    ready(place, "served", service=True)
    place.wait("Service", "served", bool)
    place.patch("Sandbox", "served", {"spec": {"service": None}})
    marker(place)
    assert place.get("Service", "served") is not None
    place.patch("Sandbox", "served", {"spec": {"service": False}})
    place.wait_gone("Service", "served")
    place.wait("Sandbox", "served", lambda found: "service" not in found["status"])


def test_a_deleted_sandbox_leaves_nothing(place):
    ready(place, "gone", service=True, volumeClaimTemplates=[WORKSPACE])
    place.delete("Sandbox", "gone")
    for kind, name in (("Pod", "gone"), ("Service", "gone"), ("PersistentVolumeClaim", "workspace-gone")):
        place.wait_gone(kind, name)


def test_a_sandbox_that_nobody_uses_falls_asleep_and_wakes_when_asked(place):
    used = {"holdfast.dev/idle-suspend-after": "2", "holdfast.dev/last-used": later(0)}
    ready(place, "idle", metadata={"annotations": used})
    place.wait_said("Sandbox", "idle", Ready="False SandboxSuspended", Suspended="True PodTerminated")
    patch = {
        "spec": {"operatingMode": "Running"},
        "metadata": {"annotations": {"holdfast.dev/last-used": later(60)}},
    }
    place.patch("Sandbox", "idle", patch)
    place.wait("Pod", "idle", bool)
    place.run_pod("idle")
    place.wait_said("Sandbox", "idle", Ready="True DependenciesReady")


def test_every_condition_and_reason_of_a_sandbox_was_heard(place, request):
    assert SANDBOX_ROWS - all_heard(place, request) == set()
