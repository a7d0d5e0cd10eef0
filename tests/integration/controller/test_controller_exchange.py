"""The controller takes over what the published controller left, and leaves what that one expects.

The objects are written by hand as a Go program writes them: with canonical quantities and `resources: {}`,
without empty values, with hashes of another algorithm, and without labels of holdfast.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from tests.support.controller_process import (
    EVENTUALLY,
    ControllerProcess,
    FakeKubelet,
    SandboxNamespace,
    is_pool_ready,
    running_pod_status,
)

from holdfast.sandbox import name_hash

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

GROUP = "agents.x-k8s.io"
HASH, REF_HASH = f"{GROUP}/sandbox-name-hash", f"{GROUP}/sandbox-template-ref-hash"
POOL, LAUNCH, CLAIM_UID = f"{GROUP}/warm-pool-sandbox", f"{GROUP}/launch-type", f"{GROUP}/claim-uid"
FIELDS_HASH, POD_HASH = f"{GROUP}/sandbox-template-hash", f"{GROUP}/sandbox-pod-template-hash"
CREATED_BY, TEMPLATE_REF = f"{GROUP}/created-by", f"{GROUP}/sandbox-template-ref"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
EXACT_TIME = "2026-01-01T12:00:00.123456789Z"
POOLS = {"go-a": (3, "Recreate"), "go-b": (3, "OnReplenish"), "go-c": (2, "Recreate")}
WARM_CLAIMS = [f"warm-{number}" for number in range(5)]
COLD_CLAIMS = [f"cold-{number}" for number in range(5)]
OWN_SANDBOXES = ["own-0", "own-1"]
KINDS = ("Sandbox", "Pod", "PersistentVolumeClaim", "Service", "SandboxClaim", "SandboxWarmPool")


def template_pod():
    """The pod of the template as a user writes it."""
    resources = {"limits": {"memory": "1024Mi", "cpu": "0.5"}}
    env = [{"name": "EMPTY", "value": ""}]
    main = {"name": "main", "image": "app:1", "env": env, "resources": resources, "stdin": False}
    return {"terminationGracePeriodSeconds": 0, "containers": [main, {"name": "side", "image": "app:1"}]}


def sandbox_pod():
    """The pod of a sandbox of the template as a Go program writes it."""
    resources = {"limits": {"memory": "1Gi", "cpu": "500m"}}
    main = {"name": "main", "image": "app:1", "env": [{"name": "EMPTY"}], "resources": resources}
    return {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["8.8.8.8", "1.1.1.1"]},
        "containers": [main, {"name": "side", "image": "app:1", "resources": {}}],
    }


def owned_by(owner):
    fields = {key: owner["metadata"][key] for key in ("name", "uid")}
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            **fields,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


class PublishedController:
    """Creates objects as the published controller leaves them."""

    def __init__(self, ns):
        self.ns = ns

    def core(self, kind, name, spec, owner, *, api_version="v1", labels=None, annotations=None):
        metadata = {"name": name, "namespace": self.ns.namespace, "ownerReferences": owned_by(owner)}
        metadata |= {"labels": labels or {}, "annotations": annotations or {}}
        body = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
        return self.ns.objects.create(body)

    def status(self, kind, name, status):
        self.ns.patch(kind, name, {"status": status}, subresource="status")

    def template(self, name):
        made = self.ns.create(
            "SandboxTemplate",
            name,
            {"podTemplate": {"spec": template_pod()}},
            labels={REF_HASH: name_hash(name)},
        )
        router = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"}}
        }
        router["podSelector"] = {"matchLabels": {"app": "sandbox-router"}}
        self.core(
            "NetworkPolicy",
            f"{name}-network-policy",
            {
                "podSelector": {"matchLabels": {REF_HASH: name_hash(name)}},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [router]}],
                "egress": [{"to": [
                    {"ipBlock": {"cidr": "0.0.0.0/0", "except": [
                        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"]}},
                    {"ipBlock": {"cidr": "::/0", "except": ["fc00::/7", "fe80::/10"]}},
                ]}],
            },
            made,
            api_version="networking.k8s.io/v1",
        )  # fmt: skip
        return made

    def pool(self, name, replicas, strategy, template):
        spec = {"replicas": replicas, "sandboxTemplateRef": {"name": template}}
        made = self.ns.create("SandboxWarmPool", name, {**spec, "updateStrategy": {"type": strategy}})
        labels = {
            POOL: name_hash(name),
            FIELDS_HASH: "0badc0de",
            POD_HASH: "0badcafe",
            CREATED_BY: "controller",
        }
        for number in range(replicas):
            # Older versions did not set the launch type.
            launch = {LAUNCH: "warm"} if number else {}
            self.sandbox(f"{name}-m{number}", made, template, labels, {SAFE: "true"}, own_labels=launch)
        selector = f"{POOL}={name_hash(name)}"
        counts = {"replicas": replicas, "readyReplicas": replicas}
        self.status("SandboxWarmPool", name, {**counts, "selector": selector, "observedGeneration": 1})
        return made

    def claim(self, name, pool, template, *, warm):
        times = {
            f"{GROUP}/controller-first-observed-at": EXACT_TIME,
            f"{GROUP}/claim-first-ready-at": EXACT_TIME,
        }
        sandbox = f"{pool}-x{name}" if warm else name
        made = self.ns.create(
            "SandboxClaim",
            name,
            {
                "warmPoolRef": {"name": pool},
                "additionalPodMetadata": {"labels": {"sandbox.users.io/n": name}},
            },
            labels={CREATED_BY: "python-client"},
            annotations={**times, **({f"{GROUP}/sandbox-name": sandbox} if warm else {})},
        )
        labels = {CLAIM_UID: made["metadata"]["uid"], CREATED_BY: "python-client"}
        # A version before 1.0 recorded the name of the pod at the adoption.
        annotations = {f"{GROUP}/pod-name": sandbox} if warm else {}
        launch = {LAUNCH: "warm" if warm else "cold"}
        extra = {"sandbox.users.io/n": name}
        self.sandbox(
            sandbox, made, template, labels, {}, own_labels=launch, pod_labels=extra, own=annotations
        )
        conditions = [ready_condition(1)]
        ips = self.ns.get("Sandbox", sandbox)["status"]["podIPs"]
        self.status(
            "SandboxClaim", name, {"conditions": conditions, "sandbox": {"name": sandbox, "podIPs": ips}}
        )

    def sandbox(
        self, name, owner, template, labels, pod_annotations, *, own_labels, pod_labels=None, own=None
    ):
        shared = {**labels, REF_HASH: name_hash(template)}
        pod_metadata = {"labels": {**shared, **(pod_labels or {})}, "annotations": pod_annotations}
        made = self.ns.create(
            "Sandbox",
            name,
            {"podTemplate": {"metadata": pod_metadata, "spec": sandbox_pod()}},
            labels={**shared, **own_labels},
            annotations={TEMPLATE_REF: template, **(own or {})},
            ownerReferences=owned_by(owner),
        )
        set_by_controller = {
            key: value for key, value in labels.items() if key in (POOL, CREATED_BY, CLAIM_UID)
        }
        lists = {f"{GROUP}/propagated-annotations": ",".join(pod_annotations)} if pod_annotations else {}
        if pod_labels:
            lists[f"{GROUP}/propagated-labels"] = ",".join(pod_labels)
        self.pod(
            made,
            sandbox_pod(),
            {REF_HASH: name_hash(template), **set_by_controller, **(pod_labels or {})},
            {**pod_annotations, **lists},
        )

    def own_sandbox(self, name):
        """A sandbox with a Service, and a PVC that it adopted."""
        size = {"requests": {"storage": "1Gi"}}
        volume = {"metadata": {"name": "w"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": size}}
        spec = {"containers": [{"name": "main", "image": "app:1", "resources": {}}]}
        made = self.ns.create(
            "Sandbox",
            name,
            {"podTemplate": {"spec": {**spec, "automountServiceAccountToken": False}},
             "volumeClaimTemplates": [volume], "service": True},
        )  # fmt: skip
        adopted = {f"{GROUP}/adoptable": "true"}
        self.core("PersistentVolumeClaim", f"w-{name}", volume["spec"], made, labels=adopted)
        labels = {HASH: name_hash(name)}
        self.core("Service", name, {"clusterIP": "None", "selector": labels}, made, labels=labels)
        volumes = [{"name": "w", "persistentVolumeClaim": {"claimName": f"w-{name}"}}]
        self.pod(made, {**spec, "automountServiceAccountToken": False, "volumes": volumes}, {}, {})

    def pod(self, sandbox, spec, labels, annotations):
        name = sandbox["metadata"]["name"]
        self.core(
            "Pod", name, spec, sandbox, labels={HASH: name_hash(name), **labels}, annotations=annotations
        )
        status = running_pod_status()
        self.ns.patch("Pod", name, {"status": status}, subresource="status")
        now = status["startTime"]
        suspended = {
            "type": "Suspended",
            "status": "False",
            "reason": "NotSuspended",
            "lastTransitionTime": now,
        }
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "reason": "PodScheduled",
            "lastTransitionTime": now,
        }
        conditions = [
            {**suspended, "message": "Sandbox is not suspended", "observedGeneration": 1},
            {**scheduled, "message": "", "observedGeneration": 1},
            ready_condition(1),
        ]
        selector = f"{HASH}={name_hash(name)}"
        self.status("Sandbox", name, {"conditions": conditions, "podIPs": ["10.9.0.1"], "selector": selector})


def ready_condition(generation):
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "Ready",
        "status": "True",
        "reason": "DependenciesReady",
        "message": "Pod is Ready",
        "lastTransitionTime": now,
        "observedGeneration": generation,
    }


@pytest.fixture(scope="module")
def before(control_plane, objects):
    """A namespace with 20 sandboxes, 3 pools and 10 SandboxClaims of the published controller."""
    ns = SandboxNamespace(objects, control_plane.create_namespace())
    published = PublishedController(ns)
    published.template("t")
    published.template("unused")
    for pool, (replicas, strategy) in POOLS.items():
        published.pool(pool, replicas, strategy, "t")
    for name in (*WARM_CLAIMS, *COLD_CLAIMS):
        published.claim(name, "go-a", "t", warm=name in WARM_CLAIMS)
    for name in OWN_SANDBOXES:
        published.own_sandbox(name)
    old = ns.get("SandboxClaim", "cold-0")
    spec = {"podSelector": {"matchLabels": {CLAIM_UID: old["metadata"]["uid"]}}, "policyTypes": ["Ingress"]}
    published.core("NetworkPolicy", "cold-0-network-policy", spec, old, api_version="networking.k8s.io/v1")
    assert len(ns.list("Sandbox")) == 20
    return ns


def uids(ns):
    return {
        (kind, one["metadata"]["name"]): one["metadata"]["uid"] for kind in KINDS for one in ns.list(kind)
    }


@pytest.fixture(scope="module")
def taken_over(control_plane, before, tmp_path_factory):
    """The namespace once nothing is left to do, its UIDs before, and holdfast's controller."""
    known = uids(before)
    made = ControllerProcess(control_plane.kubeconfig, before.namespace, tmp_path_factory.mktemp("c") / "log")
    made.start()

    def settled():
        assert "holdfast_controller_queue 0.0" in made.http_get("/metrics")
        assert all(HASH in one["metadata"]["labels"] for one in before.list("PersistentVolumeClaim"))
        assert all(
            LAUNCH in one["metadata"]["labels"] for one in before.list("Sandbox") if is_of_template(one)
        )
        assert before.get("NetworkPolicy", "cold-0-network-policy") is None

    EVENTUALLY.call(settled)
    yield before, known, made
    assert made.stop() == 0, made.log()


def is_of_template(sandbox):
    return TEMPLATE_REF in (sandbox["metadata"].get("annotations") or {})


def written(controller, verb):
    found = re.search(
        rf'holdfast_controller_writes_total{{verb="{verb}"}} (\d+)', controller.http_get("/metrics")
    )
    return int(found[1]) if found else 0


def problems(ns):
    """What the contract requires of the sandboxes and their objects, and is not so."""
    found = []
    sandboxes = {one["metadata"]["name"]: one for one in ns.list("Sandbox")}
    claims = {one["metadata"]["name"]: one for one in ns.list("SandboxClaim")}

    def check(what, actual, expected):
        if actual != expected:
            found.append((what, actual, expected))

    for name, sandbox in sandboxes.items():
        labels, pod = sandbox["metadata"].get("labels") or {}, ns.get("Pod", name)
        check((name, "pod owner"), pod["metadata"]["ownerReferences"], owned_by(sandbox))
        check((name, "pod hash"), pod["metadata"]["labels"][HASH], name_hash(name))
        for volume in sandbox["spec"].get("volumeClaimTemplates") or ():
            pvc = ns.get("PersistentVolumeClaim", f"{volume['metadata']['name']}-{name}")
            check((name, "PVC owner"), pvc["metadata"]["ownerReferences"], owned_by(sandbox))
            check((name, "PVC hash"), pvc["metadata"]["labels"][HASH], name_hash(name))
        if not is_of_template(sandbox):
            continue
        (owner,) = sandbox["metadata"]["ownerReferences"]
        check((name, "owner flags"), (owner["controller"], owner["blockOwnerDeletion"]), (True, True))
        check((name, "template"), sandbox["metadata"]["annotations"][TEMPLATE_REF], "t")
        for where, entries in (("sandbox", labels), ("pod", pod["metadata"]["labels"])):
            check((name, where, "ref hash"), entries.get(REF_HASH), name_hash("t"))
        template_labels = sandbox["spec"]["podTemplate"]["metadata"]["labels"]
        if owner["kind"] == "SandboxWarmPool":
            check((name, "launch"), labels.get(LAUNCH), "warm")
            for where, entries in (("sandbox", labels), ("podTemplate", template_labels)):
                check((name, where, "pool"), entries.get(POOL), name_hash(owner["name"]))
                check((name, where, "creator"), entries.get(CREATED_BY), "controller")
                check((name, where, "hashes"), {FIELDS_HASH, POD_HASH} <= entries.keys(), True)
            check((name, "pod pool"), pod["metadata"]["labels"].get(POOL), name_hash(owner["name"]))
            check((name, "evict"), pod["metadata"]["annotations"].get(SAFE), "true")
            continue
        claim = claims[owner["name"]]
        recorded = claim["metadata"]["annotations"].get(f"{GROUP}/sandbox-name")
        is_warm = name != owner["name"]
        check((name, "recorded"), recorded, name if is_warm else None)
        check((name, "launch"), labels.get(LAUNCH), "warm" if is_warm else "cold")
        check((name, "in status"), claim["status"]["sandbox"]["name"], name)
        for where, entries in (
            ("sandbox", labels), ("podTemplate", template_labels), ("pod", pod["metadata"]["labels"]),
        ):  # fmt: skip
            check((name, where, "claim"), entries.get(CLAIM_UID), claim["metadata"]["uid"])
            check((name, where, "creator"), entries.get(CREATED_BY), "python-client")
            check((name, where, "old labels"), entries.keys() & {POOL, FIELDS_HASH, POD_HASH}, set())
        check((name, "evict"), SAFE in (pod["metadata"].get("annotations") or {}), False)
    return found


def test_nothing_is_deleted_or_created_at_the_exchange(taken_over):
    ns, known, controller = taken_over
    assert uids(ns) == known
    # The PVCs without the tracking label are not watched: only a conflict reveals each of them.
    assert written(controller, "create") == len(OWN_SANDBOXES)
    assert written(controller, "delete") == 1  # the network policy of a SandboxClaim
    for name in (*WARM_CLAIMS, *COLD_CLAIMS):
        ns.wait_conditions("SandboxClaim", name, Ready="True DependenciesReady")


def test_everything_has_the_published_labels_and_owners(taken_over):
    ns, _, _ = taken_over
    assert problems(ns) == []


def test_unchanged_objects_are_not_written_again(taken_over):
    _, _, controller = taken_over
    verbs = ("create", "delete", "patch", "adopt", "status")
    counts = [written(controller, verb) for verb in verbs]
    # A restarted controller finds nothing to do.
    assert controller.stop() == 0
    controller.start()
    EVENTUALLY.call(lambda: _assert_idle(controller))
    assert [written(controller, verb) for verb in verbs] == [0] * len(verbs), counts


def _assert_idle(controller):
    metrics = controller.http_get("/metrics")
    assert "holdfast_controller_queue 0.0" in metrics
    found = re.search(r'holdfast_controller_reconcile_total{kind="SandboxClaim",result="ok"} (\d+)', metrics)
    assert found is not None
    assert int(found[1]) >= len(WARM_CLAIMS) + len(COLD_CLAIMS)


def test_policy_of_published_controller_is_repaired_and_deleted(taken_over):
    ns, _, _ = taken_over
    ns.patch("NetworkPolicy", "unused-network-policy", {"spec": {"ingress": [{}]}})
    ns.wait("NetworkPolicy", "unused-network-policy", lambda found: found["spec"]["ingress"] != [{}])
    ns.patch("SandboxTemplate", "unused", {"spec": {"networkPolicyManagement": "Unmanaged"}})
    ns.wait_gone("NetworkPolicy", "unused-network-policy")
    ns.patch("SandboxTemplate", "unused", {"spec": {"networkPolicyManagement": "Managed"}})
    ns.wait("NetworkPolicy", "unused-network-policy", bool)


def test_new_claims_use_members_of_published_controller(control_plane, taken_over):
    ns, known, _ = taken_over
    with FakeKubelet(control_plane.kubeconfig, ns.namespace):
        creator = {"labels": {CREATED_BY: "python-client"}}
        ns.create("SandboxClaim", "new-warm", {"warmPoolRef": {"name": "go-b"}}, **creator)
        found = ns.wait_conditions("SandboxClaim", "new-warm", Ready="True DependenciesReady")
        assert ("Sandbox", found["status"]["sandbox"]["name"]) in known
        ns.wait("SandboxWarmPool", "go-b", lambda pool: is_pool_ready(pool, 3))

        def consistent():
            assert problems(ns) == []

        EVENTUALLY.call(consistent)
        now = uids(ns)
        assert {key: now.get(key) for key in known} == known
