"""Situations of warm pools, and what the controller publishes about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.scenarios_claims import READY, create_claim, create_pool, create_ready_pool, members
from tests.conformance.scenarios_sandboxes import VOLUME, create_template
from tests.conformance.world import World, published_events, scenario, seconds_from_now
from tests.support.controller_process import EVENTUALLY, default_pod_spec, status_of

from holdfast.sandbox import name_hash

if TYPE_CHECKING:
    from tests.conformance.table import Seen

WARM = "agents.x-k8s.io/warm-pool-sandbox"


def names(boxes):
    return {box["metadata"]["name"] for box in boxes}


@scenario
def pool_member(world: World) -> Seen:
    ns = world.running
    pod = default_pod_spec()
    del pod["automountServiceAccountToken"]
    create_ready_pool(ns, "member", 1, podTemplate={"spec": pod}, volumeClaimTemplates=[VOLUME], service=True)
    (box,) = members(ns, "member")
    return {
        "pool": ns.get("SandboxWarmPool", "member"),
        "sandbox": box,
        "pod": ns.get("Pod", box["metadata"]["name"]),
    }


@scenario
def replaced_template(world: World) -> Seen:
    """A pool with each strategy gets another template."""
    ns = world.running
    create_ready_pool(ns, "recreate", 1, {"updateStrategy": {"type": "Recreate"}})
    create_ready_pool(ns, "replenish", 1)
    create_template(ns, "other")
    old = {pool: names(members(ns, pool)) for pool in ("recreate", "replenish")}
    ref = {"spec": {"sandboxTemplateRef": {"name": "other"}}}
    ns.patch("SandboxWarmPool", "replenish", ref)
    ns.patch("SandboxWarmPool", "recreate", ref)
    for name in old["recreate"]:
        ns.wait_gone("Sandbox", name)
    found = EVENTUALLY.call(lambda: one_member(ns, "recreate"))
    return {"new": found, "replenish": names(members(ns, "replenish")) == old["replenish"]}


def one_member(ns, pool):
    found = members(ns, pool)
    assert len(found) == 1
    return found[0]


@scenario
def metadata_edit(world: World) -> Seen:
    """Labels of a template are edited in a pool with Recreate."""
    ns = world.running
    create_ready_pool(ns, "edited", 1, {"updateStrategy": {"type": "Recreate"}})
    old = names(members(ns, "edited"))
    ns.patch("SandboxTemplate", "edited", {"spec": {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}})
    ns.patch("SandboxWarmPool", "edited", {"spec": {"replicas": 2}})
    ns.wait("SandboxWarmPool", "edited", lambda found: status_of(found).get("readyReplicas") == 2)
    return {"kept": old <= names(members(ns, "edited"))}


@scenario
def scaled_down(world: World) -> Seen:
    """Of three ready members, made one after another, two are too many."""
    ns = world.running
    create_ready_pool(ns, "surplus", 1)
    first = names(members(ns, "surplus"))
    EVENTUALLY.call(lambda: older_than(ns, "surplus", 1.1))
    ns.patch("SandboxWarmPool", "surplus", {"spec": {"replicas": 3}})
    ns.wait("SandboxWarmPool", "surplus", lambda found: status_of(found).get("readyReplicas") == 3)
    ns.patch("SandboxWarmPool", "surplus", {"spec": {"replicas": 1}})
    ns.wait("SandboxWarmPool", "surplus", lambda found: status_of(found).get("replicas") == 1)
    return {
        "kept": names(box for box in members(ns, "surplus") if "deletionTimestamp" not in box["metadata"])
        == first
    }


def older_than(ns, pool, seconds):
    from datetime import UTC, datetime

    for box in members(ns, pool):
        made = datetime.fromisoformat(box["metadata"]["creationTimestamp"])
        assert (datetime.now(UTC) - made).total_seconds() > seconds


@scenario
def terminating_member(world: World) -> Seen:
    """A member is being deleted, and a finalizer keeps it for now."""
    ns = world.running
    create_ready_pool(ns, "going", 1)
    (box,) = members(ns, "going")
    name = box["metadata"]["name"]
    ns.patch("Sandbox", name, {"metadata": {"finalizers": ["example.com/keep"]}})
    ns.delete("Sandbox", name)
    pool = ns.wait("SandboxWarmPool", "going", lambda found: not status_of(found).get("replicas"))
    create_ready_pool(ns, "going-marker", 1)
    during = names(members(ns, "going"))
    ns.patch("Sandbox", name, {"metadata": {"finalizers": None}})
    ns.wait("SandboxWarmPool", "going", lambda found: status_of(found).get("readyReplicas") == 1)
    return {"pool": pool, "during": during, "old": {name}}


@scenario
def orphans(world: World) -> Seen:
    """Sandboxes with the label of a pool have no controller: one is adopted, a stale one is deleted."""
    ns = world.running
    create_ready_pool(ns, "orphans", 1)
    (box,) = members(ns, "orphans")
    name = box["metadata"]["name"]
    ns.patch("SandboxWarmPool", "orphans", {"spec": {"replicas": 2}})
    ns.patch("Sandbox", name, {"metadata": {"ownerReferences": None}})
    adopted = ns.wait("Sandbox", name, lambda found: found["metadata"].get("ownerReferences"))
    pod = {"podTemplate": {"spec": {"containers": [{"name": "old", "image": "old"}]}}}
    labels = {WARM: name_hash("orphans"), "agents.x-k8s.io/sandbox-template-ref-hash": name_hash("elsewhere")}
    ns.create("Sandbox", "stale-orphan", pod, labels=labels)
    ns.wait_gone("Sandbox", "stale-orphan")
    return {"adopted": adopted}


@scenario
def pool_without_template(world: World) -> Seen:
    ns = world.running
    create_pool(ns, "no-template", 2)
    pool = ns.wait("SandboxWarmPool", "no-template", lambda found: status_of(found).get("observedGeneration"))
    create_ready_pool(ns, "loses", 1)
    ns.delete("SandboxTemplate", "loses")
    (box,) = members(ns, "loses")
    ns.delete("Sandbox", box["metadata"]["name"])
    ns.wait_gone("Sandbox", box["metadata"]["name"])
    create_ready_pool(ns, "loses-marker", 1)
    return {"pool": pool, "members": members(ns, "no-template"), "lost": members(ns, "loses")}


@scenario
def deleted_pool(world: World) -> Seen:
    """A pool with a claimed sandbox is deleted."""
    ns = world.running
    create_ready_pool(ns, "deleted", 1)
    create_claim(ns, "survivor", "deleted")
    bound = ns.wait_conditions("SandboxClaim", "survivor", Ready=READY)
    ns.wait("SandboxWarmPool", "deleted", lambda found: status_of(found).get("readyReplicas") == 1)
    ns.delete("SandboxWarmPool", "deleted")
    EVENTUALLY.call(lambda: no_members(ns, "deleted"))
    return {"sandbox": ns.get("Sandbox", bound["status"]["sandbox"]["name"])}


def no_members(ns, pool):
    assert members(ns, pool) == []


@scenario
def events(world: World) -> Seen:
    ns = world.running
    create_ready_pool(ns, "events", 1)
    create_claim(ns, "events-warm", "events")
    warm = ns.wait_conditions("SandboxClaim", "events-warm", Ready=READY)
    create_ready_pool(ns, "events-cold", 0)
    create_claim(ns, "events-cold", "events-cold")
    ns.wait_conditions("SandboxClaim", "events-cold", Ready=READY)

    def until():
        found = {"warm": published_events(ns, "events-warm"), "cold": published_events(ns, "events-cold")}
        assert all(found.values())
        return found

    return {"name": warm["status"]["sandbox"]["name"], **EVENTUALLY.call(until)}


LATENCIES = ("claim_startup", "claim_controller_startup", "client_claim_startup")


def has_samples(world):
    labels = 'launch_type="warm",sandbox_template="exported"'
    found = world.metrics()
    assert all(f"\nagent_sandbox_{name}_latency_ms_count{{{labels}}} 1.0" in found for name in LATENCIES)


@scenario
def exported(world: World) -> Seen:
    """The metrics after a claim has become ready, and the Lease of the controller."""
    ns = world.running
    create_ready_pool(ns, "exported", 1)
    times = {
        f"agents.x-k8s.io/{key}": "2026-01-01T12:00:00.5Z"
        for key in ("webhook-first-observed-at", "client-first-requested-at")
    }
    creator = {"agents.x-k8s.io/created-by": "python-client"}
    create_claim(ns, "exported", "exported", {"annotations": times, "labels": creator})
    ns.create_sandbox("exported-own", shutdownTime=seconds_from_now(-1))
    ns.wait_conditions("Sandbox", "exported-own", Ready="False SandboxExpired")
    ns.wait_conditions("SandboxClaim", "exported", Ready=READY)
    EVENTUALLY.call(lambda: has_samples(world))
    lease = "a3317529.agent-sandbox.x-k8s.io"
    found = ns.objects.list("Lease").items
    leases = {one["metadata"]["name"] for one in found}
    return {"metrics": world.metrics(), "lease": lease in leases, "namespace": ns.namespace}


@scenario
def stale_member(world: World) -> Seen:
    """A SandboxClaim comes after the template of a pool with OnReplenish has changed."""
    ns = world.running
    create_ready_pool(ns, "stale", 1)
    (box,) = members(ns, "stale")
    image = {"containers": [{"name": "main", "image": "app:2"}]}
    ns.patch("SandboxTemplate", "stale", {"spec": {"podTemplate": {"spec": image}}})
    create_template(ns, "stale-marker")
    ns.wait("SandboxTemplate", "stale-marker", lambda found: found["metadata"].get("labels"))
    create_claim(ns, "stale", "stale")
    bound = ns.wait_conditions("SandboxClaim", "stale", Ready=READY)
    return {"member": box, "sandbox": ns.get("Sandbox", bound["status"]["sandbox"]["name"])}


@scenario
def unready_surplus(world: World) -> Seen:
    """Only the newest of two members is ready, and one is too many."""
    ns = world.plain
    create_template(ns, "unready-surplus")
    create_pool(ns, "unready-surplus", 2)
    ns.wait("SandboxWarmPool", "unready-surplus", lambda found: status_of(found).get("replicas") == 2)
    newest = max(
        (box["metadata"]["creationTimestamp"], box["metadata"]["name"])
        for box in members(ns, "unready-surplus")
    )[1]
    ns.wait("Pod", newest, bool)
    ns.mark_pod_running(newest)
    ns.wait_conditions("Sandbox", newest, Ready=READY)
    ns.wait("SandboxWarmPool", "unready-surplus", lambda found: status_of(found).get("readyReplicas") == 1)
    ns.patch("SandboxWarmPool", "unready-surplus", {"spec": {"replicas": 1}})
    ns.wait("SandboxWarmPool", "unready-surplus", lambda found: status_of(found).get("replicas") == 1)
    kept = [box for box in members(ns, "unready-surplus") if "deletionTimestamp" not in box["metadata"]]
    return {"kept": names(kept), "ready": {newest}}


@scenario
def own_rules(world: World) -> Seen:
    """Pods of a template with rules of its own, and of one without a policy."""
    ns = world.plain
    for name, spec in (
        ("own-rules", {"networkPolicy": {"egress": [{}]}}),
        ("no-policy", {"networkPolicyManagement": "Unmanaged"}),
    ):
        create_template(ns, name, **spec)
        create_pool(ns, name, 1)
        ns.wait("SandboxWarmPool", name, lambda found: status_of(found).get("replicas") == 1)
    pods = {name: members(ns, name)[0]["metadata"]["name"] for name in ("own-rules", "no-policy")}
    return {name: ns.wait("Pod", pod, bool) for name, pod in pods.items()}
