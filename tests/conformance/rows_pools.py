"""Rows of the contract about warm pools, and about events, metrics and the Lease."""

from __future__ import annotations

from tests.conformance.table import Row, annotation, label, owner, said, value

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
METRIC_NAMES = (
    "agent_sandbox_claim_startup_latency_ms", "agent_sandbox_claim_controller_startup_latency_ms",
    "agent_sandbox_client_claim_startup_latency_ms", "agent_sandbox_creation_latency_ms",
    "agent_sandbox_claim_creation_total", "agent_sandboxes", "agent_sandbox_build_info",
)  # fmt: skip


def is_hash(what, *path):
    def observe(seen):
        found = value(what, *path)(seen) or ""
        return len(found) == 8 and set(found) <= set("0123456789abcdef")

    return observe


def template(*path):
    return ("spec", "podTemplate", "metadata", *path)


def has_metric(name):
    """Whether a metric has a sample."""
    sample = f"{name}_count{{" if name.endswith("_ms") else f"{name}{{"
    return lambda seen: f"\n{sample}" in seen["metrics"]


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
    Row(
        EVENTS,
        "SandboxAdopted",
        "events",
        lambda seen: (
            (
                "SandboxClaim",
                "Normal",
                "SandboxAdopted",
                "Adoption",
                f'Adopted warm pool Sandbox "{seen["name"]}"',
            )
            in seen["warm"]
        ),
        True,
    ),
    Row(
        EVENTS,
        "SandboxProvisioned",
        "events",
        lambda seen: (
            ("SandboxClaim", "Normal", "SandboxProvisioned", "Provisioning", 'Created Sandbox "events-cold"')
            in seen["cold"]
        ),
        True,
    ),
    Row(
        EVENTS,
        "ClaimExpired, Claim Expired",
        "expired-claims",
        lambda seen: (
            ("SandboxClaim", "Normal", "ClaimExpired", "Claim Expired", "Claim expired") in seen["events"]
        ),
        True,
    ),
    Row(
        EVENTS,
        "ClaimExpired, Deleting",
        "expired-claims",
        lambda seen: (
            ("SandboxClaim", "Normal", "ClaimExpired", "Deleting", "Deleting Claim (ShutdownPolicy=Delete)")
            in seen["events"]
        ),
        True,
    ),
    Row(
        EVENTS,
        "MultiplePods",
        "several-pods",
        lambda seen: (
            (
                "Sandbox",
                "Warning",
                "MultiplePods",
                "Reconciling",
                said("several", "Ready")(seen).partition(": ")[2],
            )
            in seen["events"]
        ),
        True,
    ),
    *(Row(METRICS, name, "exported", has_metric(name), True) for name in METRIC_NAMES),
    Row("12 Lease", "published name", "exported", lambda seen: seen["lease"], True),
]
