"""Situations of SandboxClaims."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.conformance.scenarios_sandboxes import VOLUME, create_template
from tests.conformance.table import said
from tests.conformance.world import World, scenario, seconds_from_now, wait_events
from tests.support.controller_process import default_pod_spec, status_of, terminated_pod_status

if TYPE_CHECKING:
    from tests.conformance.table import Seen

ALLOWED = "sandbox.users.io"
FIRST_OBSERVED = "agents.x-k8s.io/controller-first-observed-at"
FIRST_READY = "agents.x-k8s.io/claim-first-ready-at"
TRACE = "opentelemetry.io/trace-context"
READY = "True DependenciesReady"


def create_pool(ns, name, replicas=0, template=None, **spec):
    spec = {"replicas": replicas, "sandboxTemplateRef": {"name": template or name}, **spec}
    return ns.create("SandboxWarmPool", name, spec)


def create_ready_pool(ns, name, replicas=1, pool_spec=None, **spec):
    """A template and its pool, with all sandboxes ready."""
    create_template(ns, name, **spec)
    create_pool(ns, name, replicas, **(pool_spec or {}))
    if replicas:
        ns.wait("SandboxWarmPool", name, lambda found: status_of(found).get("readyReplicas") == replicas)


def create_claim(ns, name, pool, metadata=None, **spec):
    return ns.create("SandboxClaim", name, {"warmPoolRef": {"name": pool}, **spec}, **(metadata or {}))


def members(ns, pool):
    """The sandboxes that a pool controls, those being deleted included."""
    return [
        box
        for box in ns.list("Sandbox")
        if any(
            one["kind"] == "SandboxWarmPool" and one["name"] == pool
            for one in box["metadata"].get("ownerReferences") or ()
        )
    ]


def wait_reason(ns, name, reason, text=""):
    """Watch until the Ready condition of a claim has a reason and a message with this text."""

    def until(found):
        rows = (found.get("status") or {}).get("conditions") or ()
        return any(
            row["type"] == "Ready" and row["reason"] == reason and text in row["message"] for row in rows
        )

    return ns.wait("SandboxClaim", name, until)


@scenario
def warm_claim(world: World) -> Seen:
    """A claim adopts a sandbox of its pool."""
    ns = world.running
    create_ready_pool(
        ns, "warm", 1, podTemplate={"spec": default_pod_spec(), "metadata": {"labels": {"team": "blue"}}}
    )
    (before,) = members(ns, "warm")
    labels = {"agents.x-k8s.io/created-by": "python-client", "mine": "1"}
    metadata = {"labels": labels, "annotations": {TRACE: '{"traceparent":"x"}'}}
    create_claim(
        ns,
        "warm-claim",
        "warm",
        metadata,
        additionalPodMetadata={"labels": {f"{ALLOWED}/a": "1"}, "annotations": {"note": "x"}},
    )
    ready = ns.wait_conditions("SandboxClaim", "warm-claim", Ready=READY)
    claim = ns.wait(
        "SandboxClaim",
        "warm-claim",
        lambda found: (found["metadata"].get("annotations") or {}).get(FIRST_READY),
    )
    name = ready["status"]["sandbox"]["name"]
    pod = ns.wait("Pod", name, lambda pod: f"{ALLOWED}/a" in pod["metadata"]["labels"])
    box = ns.get("Sandbox", name)
    ns.patch(
        "SandboxTemplate",
        "warm",
        {"spec": {"podTemplate": {"metadata": {"labels": {"team": "red", "new": "1"}}}}},
    )
    edited = ns.wait("Pod", name, lambda pod: pod["metadata"]["labels"].get("team") == "red")
    ns.patch(
        "SandboxClaim", "warm-claim", {"spec": {"additionalPodMetadata": {"labels": {f"{ALLOWED}/a": "2"}}}}
    )
    relabelled = ns.wait("Pod", name, lambda pod: pod["metadata"]["labels"].get(f"{ALLOWED}/a") == "2")
    return {
        "member": before,
        "ready": ready,
        "claim": claim,
        "sandbox": box,
        "pod": pod,
        "edited": edited,
        "relabelled": relabelled,
    }


@scenario
def cold_claim(world: World) -> Seen:
    ns = world.running
    overrides = {"envVarsInjectionPolicy": "Overrides", "volumeClaimTemplatesPolicy": "Overrides"}
    template = {"metadata": {"name": "first"}, "spec": VOLUME["spec"]}
    pod = {
        **default_pod_spec(),
        "containers": [
            {
                "name": "main",
                "image": "app:1",
                "env": [{"name": "A", "value": "0"}, {"name": "B", "value": "$(A)"}],
            }
        ],
    }
    del pod["automountServiceAccountToken"]
    create_ready_pool(
        ns, "cold", 0, podTemplate={"spec": pod}, volumeClaimTemplates=[template, VOLUME], **overrides
    )
    metadata = {
        "labels": {"agents.x-k8s.io/created-by": "go-client", "mine": "1"},
        "annotations": {TRACE: '{"traceparent":"x"}'},
    }
    first = {"metadata": {"name": "first"}, "spec": {**VOLUME["spec"], "accessModes": ["ReadOnlyMany"]}}
    extra = {"metadata": {"name": "extra"}, "spec": VOLUME["spec"]}
    create_claim(
        ns,
        "cold-claim",
        "cold",
        metadata,
        env=[{"name": "A", "value": "1"}],
        volumeClaimTemplates=[extra, first],
    )
    claim = ns.wait_conditions("SandboxClaim", "cold-claim", Ready=READY)
    ready = ns.wait(
        "SandboxClaim",
        "cold-claim",
        lambda found: (found["metadata"].get("annotations") or {}).get(FIRST_READY),
    )
    return {
        "ready": claim,
        "claim": ready,
        "sandbox": ns.get("Sandbox", "cold-claim"),
        "pod": ns.get("Pod", "cold-claim"),
    }


@scenario
def missing_parts(world: World) -> Seen:
    """Pool and template do not exist yet; then they do."""
    ns = world.running
    create_claim(ns, "early", "later")
    pool = ns.wait_conditions("SandboxClaim", "early", Ready="False WarmPoolNotFound")
    create_pool(ns, "later", template="later-template")
    template = ns.wait_conditions("SandboxClaim", "early", Ready="False TemplateNotFound")
    create_template(ns, "later-template")
    bound = ns.wait_conditions("SandboxClaim", "early", Ready=READY)
    ns.delete("SandboxTemplate", "later-template")
    ns.patch("SandboxClaim", "early", {"spec": {"additionalPodMetadata": {"labels": {f"{ALLOWED}/a": "1"}}}})
    lost = ns.wait_conditions("SandboxClaim", "early", Ready="False TemplateNotFound")
    return {"pool": pool, "template": template, "bound": bound, "lost": lost}


METADATA = {
    "key": {"labels": {"a b": "c"}},
    "router": {"labels": {"App": "Sandbox-Router"}},
    "prefix": {"labels": {"team": "blue"}},
    "domain": {"labels": {"example.com/team": "blue"}},
    "value": {"labels": {f"{ALLOWED}/a": "x y"}},
    "annotation": {"annotations": {"a.k8s.io/b": "x"}},
}


@scenario
def bad_metadata(world: World) -> Seen:
    """Claims with metadata that is not allowed, on a pool that does not exist."""
    ns = world.running
    for name, asked in METADATA.items():
        create_claim(ns, f"bad-{name}", "no-such-pool", additionalPodMetadata=asked)
    return {
        name: ns.wait_conditions("SandboxClaim", f"bad-{name}", Ready="False InvalidMetadata")
        for name in METADATA
    }


@scenario
def good_metadata(world: World) -> Seen:
    ns = world.running
    create_ready_pool(ns, "good", 0)
    labels = {f"a.{ALLOWED}/team": "blue"}
    annotations = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "plain": "1"}
    create_claim(ns, "good", "good", additionalPodMetadata={"labels": labels, "annotations": annotations})
    ns.wait_conditions("SandboxClaim", "good", Ready=READY)
    return {"pod": ns.get("Pod", "good")}


@scenario
def refused_claims(world: World) -> Seen:
    """Claims that their template does not allow."""
    ns = world.running
    variables = [{"name": "A", "value": "1"}]
    env_from = {"name": "main", "image": "x", "envFrom": [{"configMapRef": {"name": "c"}}]}
    with_env = {"name": "main", "image": "x", "env": variables}
    labelled = {"metadata": {"labels": {f"{ALLOWED}/tier": "theirs"}}, "spec": default_pod_spec()}
    create_ready_pool(ns, "strict", 0, podTemplate=labelled, volumeClaimTemplates=[VOLUME])
    create_ready_pool(
        ns, "from", 0, podTemplate={"spec": {"containers": [env_from]}}, envVarsInjectionPolicy="Allowed"
    )
    create_ready_pool(
        ns, "env", 0, podTemplate={"spec": {"containers": [with_env]}}, envVarsInjectionPolicy="Allowed"
    )
    create_ready_pool(ns, "volumes", 0, volumeClaimTemplates=[VOLUME], volumeClaimTemplatesPolicy="Allowed")
    create_ready_pool(ns, "doubled", 0, volumeClaimTemplates=[VOLUME, VOLUME])
    nameless, other = {"spec": VOLUME["spec"]}, {"metadata": {"name": "o"}, "spec": VOLUME["spec"]}
    for name, pool, spec in (
        ("r-env", "strict", {"env": variables}),
        ("r-env-from", "from", {"env": variables}),
        ("r-override", "env", {"env": variables}),
        ("r-container", "env", {"env": [{"name": "B", "value": "1", "containerName": "none"}]}),
        ("r-volumes", "strict", {"volumeClaimTemplates": [other]}),
        ("r-same-volume", "volumes", {"volumeClaimTemplates": [VOLUME]}),
        ("r-nameless", "strict", {"volumeClaimTemplates": [other, nameless]}),
        ("r-twice", "strict", {"volumeClaimTemplates": [other, other]}),
        ("r-template", "doubled", {}),
        ("r-conflict", "strict", {"additionalPodMetadata": {"labels": {f"{ALLOWED}/tier": "mine"}}}),
        ("r-order", "strict", {"volumeClaimTemplates": [other], "env": variables}),
    ):
        create_claim(ns, name, pool, **spec)
    reasons = {
        "r-env": "EnvVarsInjectionRejected",
        "r-env-from": "EnvVarsInjectionRejected",
        "r-override": "ReconcilerError",
        "r-container": "ReconcilerError",
        "r-conflict": "ReconcilerError",
    }
    names = (
        "r-env",
        "r-env-from",
        "r-override",
        "r-container",
        "r-volumes",
        "r-same-volume",
        "r-nameless",
        "r-twice",
        "r-template",
        "r-conflict",
        "r-order",
    )
    return {name: wait_reason(ns, name, reasons.get(name, "VolumeClaimTemplatesError")) for name in names}


@scenario
def taken_name(world: World) -> Seen:
    """A sandbox of others has the claim's name; the pool has a sandbox that could be adopted."""
    ns = world.running
    create_ready_pool(ns, "named", 1)
    ns.create_sandbox("taken-name")
    create_claim(ns, "taken-name", "named")
    refused = ns.wait_conditions("SandboxClaim", "taken-name", Ready="False ReconcilerError")
    ns.delete("Sandbox", "taken-name")
    bound = ns.wait_conditions("SandboxClaim", "taken-name", Ready=READY)
    return {"refused": refused, "bound": bound}


@scenario
def replaced_sandbox(world: World) -> Seen:
    """The sandbox of a finished claim is deleted: the claim gets another."""
    ns = world.running
    create_ready_pool(ns, "replaced", 0)
    create_claim(ns, "replaced", "replaced")
    ns.wait_conditions("SandboxClaim", "replaced", Ready=READY)
    ns.patch("Pod", "replaced", {"status": terminated_pod_status("Succeeded", 0)}, subresource="status")
    finished = ns.wait_conditions(
        "SandboxClaim", "replaced", Ready="False PodSucceeded", Finished="True PodSucceeded"
    )
    box = ns.get("Sandbox", "replaced")
    ns.delete("Sandbox", "replaced")
    again = ns.wait_conditions("SandboxClaim", "replaced", Ready=READY)
    ns.patch("Sandbox", "replaced", {"spec": {"shutdownTime": seconds_from_now(-1)}})
    expired = ns.wait_conditions("SandboxClaim", "replaced", Ready="False SandboxExpired")
    return {"finished": finished, "sandbox": box, "again": again, "sandbox-expired": expired}


@scenario
def expired_claims(world: World) -> Seen:
    ns = world.running
    create_ready_pool(ns, "ends", 0)
    for name, policy in (
        ("ends-retain", "Retain"),
        ("ends-delete", "Delete"),
        ("ends-foreground", "DeleteForeground"),
    ):
        create_claim(ns, name, "ends", lifecycle={"shutdownPolicy": policy})
        ns.wait_conditions("SandboxClaim", name, Ready=READY)
        ns.patch("SandboxClaim", name, {"spec": {"lifecycle": {"shutdownTime": seconds_from_now(-1)}}})
    retained = ns.wait(
        "SandboxClaim", "ends-retain", lambda found: "sandbox" not in (found.get("status") or {"sandbox": 1})
    )
    for name in ("ends-delete", "ends-foreground"):
        ns.wait_gone("SandboxClaim", name)
        ns.wait_gone("Sandbox", name)
    events = wait_events(ns, "ends-delete", "Claim Expired", "Deleting")
    return {
        "events": events,
        "retained": retained,
        "sandbox": ns.get("Sandbox", "ends-retain"),
        "deleted": ns.get("SandboxClaim", "ends-delete"),
    }


@scenario
def begun_adoption(world: World) -> Seen:
    """A controller stopped after it had named the sandbox on the claim; another name is gone."""
    ns = world.running
    create_ready_pool(ns, "begun", 2)
    name = max(box["metadata"]["name"] for box in members(ns, "begun"))
    create_claim(ns, "begun", "begun", {"annotations": {"agents.x-k8s.io/sandbox-name": name}})
    bound = ns.wait_conditions("SandboxClaim", "begun", Ready=READY)
    create_claim(ns, "forgets", "begun", {"labels": {"agents.x-k8s.io/sandbox-name": "gone"}})
    forgets = ns.wait_conditions("SandboxClaim", "forgets", Ready=READY)
    ns.wait("SandboxClaim", "forgets", lambda found: found["metadata"]["annotations"].get(FIRST_READY))
    return {"bound": bound, "name": name, "forgets": ns.get("SandboxClaim", "forgets"), "ready": forgets}


@scenario
def balanced_choice(world: World) -> Seen:
    """One ready sandbox waits on a node, two on another."""
    ns = world.plain
    create_template(ns, "nodes")
    create_pool(ns, "nodes", 3)
    ns.wait("SandboxWarmPool", "nodes", lambda found: status_of(found).get("replicas") == 3)
    nodes = {}
    for number, name in enumerate(sorted(box["metadata"]["name"] for box in members(ns, "nodes"))):
        nodes[name] = "one" if number == 0 else "two"
        ns.wait("Pod", name, bool)
        world.bind(ns, name, nodes[name])
        ns.mark_pod_running(name)
        ns.wait("Sandbox", name, lambda found: "nodeName" in status_of(found))
        ns.wait_conditions("Sandbox", name, Ready=READY)
    create_claim(ns, "nodes", "nodes")
    bound = ns.wait_conditions("SandboxClaim", "nodes", Ready=READY)
    return {"node": nodes.get(bound["status"]["sandbox"]["name"])}


@scenario
def unready_members(world: World) -> Seen:
    """The only member has no podIPs: the claim waits up to 2 s, then gets its own sandbox."""
    ns = world.plain
    create_template(ns, "unready")
    create_pool(ns, "unready", 1)
    ns.wait("SandboxWarmPool", "unready", lambda found: status_of(found).get("replicas") == 1)
    made = create_claim(ns, "unready", "unready")
    ns.wait("Sandbox", "unready", bool)
    box = ns.get("Sandbox", "unready")
    return {"claim": made, "sandbox": box}


def ready_texts(ns, name, change):
    """Each Ready condition that a SandboxClaim has, from before a change until it is True after it."""
    texts, began = [], threading.Event()

    def until(found):
        texts.append(said("claim", "Ready")({"claim": found}))
        began.set()
        return texts[-1].startswith("True ") and not all(text.startswith("True ") for text in texts)

    with ThreadPoolExecutor(1) as beside:
        waited = beside.submit(ns.wait, "SandboxClaim", name, until)
        assert began.wait(20)
        change()
        waited.result()
    return set(texts)


@scenario
def passing_reasons(world: World) -> Seen:
    """The sandbox of a SandboxClaim is deleted, and another one created."""
    ns = world.running
    create_ready_pool(ns, "passing", 0)
    create_claim(ns, "passing", "passing")
    ns.wait_conditions("SandboxClaim", "passing", Ready=READY)
    return {"texts": ready_texts(ns, "passing", lambda: ns.delete("Sandbox", "passing"))}


@scenario
def finished_claims(world: World) -> Seen:
    """SandboxClaims end some time after their sandboxes have finished."""
    ns = world.running
    create_ready_pool(ns, "ttl", 0)
    for name, policy in (("ttl-retain", "Retain"), ("ttl-delete", "Delete")):
        lifecycle = {"ttlSecondsAfterFinished": 1, "shutdownPolicy": policy}
        create_claim(ns, name, "ttl", lifecycle=lifecycle)
        ns.wait_conditions("SandboxClaim", name, Ready=READY)
        ns.patch("Pod", name, {"status": terminated_pod_status("Succeeded", 0)}, subresource="status")
    retained = ns.wait_conditions("SandboxClaim", "ttl-retain", Ready="False ClaimExpired")
    ns.wait_gone("Sandbox", "ttl-retain")
    ns.wait_gone("SandboxClaim", "ttl-delete")
    return {"retained": retained, "deleted": ns.get("SandboxClaim", "ttl-delete")}


@scenario
def foreign_expiry(world: World) -> Seen:
    """An expired SandboxClaim names a sandbox of another owner."""
    ns = world.running
    ns.create_sandbox("not-mine")
    create_claim(ns, "not-owner", "no-such-pool", lifecycle={"shutdownTime": seconds_from_now(-1)})
    ns.wait_conditions("SandboxClaim", "not-owner", Ready="False ClaimExpired")
    ns.patch("SandboxClaim", "not-owner", {"status": {"sandbox": {"name": "not-mine"}}}, subresource="status")
    claim = wait_reason(ns, "not-owner", "ClaimExpired", "not owned")
    box = ns.get("Sandbox", "not-mine")
    return {"claim": claim, "sandbox": box}


@scenario
def missed_annotation(world: World) -> Seen:
    """A controller stopped between the status and the time of the first readiness."""
    ns = world.running
    create_ready_pool(ns, "missed", 0)
    create_claim(ns, "missed", "missed")
    ns.wait("SandboxClaim", "missed", lambda found: annotation_of(found, FIRST_READY))
    ns.patch("SandboxClaim", "missed", {"metadata": {"annotations": {FIRST_READY: None}}})
    return {"claim": ns.wait("SandboxClaim", "missed", lambda found: annotation_of(found, FIRST_READY))}


def annotation_of(found, key):
    return (found["metadata"].get("annotations") or {}).get(key)


@scenario
def foreground_expiry(world: World) -> Seen:
    """A SandboxClaim with DeleteForeground expires while its pod takes time to end."""
    ns = world.plain
    pod = {**default_pod_spec(), "terminationGracePeriodSeconds": 30, "nodeName": "far"}
    create_ready_pool(ns, "foreground", 0, podTemplate={"spec": pod})
    create_claim(ns, "foreground", "foreground", lifecycle={"shutdownPolicy": "DeleteForeground"})
    ns.wait("Pod", "foreground", bool)
    ns.mark_pod_running("foreground")
    ns.wait_conditions("SandboxClaim", "foreground", Ready=READY)
    ns.patch("SandboxClaim", "foreground", {"spec": {"lifecycle": {"shutdownTime": seconds_from_now(-1)}}})
    ns.wait("Pod", "foreground", lambda pod: pod["metadata"].get("deletionTimestamp"))
    during = [ns.get(kind, "foreground") is not None for kind in ("SandboxClaim", "Sandbox")]
    ns.delete("Pod", "foreground", grace_seconds=0)
    ns.wait_gone("SandboxClaim", "foreground")
    return {"during": during}
