"""Sandboxes and their dependents as the API server returns them, and one reconcile of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.sandbox import ObservedSandbox, manifests, reconcile_sandbox

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def sandbox(**spec):
    base = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}}
    return {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": "a", "namespace": "ns", "uid": "s-1", "generation": 3},
        "spec": base | spec,
    }


def workspace_claim_template(name="workspace"):
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"]}}


def running_pod(box, uid="p-1", **status):
    pod = manifests.pod_manifest(box)
    pod["metadata"]["uid"] = uid
    pod["spec"]["nodeName"] = "node"
    pod["status"] = {
        "phase": "Running",
        "podIP": "10.0.0.9",
        "podIPs": [{"ip": "10.0.0.9"}],
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
    } | status
    return pod


def failed_pod(box, *, ended=NOW, started=NOW - timedelta(seconds=5)):
    terminated = {"exitCode": 7, "reason": "Error", "finishedAt": timestamp(ended)}
    return running_pod(
        box,
        phase="Failed",
        startTime=timestamp(started),
        containerStatuses=[{"name": "main", "state": {"terminated": terminated}}],
    )


def timestamp(moment):
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def reconcile(box, *pods, now=NOW, **more):
    return reconcile_sandbox(ObservedSandbox(sandbox=box, pods=pods, now=now, **more))


def condition_of(decision, kind):
    found = [one for one in decision.status["conditions"] if one["type"] == kind]
    assert len(found) <= 1
    return (found[0]["status"], found[0]["reason"]) if found else None


def message_of(decision, kind="Ready"):
    """The message of one condition."""
    (found,) = [one["message"] for one in decision.status["conditions"] if one["type"] == kind]
    return found


def explanation_of(decision):
    """Reason and message of holdfast's own condition; None if there is nothing to explain."""
    found = [one for one in decision.status["conditions"] if one["type"] == "holdfast.dev/Explanation"]
    return (found[0]["reason"], found[0]["message"]) if found else None


def recreating_sandbox(**spec):
    """A sandbox whose failed pods are recreated, as holdfast's API creates it."""
    box = sandbox(**spec)
    box["metadata"]["annotations"] = {"holdfast.dev/failed-pods": "Recreate"}
    return box


def with_foreign_owner(found):
    found["metadata"]["ownerReferences"] = [
        {"kind": "Job", "name": "other", "uid": "x", "controller": True, "apiVersion": "batch/v1"}
    ]
    return found


def without_owner(found):
    del found["metadata"]["ownerReferences"]
    return found
