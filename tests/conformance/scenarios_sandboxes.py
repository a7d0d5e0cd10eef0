"""Situations of sandboxes, their children and their templates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.world import (
    World,
    create_ready_sandbox,
    finish_pod,
    scenario,
    seconds_from_now,
    set_pod_status,
    wait_events,
)
from tests.support.controller_process import default_pod_spec, running_pod_status

from holdfast.sandbox import name_hash

if TYPE_CHECKING:
    from tests.conformance.table import Seen

HASH = "agents.x-k8s.io/sandbox-name-hash"
VOLUME = {
    "metadata": {"name": "data", "labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
PORTS = [
    {"containerPort": 90, "name": "web"},
    {"containerPort": 80, "protocol": "UDP"},
    {"containerPort": 80},
]
METADATA = {
    "labels": {"team": "blue", "agents.x-k8s.io/mine": "1", "extensions.agents.x-k8s.io/x": "1"},
    "annotations": {"note": "x", "opentelemetry.io/trace-context": "{}", "agents.x-k8s.io/y": "1"},
}


def create_pod(ns, name, **metadata):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": ns.namespace, **metadata},
    }
    spec = {"containers": [{"name": "main", "image": "x"}], "terminationGracePeriodSeconds": 0}
    return ns.objects.create({**body, "spec": spec})


def create_service(ns, name, *, spec=None, **metadata):
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "spec": spec or {"clusterIP": "None", "selector": {"a": "b"}},
    }
    return ns.objects.create({**body, "metadata": {"name": name, "namespace": ns.namespace, **metadata}})


def create_pvc(ns, name, **metadata):
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": VOLUME["spec"]}
    return ns.objects.create({**body, "metadata": {"name": name, "namespace": ns.namespace, **metadata}})


def other_owner(ns):
    """A controller that is not a sandbox; the object exists, so that nothing is garbage."""
    name = "conformance-owner"
    found = ns.objects.get("ConfigMap", name, namespace=ns.namespace)
    if found is None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": ns.namespace},
        }
        ns.objects.ensure(body)
        found = ns.objects.get("ConfigMap", name, namespace=ns.namespace)
    uid = found["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": True}
    return [reference], uid


def wait_message(ns, name, text, kind="Ready"):
    """Watch until the message of a condition contains a text."""

    def until(found):
        rows = (found.get("status") or {}).get("conditions") or ()
        return any(row["type"] == kind and text in row["message"] for row in rows)

    return ns.wait("Sandbox", name, until)


@scenario
def whole(world: World) -> Seen:
    """A ready sandbox with everything, and the same sandbox while its pod was pending."""
    ns = world.plain
    container = {"name": "main", "image": "app:1", "ports": PORTS}
    sidecar = {
        "name": "s",
        "image": "x",
        "restartPolicy": "Always",
        "ports": [{"containerPort": 70}, {"containerPort": 91, "name": "web"}],
    }
    setup = {"name": "i", "image": "x", "ports": [{"containerPort": 60}]}
    pod = {**default_pod_spec(), "containers": [container], "initContainers": [setup, sidecar]}
    pod["volumes"] = [{"name": "data", "emptyDir": {}}, {"name": "other", "emptyDir": {}}]
    template = {"spec": pod, "metadata": METADATA}
    spec = {"podTemplate": template, "service": True, "volumeClaimTemplates": [VOLUME]}
    labels = {"agents.x-k8s.io/created-by": "somebody", "agents.x-k8s.io/claim-uid": "forged"}
    ns.create("Sandbox", "whole", spec, labels=labels)
    ns.wait("Pod", "whole", bool)
    pending = ns.wait_conditions("Sandbox", "whole", Ready="False DependenciesNotReady")
    status = running_pod_status()
    rows = [row | ({"status": "False"} if row["type"] == "Ready" else {}) for row in status["conditions"]]
    set_pod_status(ns, "whole", {**status, "conditions": rows})
    not_ready = wait_message(ns, "whole", "not Ready")
    set_pod_status(ns, "whole", {**status, "podIP": None, "podIPs": None})
    no_ips = wait_message(ns, "whole", "no podIPs")
    set_pod_status(ns, "whole", status)
    ready = ns.wait_conditions("Sandbox", "whole", Ready="True DependenciesReady")
    return {
        "pending": pending,
        "not-ready": not_ready,
        "no-ips": no_ips,
        "ready": ready,
        "pod": ns.get("Pod", "whole"),
        "service": ns.get("Service", "whole"),
        "pvc": ns.get("PersistentVolumeClaim", "data-whole"),
    }


@scenario
def followed(world: World) -> Seen:
    """The podTemplate and the Service of a running sandbox are changed."""
    ns = world.plain
    create_ready_sandbox(ns, "followed", service=True)
    before = ns.get("Pod", "followed")
    metadata = {"labels": {"team": "blue", "old": "1"}, "annotations": {"note": "x"}}
    ns.patch("Sandbox", "followed", {"spec": {"podTemplate": {"metadata": metadata}}})
    ns.wait("Pod", "followed", lambda pod: pod["metadata"]["labels"].get("old"))
    change = {
        "metadata": {"labels": {"old": None, "team": "red"}},
        "spec": {"containers": [{"name": "n", "image": "y"}]},
    }
    ns.patch("Sandbox", "followed", {"spec": {"podTemplate": change}})
    pod = ns.wait("Pod", "followed", lambda pod: "old" not in pod["metadata"]["labels"])
    ns.patch("Service", "followed", {"metadata": {"labels": {HASH: "0"}}, "spec": {"selector": {"x": "y"}}})
    service = ns.wait(
        "Service",
        "followed",
        lambda found: found["metadata"]["labels"].get(HASH) != "0" and "x" not in found["spec"]["selector"],
    )
    ns.patch("Sandbox", "followed", {"spec": {"service": None}})
    kept = create_ready_sandbox(ns, "followed-later") and ns.get("Service", "followed")
    unset = ns.get("Sandbox", "followed")
    ns.patch("Sandbox", "followed", {"spec": {"service": False}})
    ns.wait_gone("Service", "followed")
    off = ns.wait("Sandbox", "followed", lambda found: "service" not in found["status"])
    return {"before": before, "pod": pod, "service": service, "kept": kept, "unset": unset, "off": off}


@scenario
def suspended(world: World) -> Seen:
    """A sandbox is suspended while its pod takes time to end, and resumed."""
    ns = world.plain
    pod = {"terminationGracePeriodSeconds": 30, "nodeName": "far"}
    create_ready_sandbox(ns, "suspended", pod_spec=pod, service=True, volumeClaimTemplates=[VOLUME])
    old = ns.get("Pod", "suspended")
    ns.patch("Sandbox", "suspended", {"spec": {"operatingMode": "Suspended"}})
    suspending = ns.wait_conditions("Sandbox", "suspended", Ready="False SandboxSuspended")
    deleted = ns.wait("Pod", "suspended", lambda pod: pod["metadata"].get("deletionTimestamp"))
    ns.delete("Pod", "suspended", grace_seconds=0)
    done = ns.wait_conditions("Sandbox", "suspended", Suspended="True PodTerminated")
    service, pvc = ns.get("Service", "suspended"), ns.get("PersistentVolumeClaim", "data-suspended")
    ns.patch("Sandbox", "suspended", {"spec": {"operatingMode": "Running"}})
    new = ns.wait("Pod", "suspended", lambda pod: pod["metadata"]["uid"] != old["metadata"]["uid"])
    return {
        "suspending": suspending,
        "terminating": deleted,
        "suspended": done,
        "service": service,
        "pvc": pvc,
        "new-pod": new,
    }


@scenario
def stale_pod_name(world: World) -> Seen:
    """A Sandbox has the annotation of an older controller."""
    ns = world.plain
    annotations = {"agents.x-k8s.io/pod-name": "no-such-pod"}
    ns.create_sandbox("stale-name", metadata={"annotations": annotations})
    pod = ns.wait("Pod", "stale-name", bool)
    key = "agents.x-k8s.io/pod-name"
    box = ns.wait(
        "Sandbox", "stale-name", lambda found: key not in (found["metadata"].get("annotations") or {})
    )
    return {"pod": pod, "sandbox": box}


@scenario
def named_pod(world: World) -> Seen:
    """An older controller gave the pod another name."""
    ns = world.plain
    create_pod(ns, "legacy-pod", labels={HASH: name_hash("legacy")})
    ns.create_sandbox("legacy", metadata={"annotations": {"agents.x-k8s.io/pod-name": "legacy-pod"}})
    pod = ns.wait("Pod", "legacy-pod", lambda found: found["metadata"].get("ownerReferences"))
    set_pod_status(ns, "legacy-pod", running_pod_status())
    box = ns.wait_conditions("Sandbox", "legacy", Ready="True DependenciesReady")
    ns.patch("Sandbox", "legacy", {"spec": {"operatingMode": "Suspended"}})
    after = ns.wait_conditions("Sandbox", "legacy", Suspended="True PodTerminated")
    return {"pod": pod, "ready": box, "suspended": after}


@scenario
def several_pods(world: World) -> Seen:
    ns = world.plain
    found = create_ready_sandbox(ns, "several", service=True)
    (reference,) = ns.get("Pod", "several")["metadata"]["ownerReferences"]
    create_pod(ns, "several-more", ownerReferences=[reference], labels={HASH: name_hash("several")})
    box = ns.wait_conditions("Sandbox", "several", Ready="False MultiplePods")
    ns.patch("Sandbox", "several", {"spec": {"operatingMode": "Suspended"}})
    stopped = ns.wait_conditions("Sandbox", "several", Suspended="Unknown PodStateUnknown")
    events = wait_events(ns, "several", "MultiplePods")
    return {"before": found, "several": box, "suspended": stopped, "events": events}


@scenario
def foreign_children(world: World) -> Seen:
    """Objects of others have the names that sandboxes need."""
    ns = world.plain
    references, uid = other_owner(ns)
    create_pod(ns, "owned-pod", ownerReferences=references)
    create_service(ns, "owned-service", ownerReferences=references)
    create_pvc(ns, "data-owned-pvc", ownerReferences=references)
    create_pod(ns, "free-pod")
    create_service(ns, "free-service")
    create_pvc(ns, "data-free-pvc")
    create_service(
        ns, "address", spec={"ports": [{"port": 80}]}, labels={"agents.x-k8s.io/adoptable": "true"}
    )
    seen: Seen = {"uid": uid}
    for name, spec in (
        ("owned-pod", {}),
        ("owned-service", {"service": True}),
        ("owned-pvc", {"volumeClaimTemplates": [VOLUME]}),
        ("free-pod", {}),
        ("free-service", {"service": True}),
        ("free-pvc", {"volumeClaimTemplates": [VOLUME]}),
        ("address", {"service": True}),
    ):
        ns.create_sandbox(name, **spec)
        seen[name] = ns.wait_conditions("Sandbox", name, Ready="False ReconcilerError")
    seen["address-ip"] = ns.get("Service", "address")["spec"]["clusterIP"]
    ns.patch("Sandbox", "owned-pod", {"spec": {"operatingMode": "Suspended"}})
    seen["not-owned"] = ns.wait_conditions("Sandbox", "owned-pod", Suspended="False PodNotOwned")
    return seen


@scenario
def adopted_children(world: World) -> Seen:
    """Objects without controller that the sandbox may take over."""
    ns = world.plain
    adoptable = {"agents.x-k8s.io/adoptable": "true"}
    create_pod(ns, "adopts", labels=adoptable)
    create_service(ns, "adopts", labels=adoptable)
    create_pvc(ns, "data-adopts", labels=adoptable)
    ns.create_sandbox("adopts", service=True, volumeClaimTemplates=[VOLUME])
    place = {"Pod": "adopts", "Service": "adopts", "PersistentVolumeClaim": "data-adopts"}
    found = {
        kind: ns.wait(kind, name, lambda found: found["metadata"].get("ownerReferences"))
        for kind, name in place.items()
    }
    return {"pod": found["Pod"], "service": found["Service"], "pvc": found["PersistentVolumeClaim"]}


@scenario
def ended(world: World) -> Seen:
    """Pods succeed and fail; the one that succeeded then expires, with Retain."""
    ns = world.plain
    create_ready_sandbox(ns, "succeeds", service=True)
    succeeded = finish_pod(ns, "succeeds", "Succeeded", 0)
    create_ready_sandbox(ns, "fails")
    failed = finish_pod(ns, "fails", "Failed", 1)
    kept = ns.get("Pod", "fails")
    ns.patch("Sandbox", "succeeds", {"spec": {"shutdownTime": seconds_from_now(-1)}})
    ns.wait_gone("Pod", "succeeds")
    ns.wait_gone("Service", "succeeds")
    expired = ns.wait("Sandbox", "succeeds", lambda found: set(found["status"]) == {"conditions"})
    ns.patch("Sandbox", "succeeds", {"spec": {"shutdownTime": None}})
    again = ns.wait("Pod", "succeeds", bool)
    return {"succeeded": succeeded, "failed": failed, "failed-pod": kept, "expired": expired, "again": again}


@scenario
def expired(world: World) -> Seen:
    """Sandboxes with a shutdown time in the past, and one that reaches it."""
    ns = world.plain
    ns.create_sandbox("past", shutdownTime=seconds_from_now(-10), volumeClaimTemplates=[VOLUME])
    past = ns.wait_conditions("Sandbox", "past", Ready="False SandboxExpired")
    create_ready_sandbox(ns, "ends", volumeClaimTemplates=[VOLUME])
    ns.patch("Sandbox", "ends", {"spec": {"shutdownTime": seconds_from_now(-1)}})
    ns.wait_gone("Pod", "ends")
    retained = ns.wait("Sandbox", "ends", lambda found: set(found["status"]) == {"conditions"})
    pvc = ns.get("PersistentVolumeClaim", "data-ends")
    create_ready_sandbox(ns, "vanishes")
    ns.patch(
        "Sandbox", "vanishes", {"spec": {"shutdownTime": seconds_from_now(-1), "shutdownPolicy": "Delete"}}
    )
    ns.wait_gone("Sandbox", "vanishes")
    return {
        "past": past,
        "past-pod": ns.get("Pod", "past"),
        "retained": retained,
        "pvc": pvc,
        "deleted": ns.get("Sandbox", "vanishes"),
    }


@scenario
def invalid_child(world: World) -> Seen:
    """The API server refuses a Service whose name has more than 63 characters."""
    ns = world.plain
    name = "n" * 64
    ns.create_sandbox(name, service=True)
    return {"sandbox": ns.wait_conditions("Sandbox", name, Ready="False InvalidConfiguration")}


@scenario
def scheduling(world: World) -> Seen:
    ns = world.plain
    ns.create_sandbox("scheduled")
    ns.wait("Pod", "scheduled", bool)
    unknown = ns.wait_conditions("Sandbox", "scheduled", PodScheduled="Unknown PodSchedulingUnknown")
    row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
    set_pod_status(ns, "scheduled", {"conditions": [row]})
    refused = ns.wait_conditions("Sandbox", "scheduled", PodScheduled="False Unschedulable")
    set_pod_status(ns, "scheduled", {"conditions": [{"type": "PodScheduled", "status": "True"}]})
    done = ns.wait_conditions("Sandbox", "scheduled", PodScheduled="True PodScheduled")
    return {"unknown": unknown, "refused": refused, "scheduled": done}


@scenario
def recreated_pod(world: World) -> Seen:
    """Another client deletes the pod; then the Sandbox is deleted."""
    ns = world.plain
    create_ready_sandbox(ns, "again", service=True, volumeClaimTemplates=[VOLUME])
    old = ns.get("Pod", "again")["metadata"]["uid"]
    ns.delete("Pod", "again")
    pod = ns.wait("Pod", "again", lambda pod: pod["metadata"]["uid"] != old)
    ns.delete("Sandbox", "again")
    for kind, name in (("Pod", "again"), ("Service", "again"), ("PersistentVolumeClaim", "data-again")):
        ns.wait_gone(kind, name, seconds=60)
    return {"pod": pod}


def create_template(ns, name, **spec):
    return ns.create("SandboxTemplate", name, {"podTemplate": {"spec": default_pod_spec()}, **spec})


@scenario
def templates(world: World) -> Seen:
    """A managed template, one with empty rules, one unmanaged, and one whose policy name is taken."""
    ns = world.plain
    kind = "NetworkPolicy"
    create_template(ns, "policy")
    default = ns.wait(kind, "policy-network-policy", bool)
    labelled = ns.wait("SandboxTemplate", "policy", lambda found: found["metadata"].get("labels"))
    ns.patch(kind, "policy-network-policy", {"spec": {"egress": [{}]}})
    repaired = ns.wait(kind, "policy-network-policy", lambda found: found["spec"]["egress"] != [{}])
    create_template(ns, "closed", networkPolicy={"ingress": [], "egress": []})
    closed = ns.wait(kind, "closed-network-policy", bool)
    ns.patch("SandboxTemplate", "closed", {"spec": {"networkPolicyManagement": "Unmanaged"}})
    ns.wait_gone(kind, "closed-network-policy")
    unmanaged = ns.get(kind, "closed-network-policy")
    foreign = {"apiVersion": "networking.k8s.io/v1", "kind": kind, "spec": {"podSelector": {}}}
    ns.objects.create({**foreign, "metadata": {"name": "taken-network-policy", "namespace": ns.namespace}})
    create_template(ns, "taken")
    create_template(ns, "policy-later")
    ns.wait(kind, "policy-later-network-policy", bool)
    taken = ns.get(kind, "taken-network-policy")
    return {
        "template": labelled,
        "default": default,
        "repaired": repaired,
        "closed": closed,
        "unmanaged": unmanaged,
        "taken": taken,
    }
