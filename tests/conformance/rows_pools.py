"""Rows of the contract about warm pools, and about events, metrics and the Lease."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from tests.conformance.table import Row, annotation, label, owner, said, value
from tests.conformance.world import REPORTERS

from holdfast.sandbox import name_hash

WARM = "agents.x-k8s.io/warm-pool-sandbox"
REF_HASH = "agents.x-k8s.io/sandbox-template-ref-hash"
HASHES = ("agents.x-k8s.io/sandbox-template-hash", "agents.x-k8s.io/sandbox-pod-template-hash")
EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
MEMBER = "7 member"
REPLACE = "7 replacement"
STATUS = "7 status"
EVENTS = "9 events"
METRICS = "10 metrics"
CLAIM_BUCKETS = (
    100, 250, 500, 750, 1000, 1250, 1500, 2000, 2500, 5000, 10000, 30000, 60000, 120000, 240000,
)  # fmt: skip
SANDBOX_BUCKETS = (
    50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 240000, 300000, 600000,
)  # fmt: skip
CLAIM_LABELS = {"launch_type", "sandbox_template"}
HISTOGRAMS = {
    "agent_sandbox_claim_startup_latency_ms": (CLAIM_LABELS, CLAIM_BUCKETS),
    "agent_sandbox_claim_controller_startup_latency_ms": (CLAIM_LABELS, CLAIM_BUCKETS),
    "agent_sandbox_client_claim_startup_latency_ms": (CLAIM_LABELS, CLAIM_BUCKETS),
    "agent_sandbox_creation_latency_ms": ({"namespace", *CLAIM_LABELS}, SANDBOX_BUCKETS),
}
OTHER_METRICS = {
    "agent_sandbox_claim_creation_total": (
        "counter",
        {"namespace", "sandbox_template", "launch_type", "warmpool_name", "pod_condition", "created_by"},
    ),
    "agent_sandboxes": (
        "gauge",
        {
            "namespace", "ready_condition", "expired", "launch_type", "sandbox_template", "owned_by",
            "created_by",
        },
    ),
    "agent_sandbox_build_info": (
        "gauge",
        {"git_version", "git_commit", "build_date", "go_version", "compiler", "platform"},
    ),
}  # fmt: skip


def is_hash(what, *path):
    def observe(seen):
        found = value(what, *path)(seen) or ""
        return len(found) == 8 and set(found) <= set("0123456789abcdef")

    return observe


def template(*path):
    return ("spec", "podTemplate", "metadata", *path)


def adopted_note(seen):
    return f'Adopted warm pool Sandbox "{seen["name"]}"'


def several_pods_note(seen):
    return said("several", "Ready")(seen).partition(": ")[2]


def has_event(events, kind, note, event_type, reason, action):
    """Whether an event was written with these fields, and by the controller of its kind."""

    def observe(seen):
        text = note(seen) if callable(note) else note
        return (REPORTERS[kind], kind, event_type, reason, action, text) in seen[events]

    return observe


EVENT_ROWS = [
    ("SandboxAdopted", "events", "warm", "SandboxClaim", adopted_note, "Normal", "SandboxAdopted",
     "Adoption"),
    ("SandboxProvisioned", "events", "cold", "SandboxClaim", 'Created Sandbox "events-cold"', "Normal",
     "SandboxProvisioned", "Provisioning"),
    ("ClaimExpired, Claim Expired", "expired-claims", "events", "SandboxClaim", "Claim expired", "Normal",
     "ClaimExpired", "Claim Expired"),
    ("ClaimExpired, Deleting", "expired-claims", "events", "SandboxClaim",
     "Deleting Claim (ShutdownPolicy=Delete)", "Normal", "ClaimExpired", "Deleting"),
    ("MultiplePods", "several-pods", "events", "Sandbox", several_pods_note, "Warning", "MultiplePods",
     "Reconciling"),
]  # fmt: skip


def samples(seen, name):
    """Type, name, labels and value of each sample of a metric."""
    for family in text_string_to_metric_families(seen["metrics"]):
        for one in family.samples:
            if one.name == name:
                yield family.type, dict(one.labels), one.value


def shape(name):
    """Type and names of the labels of a metric, which are those of all its samples."""

    def observe(seen):
        (found,) = {(kind, frozenset(labels) - {"le"}) for kind, labels, _ in samples(seen, name)}
        return found

    return observe


def buckets(name):
    def observe(seen):
        found = {float(labels["le"]) for _, labels, _ in samples(seen, f"{name}_bucket")}
        return tuple(sorted(found - {float("inf")}))

    return observe


def has_value(name, **expected):
    """Whether a metric has counted something with exactly these labels, of the scenario's namespace."""

    def observe(seen):
        wanted = {
            key: seen["namespace"] if value == "<namespace>" else value for key, value in expected.items()
        }
        return any(labels == wanted and value >= 1 for _, labels, value in samples(seen, name))

    return observe


WARM_LABELS = {"launch_type": "warm", "sandbox_template": "exported"}
METRIC_VALUES = [
    *((name, f"{name}_count", WARM_LABELS) for name in HISTOGRAMS if "claim" in name),
    (
        "agent_sandbox_creation_latency_ms",
        "agent_sandbox_creation_latency_ms_count",
        {"namespace": "<namespace>", **WARM_LABELS},
    ),
    (
        "agent_sandbox_claim_creation_total",
        "agent_sandbox_claim_creation_total",
        {
            "namespace": "<namespace>", **WARM_LABELS, "warmpool_name": "exported", "pod_condition": "ready",
            "created_by": "python-client",
        },
    ),
    (
        "agent_sandboxes of a claim",
        "agent_sandboxes",
        {
            "namespace": "<namespace>", "ready_condition": "true", "expired": "false", **WARM_LABELS,
            "owned_by": "SandboxClaim", "created_by": "python-client",
        },
    ),
    (
        "agent_sandboxes of nobody",
        "agent_sandboxes",
        {
            "namespace": "<namespace>", "ready_condition": "false", "expired": "true",
            "launch_type": "unknown", "sandbox_template": "unknown", "owned_by": "None",
            "created_by": "unknown",
        },
    ),
]  # fmt: skip


POOL_ROWS = [
    Row(MEMBER, "owner", "pool-member", owner("sandbox"), ("SandboxWarmPool", "member", True, True)),
    Row(
        MEMBER,
        "generated name",
        "pool-member",
        lambda seen: seen["sandbox"]["metadata"]["name"][:7],
        "member-",
    ),
    Row(MEMBER, "pool label", "pool-member", label("sandbox", WARM), name_hash("member")),
    Row(
        MEMBER,
        "pool label of the podTemplate",
        "pool-member",
        value("sandbox", *template("labels", WARM)),
        name_hash("member"),
    ),
    Row(MEMBER, "pool label of the pod", "pool-member", label("pod", WARM), name_hash("member")),
    Row(MEMBER, "template label", "pool-member", label("sandbox", REF_HASH), name_hash("member")),
    Row(
        MEMBER,
        "template label of the podTemplate",
        "pool-member",
        value("sandbox", *template("labels", REF_HASH)),
        name_hash("member"),
    ),
    Row(MEMBER, "template label of the pod", "pool-member", label("pod", REF_HASH), name_hash("member")),
    Row(
        MEMBER,
        "template annotation",
        "pool-member",
        annotation("sandbox", "agents.x-k8s.io/sandbox-template-ref"),
        "member",
    ),
    Row(MEMBER, "launch-type", "pool-member", label("sandbox", "agents.x-k8s.io/launch-type"), "warm"),
    Row(MEMBER, "created-by", "pool-member", label("sandbox", "agents.x-k8s.io/created-by"), "controller"),
    Row(
        MEMBER,
        "created-by of the pod",
        "pool-member",
        label("pod", "agents.x-k8s.io/created-by"),
        "controller",
    ),
    *(
        Row(
            MEMBER,
            f"{key.rpartition('/')[2]} of the {place}",
            "pool-member",
            is_hash("sandbox", *path, key),
            True,
        )
        for key in HASHES
        for place, path in (("sandbox", ("metadata", "labels")), ("podTemplate", template("labels")))
    ),
    Row(MEMBER, "safe-to-evict", "pool-member", value("sandbox", *template("annotations", EVICT)), "true"),
    Row(MEMBER, "safe-to-evict of the pod", "pool-member", annotation("pod", EVICT), "true"),
    Row(
        MEMBER,
        "volume claim templates",
        "pool-member",
        lambda seen: len(seen["sandbox"]["spec"]["volumeClaimTemplates"]),
        1,
    ),
    Row(MEMBER, "service", "pool-member", value("sandbox", "spec", "service"), True),
    Row(
        MEMBER,
        "service account token",
        "pool-member",
        value("pod", "spec", "automountServiceAccountToken"),
        False,
    ),
    Row(
        MEMBER,
        "default DNS",
        "pool-member",
        value("pod", "spec", "dnsConfig", "nameservers"),
        ["8.8.8.8", "1.1.1.1"],
    ),
    Row(
        MEMBER,
        "without controller: adopted",
        "orphans",
        owner("adopted"),
        ("SandboxWarmPool", "orphans", True, True),
    ),
    Row(MEMBER, "without controller and stale: deleted", "orphans", lambda seen: True, True),
    Row(
        REPLACE,
        "Recreate replaces members of another template",
        "replaced-template",
        label("new", REF_HASH),
        name_hash("other"),
    ),
    Row(
        REPLACE,
        "OnReplenish keeps members of another template",
        "replaced-template",
        lambda seen: seen["replenish"],
        True,
    ),
    Row(
        REPLACE,
        "OnReplenish: a stale member may be claimed",
        "stale-member",
        lambda seen: seen["sandbox"]["metadata"]["uid"] == seen["member"]["metadata"]["uid"],
        True,
    ),
    Row(
        REPLACE,
        "surplus takes members that are not ready first",
        "unready-surplus",
        lambda seen: seen["kept"] == seen["ready"],
        True,
    ),
    Row(REPLACE, "labels never count", "metadata-edit", lambda seen: seen["kept"], True),
    Row(REPLACE, "surplus takes the newest", "scaled-down", lambda seen: seen["kept"], True),
    Row(
        REPLACE,
        "members being deleted count",
        "terminating-member",
        lambda seen: seen["during"] == seen["old"],
        True,
    ),
    Row(
        REPLACE,
        "nothing is made without a template",
        "pool-without-template",
        lambda seen: (seen["members"], seen["lost"]),
        ([], []),
    ),
    Row(
        REPLACE,
        "claimed sandboxes survive the pool",
        "deleted-pool",
        owner("sandbox"),
        ("SandboxClaim", "survivor", True, True),
    ),
    Row(
        STATUS,
        "selector",
        "pool-member",
        value("pool", "status", "selector"),
        f"{WARM}={name_hash('member')}",
    ),
    Row(STATUS, "replicas", "pool-member", value("pool", "status", "replicas"), 1),
    Row(STATUS, "readyReplicas", "pool-member", value("pool", "status", "readyReplicas"), 1),
    Row(
        STATUS,
        "observedGeneration",
        "pool-member",
        lambda seen: seen["pool"]["status"]["observedGeneration"] == seen["pool"]["metadata"]["generation"],
        True,
    ),
    Row(STATUS, "no conditions", "pool-member", value("pool", "status", "conditions"), None),
    Row(
        STATUS,
        "members being deleted are not counted",
        "terminating-member",
        lambda seen: seen["pool"]["status"].get("replicas") or 0,
        0,
    ),
    Row(
        STATUS,
        "a count of zero is left out",
        "pool-without-template",
        value("pool", "status", "replicas"),
        None,
    ),
    *(
        Row(EVENTS, subject, scenario, has_event(events, kind, *fields), True)
        for subject, scenario, events, kind, *fields in EVENT_ROWS
    ),
    *(
        Row(METRICS, f"type and labels of {name}", "exported", shape(f"{name}_count"), ("histogram", labels))
        for name, (labels, _) in HISTOGRAMS.items()
    ),
    *(
        Row(METRICS, f"buckets of {name}", "exported", buckets(name), expected)
        for name, (_, expected) in HISTOGRAMS.items()
    ),
    *(
        Row(METRICS, f"type and labels of {name}", "exported", shape(name), expected)
        for name, expected in OTHER_METRICS.items()
    ),
    *(
        Row(METRICS, f"values of {subject}", "exported", has_value(name, **labels), True)
        for subject, name, labels in METRIC_VALUES
    ),
    Row(
        METRICS,
        "value of agent_sandbox_build_info",
        "exported",
        lambda seen: [value for _, _, value in samples(seen, "agent_sandbox_build_info")],
        [1],
    ),
    Row("12 Lease", "published name", "exported", lambda seen: seen["lease"], True),
]
