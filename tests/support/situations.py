"""Situations of sandboxes and claims on a real node: each is made, and then waited for in the status.

They run at once, in names of their own in one namespace, so that together they take as long as the longest.
Nobody plays the kubelet here. Not here: a pod of which no scheduler has said a word; on a node that is over
before anybody looks.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from tests.support.controllers import says, status_of
from tests.support.gateways import HELPER
from tests.support.gateways import pod as plain_pod

from holdfast.gateway.workloads.blueprint import GATEWAY_IMAGE
from holdfast.sandbox.names import tracking

STAYS = "exec tail -f /dev/null"
TAKES_ITS_TIME = "trap 'sleep 3; exit 0' TERM; tail -f /dev/null & wait"
READY = "True DependenciesReady"
WORKSPACE = {
    "metadata": {"name": "workspace"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}},
}


def pods(command=STAYS, image=HELPER, **spec):
    """The spec of a pod that this node can run."""
    container = {"name": "main", "image": image, "imagePullPolicy": "Never"}
    container |= {"command": ["/bin/sh", "-c", command]} if isinstance(command, str) else {"command": command}
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        **spec,
    }


def ready(place, name, command=STAYS, **spec):
    place.sandbox(name, pod_spec=pods(command, **spec.pop("pods", {})), **spec)
    return place.wait_said("Sandbox", name, Ready=READY, PodScheduled="True PodScheduled")


def message(found, kind="Ready"):
    return next(row["message"] for row in status_of(found)["conditions"] if row["type"] == kind)


def later(seconds):
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def its_pod_succeeds(place):
    place.sandbox("done", pod_spec=pods("true", restartPolicy="Never"))
    found = place.wait_said("Sandbox", "done", Ready="False PodSucceeded", Finished="True PodSucceeded")
    assert "exit code 0" in message(found)


def its_pod_fails_and_is_kept(place):
    keep = {"annotations": {"holdfast.dev/failed-pods": "Keep"}}
    place.sandbox("fails", keep, pods("exit 7", restartPolicy="Never"))
    found = place.wait_said("Sandbox", "fails", Ready="False PodFailed", Finished="True PodFailed")
    assert "exit code 7" in message(found)


def no_node_takes_it(place):
    huge = pods()
    huge["containers"][0]["resources"] = {"requests": {"cpu": "1000"}}
    place.sandbox("nowhere", pod_spec=huge)
    found = place.wait_said(
        "Sandbox", "nowhere", PodScheduled="False Unschedulable", Ready="False DependenciesNotReady"
    )
    assert "Insufficient cpu" in message(found)


def its_image_is_nowhere(place):
    place.sandbox("noimage", pod_spec=pods(image="holdfast.dev/none:1"))
    found = place.wait(
        "Sandbox", "noimage", lambda found: "ErrImageNeverPull" in str(status_of(found).get("conditions"))
    )
    assert says(found, "Ready") == "False DependenciesNotReady"


def it_sleeps_and_wakes_with_another_image(place):
    """The new image is the gateway's own: it is on the node, and it is another one."""
    slow = {"terminationGracePeriodSeconds": 30}
    ready(place, "sleepy", TAKES_ITS_TIME, service=True, pods=slow)
    old = place.get("Pod", "sleepy")["metadata"]["uid"]
    awake = pods(["python3", "-c", "import time; time.sleep(3600)"], GATEWAY_IMAGE)
    patch = {"operatingMode": "Suspended", "podTemplate": {"spec": awake}}
    place.patch("Sandbox", "sleepy", {"spec": patch})
    place.wait_said("Sandbox", "sleepy", Ready="False SandboxSuspended", Suspended="False PodTerminating")
    found = place.wait_said("Sandbox", "sleepy", Suspended="True PodTerminated")
    assert not {"podIPs", "nodeName"} & set(found["status"])
    assert place.get("Pod", "sleepy") is None
    assert place.get("Service", "sleepy") is not None
    place.patch("Sandbox", "sleepy", {"spec": {"operatingMode": "Running"}})
    place.wait_said("Sandbox", "sleepy", Ready=READY, Suspended="False NotSuspended")
    new = place.get("Pod", "sleepy")
    assert new["metadata"]["uid"] != old
    (row,) = new["status"]["containerStatuses"]
    assert (row["image"].removeprefix("docker.io/"), row["ready"]) == (GATEWAY_IMAGE, True)


def its_time_ends_and_it_stays(place):
    ready(place, "retained", service=True, volumeClaimTemplates=[WORKSPACE])
    place.patch("Sandbox", "retained", {"spec": {"shutdownTime": later(2)}})
    place.wait_said("Sandbox", "retained", Ready="False SandboxExpired")
    place.wait_gone("Pod", "retained")
    place.wait_gone("Service", "retained")
    assert says(place.get("Sandbox", "retained"), "Ready") == "False SandboxExpired"
    assert place.get("PersistentVolumeClaim", "workspace-retained") is not None


def its_time_ends_and_it_goes(place):
    ready(place, "gone", service=True)
    place.patch("Sandbox", "gone", {"spec": {"shutdownTime": later(2), "shutdownPolicy": "Delete"}})
    for kind in ("Sandbox", "Pod", "Service"):
        place.wait_gone(kind, "gone")


def two_pods_are_its(place):
    ready(place, "twice")
    (owner,) = place.get("Pod", "twice")["metadata"]["ownerReferences"]
    pod(place, "twice-more", ownerReferences=[owner], labels=tracking("twice"))
    place.wait_said("Sandbox", "twice", Ready="False MultiplePods", Suspended="Unknown PodStateUnknown")
    place.delete("Pod", "twice-more")
    place.wait_said("Sandbox", "twice", Ready=READY, Suspended="False NotSuspended")


def a_foreign_pod_has_its_name(place):
    pod(place, "taken")
    place.sandbox("taken", pod_spec=pods())
    found = place.wait_said("Sandbox", "taken", Ready="False ReconcilerError")
    assert "a pod taken is there that belongs to nobody" in message(found)
    place.patch("Sandbox", "taken", {"spec": {"operatingMode": "Suspended"}})
    place.wait_said("Sandbox", "taken", Suspended="False PodNotOwned")
    place.patch("Sandbox", "taken", {"spec": {"operatingMode": "Running"}})
    place.delete("Pod", "taken")
    place.wait_said("Sandbox", "taken", Ready=READY)


def pod(place, name, **metadata):
    """A pod that somebody else made."""
    made = plain_pod(name)
    made["metadata"] = {"name": name, "namespace": place.namespace, **metadata}
    return place.objects.create(made)


def template(place, name, pod_spec=None, **spec):
    return place.make("SandboxTemplate", name, {"podTemplate": {"spec": pod_spec or pods()}, **spec})


def cold_pool(place, name):
    spec = {"replicas": 0, "sandboxTemplateRef": {"name": name}}
    return place.make("SandboxWarmPool", name, spec)


def claim(place, name, of, **spec):
    return place.make("SandboxClaim", name, {"warmPoolRef": {"name": of}, **spec})


def a_claim_tells_each_step_on_its_way(place):
    claim(place, "steps", "steps")
    place.wait_said("SandboxClaim", "steps", Ready="False WarmPoolNotFound")
    cold_pool(place, "steps")
    place.wait_said("SandboxClaim", "steps", Ready="False TemplateNotFound")
    looking = threading.Event()
    with ThreadPoolExecutor(1) as beside:
        waited = beside.submit(place.wait_told, "SandboxClaim", "steps", READY, looking)
        assert looking.wait(20)
        template(place, "steps")
        told = waited.result()
    assert told[:2] == ["False TemplateNotFound", "False SandboxCreatePending"]


def a_claims_sandbox_says_nothing_and_goes(place):
    """It is held on its way out, so that nobody gives it words again: a new one is silent for a moment."""
    template(place, "silent")
    cold_pool(place, "silent")
    claim(place, "silent", "silent")
    place.wait_said("SandboxClaim", "silent", Ready=READY)
    place.patch("Sandbox", "silent", {"metadata": {"finalizers": ["test.holdfast.dev/held"]}})
    place.delete("Sandbox", "silent")
    place.patch("Sandbox", "silent", {"status": {"conditions": None}}, subresource="status")
    place.wait_said("SandboxClaim", "silent", Ready="False SandboxNotReady")
    place.patch("Sandbox", "silent", {"metadata": {"finalizers": None}})
    place.wait_said("SandboxClaim", "silent", Ready=READY)


def a_claim_asks_for_what_its_template_does_not_allow(place):
    template(place, "strict")
    cold_pool(place, "strict")
    volume = {"metadata": {"name": "w"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    refused = {
        "InvalidMetadata": {"additionalPodMetadata": {"labels": {"holdfast.dev/x": "1"}}},
        "EnvVarsInjectionRejected": {"env": [{"name": "A", "value": "1"}]},
        "VolumeClaimTemplatesError": {"volumeClaimTemplates": [volume]},
    }
    for reason, asked in refused.items():
        claim(place, reason.lower(), "strict", **asked)
    for reason in refused:
        place.wait_said("SandboxClaim", reason.lower(), Ready=f"False {reason}")
        assert place.get("Sandbox", reason.lower()) is None


def a_claims_name_is_taken(place):
    template(place, "named")
    cold_pool(place, "named")
    place.sandbox("named", pod_spec=pods(), operatingMode="Suspended")
    claim(place, "named", "named")
    place.wait_said("SandboxClaim", "named", Ready="False AdoptionConflict")


def a_claims_sandbox_has_done_its_work_and_is_deleted(place):
    template(place, "worked", pods("true", restartPolicy="Never"))
    cold_pool(place, "worked")
    claim(place, "worked", "worked")
    place.wait_said("SandboxClaim", "worked", Ready="False PodSucceeded", Finished="True PodSucceeded")
    place.delete("Sandbox", "worked")
    place.wait_said("SandboxClaim", "worked", Ready="False SandboxMissing")


def the_time_of_claims_ends(place):
    """All three policies at once; they share a pool."""
    template(place, "timed")
    cold_pool(place, "timed")
    names = {policy: f"timed-{policy.lower()}" for policy in ("Retain", "Delete", "DeleteForeground")}
    for name in names.values():
        claim(place, name, "timed")
    for policy, name in names.items():
        place.wait_said("SandboxClaim", name, Ready=READY)
        ends = {"shutdownTime": later(2), "shutdownPolicy": policy}
        place.patch("SandboxClaim", name, {"spec": {"lifecycle": ends}})
    place.wait_said("SandboxClaim", names.pop("Retain"), Ready="False ClaimExpired")
    for name in names.values():
        place.wait_gone("SandboxClaim", name)
    for name in ("timed-retain", *names.values()):
        place.wait_gone("Pod", name)
        assert place.get("Sandbox", name) is None


SITUATIONS = (
    it_sleeps_and_wakes_with_another_image,
    its_time_ends_and_it_stays,
    the_time_of_claims_ends,
    a_claims_sandbox_says_nothing_and_goes,
    a_claim_tells_each_step_on_its_way,
    a_foreign_pod_has_its_name,
    two_pods_are_its,
    its_time_ends_and_it_goes,
    its_pod_succeeds,
    its_pod_fails_and_is_kept,
    no_node_takes_it,
    its_image_is_nowhere,
    a_claim_asks_for_what_its_template_does_not_allow,
    a_claims_name_is_taken,
    a_claims_sandbox_has_done_its_work_and_is_deleted,
)
"""The longest ones first."""
