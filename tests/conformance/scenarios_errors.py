"""Situations in which children of sandboxes are missing, of other owners, or refused by the API server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.conformance.scenarios_claims import create_claim, create_ready_pool, wait_reason
from tests.conformance.scenarios_sandboxes import (
    HASH,
    VOLUME,
    create_pod,
    create_pvc,
    create_service,
    other_owner,
    wait_message,
)
from tests.conformance.world import World, create_ready_sandbox, scenario, set_pod_status
from tests.support.admission_policies import REFUSED, refuse_writes
from tests.support.controller_process import EVENTUALLY, running_pod_status

from holdfast.sandbox import name_hash

if TYPE_CHECKING:
    from tests.conformance.table import Seen

ADOPTABLE = {"agents.x-k8s.io/adoptable": "true"}


@scenario
def no_pod(world: World) -> Seen:
    """The pod waits for a PVC of its sandbox that is being deleted."""
    ns = world.plain
    labels, kind = {HASH: name_hash("no-pod")}, "PersistentVolumeClaim"
    create_pvc(ns, "data-no-pod", labels=labels, finalizers=["example.com/keep"])
    ns.delete(kind, "data-no-pod")
    ns.create_sandbox("no-pod", volumeClaimTemplates=[VOLUME])
    box = ns.wait_conditions("Sandbox", "no-pod", Ready="False DependenciesNotReady")
    ns.patch(kind, "data-no-pod", {"metadata": {"finalizers": None}})
    ns.wait("Pod", "no-pod", bool)
    return {"sandbox": box}


@scenario
def several_errors(world: World) -> Seen:
    """All children of a sandbox have another owner; the PVC of a suspended one, too."""
    ns = world.plain
    references, uid = other_owner(ns)
    create_pvc(ns, "data-errors", ownerReferences=references)
    create_pvc(ns, "data-stopped", ownerReferences=references)
    create_pod(ns, "errors", ownerReferences=references)
    create_service(ns, "errors", ownerReferences=references)
    later = {"metadata": {"name": "later"}, "spec": VOLUME["spec"]}
    ns.create_sandbox("errors", service=True, volumeClaimTemplates=[VOLUME, later])
    box = wait_message(ns, "errors", "service")
    ns.create_sandbox("stopped", operatingMode="Suspended", volumeClaimTemplates=[VOLUME])
    stopped = ns.wait_conditions("Sandbox", "stopped", Suspended="True PodTerminated")
    later_pvc = ns.get("PersistentVolumeClaim", "later-errors")
    return {"uid": uid, "sandbox": box, "suspended": stopped, "later-pvc": later_pvc}


@scenario
def unrequested_services(world: World) -> Seen:
    """Services with the names of sandboxes that do not mention any."""
    ns = world.plain
    references, uid = other_owner(ns)
    create_service(ns, "unset-owned", ownerReferences=references)
    create_service(ns, "unset-free")
    for name in ("unset-owned", "unset-free"):
        ns.create_sandbox(name)
    owned = ns.wait_conditions("Sandbox", "unset-owned", Ready="False ReconcilerError")
    free = ns.wait_conditions("Sandbox", "unset-free", Ready="False DependenciesNotReady")
    return {"uid": uid, "owned": owned, "free": free, "service": ns.get("Service", "unset-free")}


@scenario
def forged_keys(world: World) -> Seen:
    """A pod records reserved keys as those of its template."""
    ns, key = world.plain, "agents.x-k8s.io/forged"
    create_ready_sandbox(ns, "forged")
    lists = {f"agents.x-k8s.io/propagated-{field}": key for field in ("labels", "annotations")}
    ns.patch("Pod", "forged", {"metadata": {"labels": {key: "1"}, "annotations": {key: "1", **lists}}})
    pod = ns.wait("Pod", "forged", lambda pod: key not in pod["metadata"]["labels"])
    return {"pod": pod}


@scenario
def transitions(world: World) -> Seen:
    """The message of a condition changes a second later, then its status."""
    ns = world.plain
    ns.create_sandbox("transitions")
    pending = ns.wait_conditions("Sandbox", "transitions", Ready="False DependenciesNotReady")
    EVENTUALLY.call(lambda: assert_past(ready_time(pending)))
    status = running_pod_status()
    rows = [row | ({"status": "False"} if row["type"] == "Ready" else {}) for row in status["conditions"]]
    set_pod_status(ns, "transitions", {**status, "conditions": rows})
    running = wait_message(ns, "transitions", "not Ready")
    set_pod_status(ns, "transitions", status)
    ready = ns.wait_conditions("Sandbox", "transitions", Ready="True DependenciesReady")
    return {"times": [ready_time(found) for found in (pending, running, ready)]}


def ready_time(found):
    return next(row["lastTransitionTime"] for row in found["status"]["conditions"] if row["type"] == "Ready")


def assert_past(time):
    assert (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds() > 1


def label(ns, kind, name, operation, spec=None):
    ns.patch(kind, name, {"metadata": {"labels": {REFUSED: operation}}, **({"spec": spec} if spec else {})})


@scenario
def refused_writes(world: World) -> Seen:
    """The API server refuses writes about the children of sandboxes, and a sandbox of a SandboxClaim."""
    ns = world.plain
    refuse_writes(ns)
    refused = ADOPTABLE | {REFUSED: "UPDATE"}
    create_pod(ns, "no-adopt-pod", labels=refused)
    create_service(ns, "no-adopt-service", labels=refused)
    create_pvc(ns, "data-no-adopt-pvc", labels=refused)
    ns.create_sandbox("no-adopt-pod")
    ns.create_sandbox("no-adopt-service", service=True)
    ns.create_sandbox("no-adopt-pvc", volumeClaimTemplates=[VOLUME])
    for name, options in (
        ("no-delete-pod", {}),
        ("no-patch-pod", {}),
        ("no-delete-service", {"service": True}),
        ("no-patch-service", {"service": True}),
    ):
        create_ready_sandbox(ns, name, **options)
    label(ns, "Pod", "no-delete-pod", "DELETE")
    ns.patch("Sandbox", "no-delete-pod", {"spec": {"operatingMode": "Suspended"}})
    label(ns, "Pod", "no-patch-pod", "UPDATE")
    ns.patch("Sandbox", "no-patch-pod", {"spec": {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}})
    label(ns, "Service", "no-delete-service", "DELETE")
    ns.patch("Sandbox", "no-delete-service", {"spec": {"service": False}})
    label(ns, "Service", "no-patch-service", "UPDATE", {"selector": {"x": "y"}})
    names = (
        "no-adopt-pod", "no-adopt-service", "no-adopt-pvc", "no-delete-pod", "no-patch-pod",
        "no-delete-service", "no-patch-service",
    )  # fmt: skip
    seen = {name: ns.wait_conditions("Sandbox", name, Ready="False ReconcilerError") for name in names}
    create_ready_pool(ns, "refusing", 0)
    create_claim(ns, "refused-claim", "refusing")
    return {**seen, "claim": wait_reason(ns, "refused-claim", "ReconcilerError")}
