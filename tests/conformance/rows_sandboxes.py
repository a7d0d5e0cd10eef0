# ruff: noqa: E501 (texts of the contract stay in one piece)
"""Rows of the contract about sandboxes and templates."""

from __future__ import annotations

from tests.conformance.table import Row, annotation, label, owner, said, value
from tests.support.admission_policies import REFUSALS

from holdfast.sandbox import name_hash

HASH = "agents.x-k8s.io/sandbox-name-hash"
REF_HASH = "agents.x-k8s.io/sandbox-template-ref-hash"


def conditions_of(what):
    return lambda seen: {row["type"] for row in seen[what]["status"]["conditions"]}


def status_fields(what):
    return lambda seen: set(seen[what]["status"])


def field_manager(what):
    def observe(seen):
        return {
            row["manager"] for row in seen[what]["metadata"]["managedFields"] if row["operation"] == "Update"
        }

    return observe


def ports(seen):
    return [
        (port["name"], port["port"], port["protocol"], port["targetPort"])
        for port in seen["service"]["spec"]["ports"]
    ]


def foreign_error(word, name, sandbox):
    """What the error says about an object of another owner, compared with the owner's real UID."""

    def observe(seen):
        text = said(sandbox, "Ready")(seen)
        return text.replace(seen["uid"], "<uid>") if text else text

    return observe, f"{ERROR}{owned_error(word, name, sandbox)}"


def unowned_error(word, name):
    return (
        f'False ReconcilerError: Error seen: cannot adopt unowned {word} "{name}": missing required pool '
        'authorization label ("agents.x-k8s.io/adoptable") or sandbox tracking label '
        '("agents.x-k8s.io/sandbox-name-hash")'
    )


def uid_hidden(what):
    """The Ready condition, without the random UID of the other owner."""
    return lambda seen: said(what, "Ready")(seen).replace(seen["uid"], "<uid>")


def owned_error(word, name, sandbox):
    return f'{word} "{name}" is owned by ConfigMap/conformance-owner (UID: <uid>), not by sandbox "{sandbox}"'


def address_error(seen):
    text = said("address", "Ready")(seen)
    return text.replace(seen["address-ip"], "<ip>")


ERROR = "False ReconcilerError: Error seen: "
REFUSAL = f"ValidatingAdmissionPolicy '{REFUSALS}' with binding '{REFUSALS}' denied request: refused"
REFUSED_WRITES = {
    "no-delete-pod": 'failed to delete pod: pods "no-delete-pod"',
    "no-patch-pod": 'failed to patch pod: pods "no-patch-pod"',
    "no-adopt-pod": 'failed to patch pod: pods "no-adopt-pod"',
    "no-delete-service": 'failed to delete service: services "no-delete-service"',
    "no-patch-service": 'failed to patch owned service: services "no-patch-service"',
    "no-adopt-service": 'failed to update service with owner reference: services "no-adopt-service"',
    "no-adopt-pvc": 'failed to patch PVC with owner reference: persistentvolumeclaims "data-no-adopt-pvc"',
}
READY = "3 Ready"
SUSPENDED = "3 Suspended"
SCHEDULED = "3 PodScheduled"
FINISHED = "3 Finished"
FIELDS = "3 fields"
ERRORS = "3 errors"
PVC = "4 PVC"
POD = "4 pod"
SERVICE = "4 Service"
LIFE = "5 life cycle"
TEMPLATE = "6 template"
EVERYWHERE = "DependenciesNotReady"

SANDBOX_ROWS = [
    Row(READY, "expired", "expired", said("past", "Ready"), "False SandboxExpired: Sandbox has expired"),
    Row(
        READY,
        "several pods",
        "several-pods",
        said("several", "Ready"),
        "False MultiplePods: multiple Pods (2) are controlled by this Sandbox; refusing to choose or create a Pod",
    ),
    Row(
        READY,
        "suspending",
        "suspended",
        said("suspending", "Ready"),
        "False SandboxSuspended: Sandbox is suspending",
    ),
    Row(
        READY,
        "suspended",
        "suspended",
        said("suspended", "Ready"),
        "False SandboxSuspended: Sandbox is suspended",
    ),
    Row(
        READY,
        "pod succeeded",
        "ended",
        said("succeeded", "Ready"),
        "False PodSucceeded: Pod completed successfully",
    ),
    Row(READY, "pod failed", "ended", said("failed", "Ready"), "False PodFailed: Pod failed"),
    Row(
        READY,
        "ready with Service",
        "whole",
        said("ready", "Ready"),
        "True DependenciesReady: Pod is Ready; Service Exists",
    ),
    Row(
        READY,
        "ready without Service",
        "named-pod",
        said("ready", "Ready"),
        "True DependenciesReady: Pod is Ready",
    ),
    Row(
        READY,
        "pod pending",
        "whole",
        said("pending", "Ready"),
        "False DependenciesNotReady: Pod exists with phase: Pending; Service Exists",
    ),
    Row(
        READY,
        "pod running",
        "whole",
        said("not-ready", "Ready"),
        "False DependenciesNotReady: Pod is Running but not Ready; Service Exists",
    ),
    Row(
        READY,
        "pod without podIPs",
        "whole",
        said("no-ips", "Ready"),
        "False DependenciesNotReady: Pod is Ready but has no podIPs yet; Service Exists",
    ),
    Row(
        READY, "no pod", "no-pod", said("sandbox", "Ready"), "False DependenciesNotReady: Pod does not exist"
    ),
    Row(
        READY,
        "several errors",
        "several-errors",
        uid_hidden("sandbox"),
        ERROR
        + "\n".join(
            owned_error(word, name, "errors")
            for word, name in (("PVC", "data-errors"), ("pod", "errors"), ("service", "errors"))
        ),
    ),
    Row(
        READY,
        "error while suspended",
        "several-errors",
        uid_hidden("suspended"),
        ERROR + owned_error("PVC", "data-stopped", "stopped"),
    ),
    Row(
        READY,
        "Service without owner is ignored if unset",
        "unrequested-services",
        said("free", "Ready"),
        "False DependenciesNotReady: Pod exists with phase: Pending",
    ),
    Row(
        READY,
        "invalid for good",
        "invalid-child",
        lambda seen: said("sandbox", "Ready")(seen)[:27],
        "False InvalidConfiguration:",
    ),
    Row(
        READY,
        "suspended with several pods",
        "several-pods",
        said("suspended", "Ready"),
        "False MultiplePods: multiple Pods (2) are controlled by this Sandbox; refusing to choose or create a Pod",
    ),
    Row(
        SUSPENDED,
        "not suspended",
        "whole",
        said("ready", "Suspended"),
        "False NotSuspended: Sandbox is not suspended",
    ),
    Row(
        SUSPENDED,
        "pod unknown",
        "several-pods",
        said("suspended", "Suspended"),
        "Unknown PodStateUnknown: Pod state is unknown. Sandbox suspension cannot be confirmed",
    ),
    Row(
        SUSPENDED,
        "no pod",
        "suspended",
        said("suspended", "Suspended"),
        "True PodTerminated: Pod has been terminated. Sandbox is suspended",
    ),
    Row(
        SUSPENDED,
        "pod of others",
        "foreign-children",
        said("not-owned", "Suspended"),
        "False PodNotOwned: Refused to delete pod because it is not owned by this sandbox",
    ),
    Row(
        SUSPENDED,
        "pod terminating",
        "suspended",
        said("suspending", "Suspended"),
        "False PodTerminating: Pod is terminating. Sandbox is suspending",
    ),
    Row(
        SUSPENDED,
        "Running with several pods",
        "several-pods",
        said("several", "Suspended"),
        "False NotSuspended: Sandbox is not suspended",
    ),
    Row(
        SCHEDULED,
        "no condition yet",
        "scheduling",
        said("unknown", "PodScheduled"),
        "Unknown PodSchedulingUnknown: Pod has not reported a PodScheduled condition yet",
    ),
    Row(SCHEDULED, "mirrored", "scheduling", said("refused", "PodScheduled"), "False Unschedulable: no node"),
    Row(SCHEDULED, "without reason", "scheduling", said("scheduled", "PodScheduled"), "True PodScheduled: "),
    Row(
        SCHEDULED, "while suspending", "suspended", said("suspending", "PodScheduled"), "True PodScheduled: "
    ),
    Row(
        SCHEDULED,
        "pod unknown",
        "several-pods",
        said("several", "PodScheduled"),
        "Unknown PodSchedulingUnknown: Pod state is unknown. Pod scheduling cannot be determined",
    ),
    Row(SCHEDULED, "no pod", "suspended", said("suspended", "PodScheduled"), None),
    Row(SCHEDULED, "expired", "expired", said("retained", "PodScheduled"), None),
    Row(SCHEDULED, "pod of others", "foreign-children", said("not-owned", "PodScheduled"), None),
    Row(
        FINISHED,
        "succeeded",
        "ended",
        said("succeeded", "Finished"),
        "True PodSucceeded: Pod completed successfully",
    ),
    Row(FINISHED, "failed", "ended", said("failed", "Finished"), "True PodFailed: Pod failed"),
    Row(
        FINISHED,
        "survives expiry",
        "ended",
        said("expired", "Finished"),
        "True PodSucceeded: Pod completed successfully",
    ),
    Row(FINISHED, "not while running", "whole", said("ready", "Finished"), None),
    Row(
        "3 status",
        "always there",
        "whole",
        lambda seen: {"Ready", "Suspended"} <= conditions_of("pending")(seen),
        True,
    ),
    Row(
        "3 status",
        "observedGeneration",
        "suspended",
        lambda seen: (
            {row["observedGeneration"] for row in seen["suspended"]["status"]["conditions"]}
            == {seen["suspended"]["metadata"]["generation"]}
        ),
        True,
    ),
    Row(
        "3 status",
        "transition time stays while the status is the same",
        "transitions",
        lambda seen: seen["times"][0] == seen["times"][1],
        True,
    ),
    Row(
        "3 status",
        "transition time changes with the status",
        "transitions",
        lambda seen: seen["times"][1] < seen["times"][2],
        True,
    ),
    Row(FIELDS, "selector", "whole", value("ready", "status", "selector"), f"{HASH}={name_hash('whole')}"),
    Row(
        FIELDS,
        "selector without a pod",
        "suspended",
        value("suspended", "status", "selector"),
        f"{HASH}={name_hash('suspended')}",
    ),
    Row(FIELDS, "selector after expiry", "expired", value("retained", "status", "selector"), None),
    Row(
        FIELDS, "podIPs while suspending", "suspended", value("suspending", "status", "podIPs"), ["10.9.0.1"]
    ),
    Row(FIELDS, "nodeName while suspending", "suspended", value("suspending", "status", "nodeName"), "far"),
    Row(FIELDS, "podIPs without a pod", "suspended", value("suspended", "status", "podIPs"), None),
    Row(FIELDS, "nodeName without a pod", "suspended", value("suspended", "status", "nodeName"), None),
    Row(FIELDS, "service", "whole", value("ready", "status", "service"), "whole"),
    Row(
        FIELDS,
        "serviceFQDN",
        "whole",
        lambda seen: seen["ready"]["status"]["serviceFQDN"].replace(
            seen["ready"]["metadata"]["namespace"], "ns"
        ),
        "whole.ns.svc.cluster.local",
    ),
    Row(
        FIELDS, "service under several pods", "several-pods", value("several", "status", "service"), "several"
    ),
    Row(FIELDS, "service removed", "followed", value("off", "status", "serviceFQDN"), None),
    Row(ERRORS, "pod of another owner", "foreign-children", *foreign_error("pod", "owned-pod", "owned-pod")),
    Row(
        ERRORS,
        "Service of another owner",
        "foreign-children",
        *foreign_error("service", "owned-service", "owned-service"),
    ),
    Row(
        ERRORS,
        "PVC of another owner",
        "foreign-children",
        *foreign_error("PVC", "data-owned-pvc", "owned-pvc"),
    ),
    Row(
        ERRORS,
        "pod without owner",
        "foreign-children",
        said("free-pod", "Ready"),
        unowned_error("pod", "free-pod"),
    ),
    Row(
        ERRORS,
        "Service without owner",
        "foreign-children",
        said("free-service", "Ready"),
        unowned_error("service", "free-service"),
    ),
    Row(
        ERRORS,
        "PVC without owner",
        "foreign-children",
        said("free-pvc", "Ready"),
        unowned_error("PVC", "data-free-pvc"),
    ),
    Row(
        ERRORS,
        "Service with an address",
        "foreign-children",
        address_error,
        'False ReconcilerError: Error seen: cannot adopt service "address": ClusterIP is "<ip>" (expected "None", field is immutable)',
    ),
    *(
        Row(ERRORS, name, "refused-writes", said(name, "Ready"), f"{ERROR}{text} is forbidden: {REFUSAL}")
        for name, text in REFUSED_WRITES.items()
    ),
    Row(PVC, "stops at the first bad one", "several-errors", lambda seen: seen["later-pvc"], None),
    Row(PVC, "name and hash label", "whole", label("pvc", HASH), name_hash("whole")),
    Row(PVC, "labels of the template", "whole", label("pvc", "a"), "b"),
    Row(PVC, "annotations of the template", "whole", annotation("pvc", "c"), "d"),
    Row(PVC, "owner", "whole", owner("pvc"), ("Sandbox", "whole", True, True)),
    Row(PVC, "taken over", "adopted-children", owner("pvc"), ("Sandbox", "adopts", True, True)),
    Row(PVC, "stays under suspension", "suspended", lambda seen: seen["pvc"] is not None, True),
    Row(PVC, "stays under Retain", "expired", lambda seen: seen["pvc"] is not None, True),
    Row(POD, "name and hash label", "whole", label("pod", HASH), name_hash("whole")),
    Row(POD, "owner", "whole", owner("pod"), ("Sandbox", "whole", True, True)),
    Row(POD, "labels of the template", "whole", label("pod", "team"), "blue"),
    Row(POD, "reserved labels stay away", "whole", label("pod", "agents.x-k8s.io/mine"), None),
    Row(
        POD,
        "reserved labels of extensions stay away",
        "whole",
        label("pod", "extensions.agents.x-k8s.io/x"),
        None,
    ),
    Row(POD, "trace context stays away", "whole", annotation("pod", "opentelemetry.io/trace-context"), None),
    Row(POD, "reserved annotations stay away", "whole", annotation("pod", "agents.x-k8s.io/y"), None),
    Row(POD, "propagated-labels", "whole", annotation("pod", "agents.x-k8s.io/propagated-labels"), "team"),
    Row(
        POD,
        "propagated-annotations",
        "whole",
        annotation("pod", "agents.x-k8s.io/propagated-annotations"),
        "note",
    ),
    Row(
        POD, "created-by of an unknown client", "whole", label("pod", "agents.x-k8s.io/created-by"), "unknown"
    ),
    Row(POD, "claim-uid only under a claim", "whole", label("pod", "agents.x-k8s.io/claim-uid"), None),
    Row(
        POD,
        "volumes",
        "whole",
        lambda seen: [(one["name"], sorted(one.keys() - {"name"})) for one in seen["pod"]["spec"]["volumes"]],
        [("other", ["emptyDir"]), ("data", ["persistentVolumeClaim"])],
    ),
    Row(POD, "field manager", "whole", lambda seen: "sandbox-controller" in field_manager("pod")(seen), True),
    Row(POD, "labels follow the template", "followed", label("pod", "team"), "red"),
    Row(POD, "removed labels are removed", "followed", label("pod", "old"), None),
    Row(
        POD,
        "is not replaced",
        "followed",
        lambda seen: seen["pod"]["metadata"]["uid"] == seen["before"]["metadata"]["uid"],
        True,
    ),
    Row(
        POD,
        "its spec is not changed",
        "followed",
        lambda seen: seen["pod"]["spec"]["containers"][0]["image"],
        "app:1",
    ),
    Row(
        POD, "pod-name is not written", "named-pod", annotation("suspended", "agents.x-k8s.io/pod-name"), None
    ),
    Row(
        POD,
        "stale pod-name is removed",
        "stale-pod-name",
        annotation("sandbox", "agents.x-k8s.io/pod-name"),
        None,
    ),
    Row(POD, "stale pod-name names no pod", "stale-pod-name", value("pod", "metadata", "name"), "stale-name"),
    Row(POD, "legacy pod-name is read", "named-pod", owner("pod"), ("Sandbox", "legacy", True, True)),
    Row(POD, "taken over", "adopted-children", owner("pod"), ("Sandbox", "adopts", True, True)),
    Row(
        POD,
        "hash label of one that is taken over",
        "adopted-children",
        label("pod", HASH),
        name_hash("adopts"),
    ),
    Row(POD, "deleted by others", "recreated-pod", owner("pod"), ("Sandbox", "again", True, True)),
    Row(POD, "failed is left alone", "ended", value("failed-pod", "status", "phase"), "Failed"),
    Row(
        POD,
        "reserved propagated label is scrubbed",
        "forged-keys",
        label("pod", "agents.x-k8s.io/forged"),
        None,
    ),
    Row(
        POD,
        "reserved propagated annotation is scrubbed",
        "forged-keys",
        annotation("pod", "agents.x-k8s.io/forged"),
        None,
    ),
    Row(
        SERVICE,
        "of another owner is an error if unset",
        "unrequested-services",
        uid_hidden("owned"),
        ERROR + owned_error("service", "unset-owned", "unset-owned"),
    ),
    Row(
        SERVICE,
        "without owner is ignored if unset",
        "unrequested-services",
        value("service", "metadata", "ownerReferences"),
        None,
    ),
    Row(SERVICE, "headless", "whole", value("service", "spec", "clusterIP"), "None"),
    Row(SERVICE, "selector", "whole", value("service", "spec", "selector"), {HASH: name_hash("whole")}),
    Row(
        SERVICE,
        "ports",
        "whole",
        ports,
        [
            ("p-70-tcp", 70, "TCP", 70),
            ("p-80-tcp", 80, "TCP", 80),
            ("p-80-udp", 80, "UDP", 80),
            ("web", 90, "TCP", 90),
            ("p-91-tcp", 91, "TCP", 91),
        ],
    ),
    Row(SERVICE, "owner", "whole", owner("service"), ("Sandbox", "whole", True, True)),
    Row(
        SERVICE,
        "field manager",
        "whole",
        lambda seen: "sandbox-controller" in field_manager("service")(seen),
        True,
    ),
    Row(
        "4 PVC",
        "field manager",
        "whole",
        lambda seen: "sandbox-controller" in field_manager("pvc")(seen),
        True,
    ),
    Row(
        SERVICE,
        "is repaired",
        "followed",
        value("service", "spec", "selector"),
        {HASH: name_hash("followed")},
    ),
    Row(SERVICE, "hash label is repaired", "followed", label("service", HASH), name_hash("followed")),
    Row(SERVICE, "unset keeps it", "followed", lambda seen: seen["kept"] is not None, True),
    Row(SERVICE, "taken over", "adopted-children", owner("service"), ("Sandbox", "adopts", True, True)),
    Row(
        SERVICE,
        "selector of one that is taken over",
        "adopted-children",
        value("service", "spec", "selector"),
        {HASH: name_hash("adopts")},
    ),
    Row(SERVICE, "stays under suspension", "suspended", lambda seen: seen["service"] is not None, True),
    Row(
        LIFE,
        "suspension deletes the pod with its grace period",
        "suspended",
        value("terminating", "metadata", "deletionGracePeriodSeconds"),
        30,
    ),
    Row(LIFE, "resume creates a pod", "suspended", owner("new-pod"), ("Sandbox", "suspended", True, True)),
    Row(LIFE, "past time never gets a pod", "expired", lambda seen: seen["past-pod"], None),
    Row(LIFE, "Retain keeps only conditions", "expired", status_fields("retained"), {"conditions"}),
    Row(
        LIFE,
        "Suspended stays as it was",
        "expired",
        said("retained", "Suspended"),
        "False NotSuspended: Sandbox is not suspended",
    ),
    Row(LIFE, "Delete deletes the Sandbox", "expired", lambda seen: seen["deleted"], None),
    Row(
        LIFE,
        "removed shutdownTime runs it again",
        "ended",
        owner("again"),
        ("Sandbox", "succeeds", True, True),
    ),
    Row(LIFE, "garbage collection takes the children", "recreated-pod", lambda seen: True, True),
    Row(TEMPLATE, "hash label", "templates", label("template", REF_HASH), name_hash("policy")),
    Row(
        TEMPLATE,
        "policy name and owner",
        "templates",
        owner("default"),
        ("SandboxTemplate", "policy", True, True),
    ),
    Row(
        TEMPLATE,
        "podSelector",
        "templates",
        value("default", "spec", "podSelector"),
        {"matchLabels": {REF_HASH: name_hash("policy")}},
    ),
    Row(TEMPLATE, "policyTypes", "templates", value("default", "spec", "policyTypes"), ["Ingress", "Egress"]),
    Row(
        TEMPLATE,
        "default ingress",
        "templates",
        value("default", "spec", "ingress"),
        [
            {
                "from": [
                    {
                        "podSelector": {"matchLabels": {"app": "sandbox-router"}},
                        "namespaceSelector": {
                            "matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"}
                        },
                    }
                ]
            }
        ],
    ),
    Row(
        TEMPLATE,
        "default egress",
        "templates",
        lambda seen: {
            peer["ipBlock"]["cidr"]: peer["ipBlock"]["except"]
            for rule in seen["default"]["spec"]["egress"]
            for peer in rule["to"]
        },
        {
            "0.0.0.0/0": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"],
            "::/0": ["fc00::/7", "fe80::/10"],
        },
    ),
    Row(
        TEMPLATE,
        "drift is repaired",
        "templates",
        lambda seen: seen["repaired"]["spec"] == seen["default"]["spec"],
        True,
    ),
    Row(
        TEMPLATE,
        "empty rules",
        "templates",
        lambda seen: [seen["closed"]["spec"].get(key) or [] for key in ("ingress", "egress")],
        [[], []],
    ),
    Row(TEMPLATE, "Unmanaged deletes the policy", "templates", lambda seen: seen["unmanaged"], None),
    *(
        Row(
            TEMPLATE,
            f"no DNS default: {name}",
            "own-rules",
            lambda seen, name=name: [seen[name]["spec"].get(key) for key in ("dnsPolicy", "dnsConfig")],
            ["ClusterFirst", None],
        )
        for name in ("own-rules", "no-policy")
    ),
    Row(TEMPLATE, "policy of others", "templates", value("taken", "spec", "podSelector"), {}),
]
