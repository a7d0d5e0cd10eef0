"""Pod metadata, pod name and Service of a sandbox, as the published API defines them."""

from __future__ import annotations

import pytest
from tests.support.sandbox_objects import reconcile, running_pod, sandbox, without_owner

from holdfast.sandbox import manifests, merge_patch
from holdfast.sandbox.actions import Adopt, Create, Patch
from holdfast.sandbox.manifests import tracking_labels

GROUP = "agents.x-k8s.io"
TEMPLATE_HASH, POOL, CLAIM_UID, CREATED_BY = (
    f"{GROUP}/{name}"
    for name in ("sandbox-template-ref-hash", "warm-pool-sandbox", "claim-uid", "created-by")
)
EXTENSION_LABELS = {TEMPLATE_HASH: "t", POOL: "p", CLAIM_UID: "c", CREATED_BY: "my-tool"}


def owned_by(kind, group="extensions.agents.x-k8s.io"):
    box = sandbox()
    box["metadata"]["labels"] = dict(EXTENSION_LABELS)
    owner = {"apiVersion": f"{group}/v1", "kind": kind, "name": "o", "uid": "o-1", "controller": True}
    box["metadata"]["ownerReferences"] = [owner]
    return box


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        (owned_by("SandboxWarmPool"), {TEMPLATE_HASH: "t", POOL: "p"}),
        (owned_by("SandboxClaim"), {TEMPLATE_HASH: "t", CLAIM_UID: "c"}),
        (owned_by("SandboxClaim", group="example.com"), {}),
    ],
)
def test_labels_of_extensions_reach_the_pod_from_their_owner(box, expected):
    labels = manifests.pod_metadata(box)["labels"]
    assert labels == tracking_labels("a") | expected | {CREATED_BY: "unknown"}


@pytest.mark.parametrize("creator", ["python-client", "go-client", "controller"])
def test_known_creators_keep_their_name(creator):
    box = sandbox()
    box["metadata"]["labels"] = {CREATED_BY: creator}
    assert manifests.pod_metadata(box)["labels"][CREATED_BY] == creator


def test_reserved_keys_of_the_template_do_not_reach_the_pod():
    box = sandbox()
    reserved = {TEMPLATE_HASH: "x", "extensions.agents.x-k8s.io/y": "x", f"{GROUP}/sandbox-name-hash": "x"}
    box["spec"]["podTemplate"]["metadata"] = {
        "labels": {"team": "red", **reserved},
        "annotations": {"why": "so", "opentelemetry.io/trace-context": "{}", f"{GROUP}/pod-name": "x"},
    }
    assert manifests.pod_metadata(box) == {
        "labels": {"team": "red", **tracking_labels("a")},
        "annotations": {
            "why": "so",
            f"{GROUP}/propagated-labels": "team",
            f"{GROUP}/propagated-annotations": "why",
        },
    }


def test_pod_without_template_metadata_has_no_lists():
    assert manifests.pod_metadata(sandbox())["annotations"] == {}


def test_reserved_and_outdated_labels_are_removed_from_a_living_pod():
    box = owned_by("SandboxClaim")
    pod = running_pod(box)
    pod["metadata"]["labels"] |= {POOL: "p", f"{GROUP}/old": "x", "theirs": "x"}
    pod["metadata"]["annotations"] = {f"{GROUP}/propagated-labels": f"gone,{GROUP}/old"}
    (patch,) = reconcile(box, pod).actions
    assert patch.patch == {
        "metadata": {
            "labels": {POOL: None, f"{GROUP}/old": None},
            "annotations": {f"{GROUP}/propagated-labels": None},
        }
    }


def recorded(name, **spec):
    box = sandbox(**spec)
    box["metadata"]["annotations"] = {f"{GROUP}/pod-name": name}
    return box


def is_removal(action):
    change = {"metadata": {"annotations": {f"{GROUP}/pod-name": None}}}
    return isinstance(action, Patch) and (action.target.kind, action.patch) == ("Sandbox", change)


def test_recorded_pod_of_an_older_controller_is_used():
    box = recorded("b")
    pod = running_pod(box)
    pod["metadata"]["name"] = "b"
    assert reconcile(box, pod).actions == ()
    suspended = recorded("b", operatingMode="Suspended")
    assert is_removal(reconcile(suspended, pod).actions[0])


def test_recorded_name_without_pod_is_removed_and_new_pod_has_the_name_of_the_sandbox():
    removal, create = reconcile(recorded("b")).actions
    assert is_removal(removal)
    assert isinstance(create, Create)
    assert create.manifest["metadata"]["name"] == "a"


def test_owned_pod_wins_over_recorded_name():
    box = recorded("b")
    assert [is_removal(action) for action in reconcile(box, running_pod(box)).actions] == [True]


def served(*ports, sidecar=()):
    box = sandbox(service=True)
    spec = box["spec"]["podTemplate"]["spec"]
    spec["containers"][0]["ports"] = list(ports)
    spec["initContainers"] = [
        {"name": "side", "restartPolicy": "Always", "ports": list(sidecar)},
        {"name": "once", "ports": [{"containerPort": 1}]},
    ]
    return box


def rows(box):
    return [
        (port["name"], port["port"], port["protocol"], port["targetPort"])
        for port in manifests.service_ports(box)
    ]


def test_service_has_each_port_once_sorted():
    box = served(
        {"containerPort": 90, "name": "web"},
        {"containerPort": 80},
        {"containerPort": 80, "protocol": "UDP", "name": "web"},
        sidecar=[{"containerPort": 90, "name": "other"}, {"containerPort": 70}],
    )
    assert rows(box) == [
        ("p-70-tcp", 70, "TCP", 70),
        ("p-80-tcp", 80, "TCP", 80),
        ("web", 80, "UDP", 80),
        ("other", 90, "TCP", 90),
    ]


def test_default_port_name_is_numbered_if_taken():
    box = served({"containerPort": 70, "name": "p-80-tcp"}, {"containerPort": 80})
    assert [row[0] for row in rows(box)] == ["p-80-tcp", "p-80-tcp-2"]


def test_service_without_ports_has_no_list_of_them():
    assert "ports" not in manifests.service_manifest(sandbox())["spec"]


def existing(box, **spec):
    made = manifests.service_manifest(box)
    made["metadata"]["uid"] = "svc"
    return {**made, "spec": {**made["spec"], **spec}}


def corrections(box, service):
    return list(reconcile(box, running_pod(box), service=service).actions)


def test_owned_service_is_repaired():
    box = served({"containerPort": 80})
    changed = existing(box, ports=[{"port": 1, "targetPort": 1}], selector={"app": "x"})
    del changed["metadata"]["labels"]
    (repair,) = corrections(box, changed)
    assert repair.patch == {
        "metadata": {"labels": tracking_labels("a")},
        "spec": {"ports": manifests.service_ports(box), "selector": {"app": None, **tracking_labels("a")}},
    }
    assert corrections(box, existing(box)) == []


def test_kept_service_keeps_its_ports():
    box = served({"containerPort": 80})
    service = existing(box, ports=[{"port": 1, "targetPort": 1}])
    del box["spec"]["service"]
    assert corrections(box, service) == []


def test_adopted_service_gets_selector_and_ports():
    box = served({"containerPort": 80})
    (adoption,) = corrections(box, without_owner(existing(box, ports=[], selector={"app": "x"})))
    assert isinstance(adoption, Adopt)
    assert adoption.patch["spec"]["ports"] == manifests.service_ports(box)
    assert merge_patch({"app": "x"}, tracking_labels("a")) == adoption.patch["spec"]["selector"]
