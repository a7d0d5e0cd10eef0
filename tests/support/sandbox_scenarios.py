"""Situations of sandboxes and SandboxClaims on a real node: a test creates each and waits for its status.

They run concurrently with separate names in one namespace, so together they take as long as the longest.
The kubelet is real. Not covered: a pod without a PodScheduled condition, which is too short-lived on a node.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from tests.support.controller_process import condition_summary, status_of
from tests.support.gateway import HELPER_IMAGE, pod_manifest as plain_pod

from holdfast.gateway.spec import GATEWAY_IMAGE
from holdfast.sandbox.manifests import tracking_labels

SLEEP_COMMAND = "exec tail -f /dev/null"
SLOW_TERMINATION_COMMAND = "trap 'sleep 3; exit 0' TERM; tail -f /dev/null & wait"
READY = "True DependenciesReady"
EXPLANATION = "holdfast.dev/Explanation"
WORKSPACE_CLAIM_TEMPLATE = {
    "metadata": {"name": "workspace"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}},
}


def runnable_pod_spec(command=SLEEP_COMMAND, image=HELPER_IMAGE, **spec):
    """The spec of a pod that this node can run."""
    container = {"name": "main", "image": image, "imagePullPolicy": "Never"}
    container |= {"command": ["/bin/sh", "-c", command]} if isinstance(command, str) else {"command": command}
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        **spec,
    }


def create_ready_sandbox(ns, name, command=SLEEP_COMMAND, **spec):
    ns.create_sandbox(name, pod_spec=runnable_pod_spec(command, **spec.pop("pods", {})), **spec)
    return ns.wait_conditions("Sandbox", name, Ready=READY, PodScheduled="True PodScheduled")


def condition_message(found, kind="Ready"):
    return next(row["message"] for row in status_of(found)["conditions"] if row["type"] == kind)


def seconds_from_now(seconds):
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_succeeds(ns):
    ns.create_sandbox("done", pod_spec=runnable_pod_spec("true", restartPolicy="Never"))
    found = ns.wait_conditions("Sandbox", "done", Ready="False PodSucceeded", Finished="True PodSucceeded")
    assert condition_message(found) == "Pod completed successfully"
    assert "exited with code 0" in condition_message(found, EXPLANATION)


def failed_pod_is_kept(ns):
    keep = {"annotations": {"holdfast.dev/failed-pods": "Keep"}}
    ns.create_sandbox("fails", keep, runnable_pod_spec("exit 7", restartPolicy="Never"))
    found = ns.wait_conditions("Sandbox", "fails", Ready="False PodFailed", Finished="True PodFailed")
    assert condition_message(found) == "Pod failed"
    assert "exited with code 7" in condition_message(found, EXPLANATION)


def pod_is_unschedulable(ns):
    huge = runnable_pod_spec()
    huge["containers"][0]["resources"] = {"requests": {"cpu": "1000"}}
    ns.create_sandbox("nowhere", pod_spec=huge)
    found = ns.wait_conditions(
        "Sandbox", "nowhere", PodScheduled="False Unschedulable", Ready="False DependenciesNotReady"
    )
    assert condition_message(found) == "Pod exists with phase: Pending"
    assert "Insufficient cpu" in condition_message(found, "PodScheduled")


def image_is_missing(ns):
    ns.create_sandbox("noimage", pod_spec=runnable_pod_spec(image="holdfast.dev/none:1"))
    found = ns.wait(
        "Sandbox", "noimage", lambda found: "ErrImageNeverPull" in str(status_of(found).get("conditions"))
    )
    assert condition_summary(found, "Ready") == "False DependenciesNotReady"


def resume_with_another_image(ns):
    """The new image is the gateway's own: it is on the node, and it is another one."""
    slow = {"terminationGracePeriodSeconds": 30}
    create_ready_sandbox(ns, "sleepy", SLOW_TERMINATION_COMMAND, service=True, pods=slow)
    old = ns.get("Pod", "sleepy")["metadata"]["uid"]
    awake = runnable_pod_spec(["python3", "-c", "import time; time.sleep(3600)"], GATEWAY_IMAGE)
    patch = {"operatingMode": "Suspended", "podTemplate": {"spec": awake}}
    ns.patch("Sandbox", "sleepy", {"spec": patch})
    ns.wait_conditions("Sandbox", "sleepy", Ready="False SandboxSuspended", Suspended="False PodTerminating")
    found = ns.wait_conditions("Sandbox", "sleepy", Suspended="True PodTerminated")
    assert not {"podIPs", "nodeName"} & set(found["status"])
    assert ns.get("Pod", "sleepy") is None
    assert ns.get("Service", "sleepy") is not None
    ns.patch("Sandbox", "sleepy", {"spec": {"operatingMode": "Running"}})
    ns.wait_conditions("Sandbox", "sleepy", Ready=READY, Suspended="False NotSuspended")
    new = ns.get("Pod", "sleepy")
    assert new["metadata"]["uid"] != old
    (row,) = new["status"]["containerStatuses"]
    assert (row["image"].removeprefix("docker.io/"), row["ready"]) == (GATEWAY_IMAGE, True)


def expired_sandbox_is_retained(ns):
    create_ready_sandbox(ns, "retained", service=True, volumeClaimTemplates=[WORKSPACE_CLAIM_TEMPLATE])
    ns.patch("Sandbox", "retained", {"spec": {"shutdownTime": seconds_from_now(2)}})
    ns.wait_conditions("Sandbox", "retained", Ready="False SandboxExpired")
    ns.wait_gone("Pod", "retained")
    ns.wait_gone("Service", "retained")
    assert condition_summary(ns.get("Sandbox", "retained"), "Ready") == "False SandboxExpired"
    assert ns.get("PersistentVolumeClaim", "workspace-retained") is not None


def expired_sandbox_is_deleted(ns):
    create_ready_sandbox(ns, "gone", service=True)
    ns.patch("Sandbox", "gone", {"spec": {"shutdownTime": seconds_from_now(2), "shutdownPolicy": "Delete"}})
    for kind in ("Sandbox", "Pod", "Service"):
        ns.wait_gone(kind, "gone")


def sandbox_owns_two_pods(ns):
    create_ready_sandbox(ns, "twice")
    (owner,) = ns.get("Pod", "twice")["metadata"]["ownerReferences"]
    create_foreign_pod(ns, "twice-more", ownerReferences=[owner], labels=tracking_labels("twice"))
    ns.wait_conditions("Sandbox", "twice", Ready="False MultiplePods", Suspended="False NotSuspended")
    ns.patch("Sandbox", "twice", {"spec": {"operatingMode": "Suspended"}})
    ns.wait_conditions("Sandbox", "twice", Ready="False MultiplePods", Suspended="Unknown PodStateUnknown")
    ns.patch("Sandbox", "twice", {"spec": {"operatingMode": "Running"}})
    ns.delete("Pod", "twice-more")
    ns.wait_conditions("Sandbox", "twice", Ready=READY, Suspended="False NotSuspended")


def foreign_pod_has_sandbox_name(ns):
    create_foreign_pod(ns, "taken")
    ns.create_sandbox("taken", pod_spec=runnable_pod_spec())
    found = ns.wait_conditions("Sandbox", "taken", Ready="False ReconcilerError")
    assert condition_message(found).startswith('Error seen: cannot adopt unowned pod "taken": missing')
    ns.patch("Sandbox", "taken", {"spec": {"operatingMode": "Suspended"}})
    ns.wait_conditions("Sandbox", "taken", Suspended="False PodNotOwned")
    ns.patch("Sandbox", "taken", {"spec": {"operatingMode": "Running"}})
    ns.delete("Pod", "taken")
    ns.wait_conditions("Sandbox", "taken", Ready=READY)


def service_name_is_too_long(ns):
    """A name of a Service has at most 63 characters, one of a Sandbox more."""
    name = "n" * 64
    ns.create_sandbox(name, pod_spec=runnable_pod_spec(), service=True)
    found = ns.wait_conditions("Sandbox", name, Ready="False InvalidConfiguration")
    assert "must be no more than 63 characters" in condition_message(found)


def create_foreign_pod(ns, name, **metadata):
    """A pod of another owner."""
    made = plain_pod(name)
    made["metadata"] = {"name": name, "namespace": ns.namespace, **metadata}
    return ns.objects.create(made)


def create_template(ns, name, pod_spec=None, **spec):
    return ns.create(
        "SandboxTemplate", name, {"podTemplate": {"spec": pod_spec or runnable_pod_spec()}, **spec}
    )


def create_empty_pool(ns, name):
    spec = {"replicas": 0, "sandboxTemplateRef": {"name": name}}
    return ns.create("SandboxWarmPool", name, spec)


def create_claim(ns, name, of, **spec):
    return ns.create("SandboxClaim", name, {"warmPoolRef": {"name": of}, **spec})


def claim_reports_each_reason(ns):
    create_claim(ns, "steps", "steps")
    ns.wait_conditions("SandboxClaim", "steps", Ready="False WarmPoolNotFound")
    create_empty_pool(ns, "steps")
    ns.wait_conditions("SandboxClaim", "steps", Ready="False TemplateNotFound")
    looking = threading.Event()
    with ThreadPoolExecutor(1) as beside:
        waited = beside.submit(ns.wait_ready_transitions, "SandboxClaim", "steps", READY, looking)
        assert looking.wait(20)
        create_template(ns, "steps")
        told = waited.result()
    assert told[:2] == ["False TemplateNotFound", "False SandboxNotReady"]


def claimed_sandbox_without_conditions_is_deleted(ns):
    """A finalizer keeps the old object, so that no new one without conditions replaces it."""
    create_template(ns, "silent")
    create_empty_pool(ns, "silent")
    create_claim(ns, "silent", "silent")
    ns.wait_conditions("SandboxClaim", "silent", Ready=READY)
    ns.patch("Sandbox", "silent", {"metadata": {"finalizers": ["test.holdfast.dev/held"]}})
    ns.delete("Sandbox", "silent")
    ns.patch("Sandbox", "silent", {"status": {"conditions": None}}, subresource="status")
    ns.wait_conditions("SandboxClaim", "silent", Ready="False SandboxNotReady")
    ns.patch("Sandbox", "silent", {"metadata": {"finalizers": None}})
    ns.wait_conditions("SandboxClaim", "silent", Ready=READY)


def claim_violates_template_policy(ns):
    create_template(ns, "strict")
    create_empty_pool(ns, "strict")
    volume = {"metadata": {"name": "w"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    refused = {
        "InvalidMetadata": {"additionalPodMetadata": {"labels": {"holdfast.dev/x": "1"}}},
        "EnvVarsInjectionRejected": {"env": [{"name": "A", "value": "1"}]},
        "VolumeClaimTemplatesError": {"volumeClaimTemplates": [volume]},
    }
    for reason, asked in refused.items():
        create_claim(ns, reason.lower(), "strict", **asked)
    for reason in refused:
        ns.wait_conditions("SandboxClaim", reason.lower(), Ready=f"False {reason}")
        assert ns.get("Sandbox", reason.lower()) is None


def claim_name_conflicts(ns):
    create_template(ns, "named")
    create_empty_pool(ns, "named")
    ns.create_sandbox("named", pod_spec=runnable_pod_spec(), operatingMode="Suspended")
    create_claim(ns, "named", "named")
    found = ns.wait_conditions("SandboxClaim", "named", Ready="False ReconcilerError")
    assert 'sandbox "named" is not controlled by claim "named"' in condition_message(found)


def finished_claimed_sandbox_is_deleted(ns):
    create_template(ns, "worked", runnable_pod_spec("true", restartPolicy="Never"))
    create_empty_pool(ns, "worked")
    create_claim(ns, "worked", "worked")
    ns.wait_conditions("SandboxClaim", "worked", Ready="False PodSucceeded", Finished="True PodSucceeded")
    # The claim reports the missing sandbox only until it has another one: watch from before the deletion.
    watching = threading.Event()
    with ThreadPoolExecutor(1) as beside:
        last = "False SandboxMissing"
        waited = beside.submit(ns.wait_ready_transitions, "SandboxClaim", "worked", last, watching)
        assert watching.wait(20)
        ns.delete("Sandbox", "worked")
        waited.result()


def claims_expire(ns):
    """All three policies; they share a pool."""
    create_template(ns, "timed")
    create_empty_pool(ns, "timed")
    names = {policy: f"timed-{policy.lower()}" for policy in ("Retain", "Delete", "DeleteForeground")}
    for name in names.values():
        create_claim(ns, name, "timed")
    for policy, name in names.items():
        ns.wait_conditions("SandboxClaim", name, Ready=READY)
        ends = {"shutdownTime": seconds_from_now(2), "shutdownPolicy": policy}
        ns.patch("SandboxClaim", name, {"spec": {"lifecycle": ends}})
    ns.wait_conditions("SandboxClaim", names.pop("Retain"), Ready="False ClaimExpired")
    for name in names.values():
        ns.wait_gone("SandboxClaim", name)
    for name in ("timed-retain", *names.values()):
        ns.wait_gone("Pod", name)
        assert ns.get("Sandbox", name) is None


SCENARIOS = (
    resume_with_another_image,
    expired_sandbox_is_retained,
    claims_expire,
    claimed_sandbox_without_conditions_is_deleted,
    claim_reports_each_reason,
    foreign_pod_has_sandbox_name,
    sandbox_owns_two_pods,
    expired_sandbox_is_deleted,
    pod_succeeds,
    failed_pod_is_kept,
    pod_is_unschedulable,
    service_name_is_too_long,
    image_is_missing,
    claim_violates_template_policy,
    claim_name_conflicts,
    finished_claimed_sandbox_is_deleted,
)
"""The longest ones first."""
