"""What becomes of a request for a sandbox, field by field."""

import uuid
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given, strategies as st

from holdfast.api import FAILED_PODS_ANNOTATION, SandboxRequest, Workspace
from holdfast.api.rest_models import NetworkPolicy
from holdfast.errors import UsageError
from holdfast.sandbox import build_request, from_request, manifests, network_policy
from holdfast.sandbox.claim.metadata import find_invalid_metadata
from holdfast.sandbox.from_request import (
    is_sandbox_image,
    network_policy_manifest,
    resolve_shutdown_time,
    sandbox_claim_manifest,
    sandbox_manifest,
)
from holdfast.sandbox.lifecycle import failed_pods_annotations

FOREIGN = "python:3.12"


def made(image=FOREIGN, *, endpoint=None, name="a", **asked):
    return sandbox_manifest(
        SandboxRequest(name=name, image=image, **asked), namespace="ns", endpoint=endpoint
    )


def pod_of(box):
    return box["spec"]["podTemplate"]["spec"]


def container_of(box):
    (container,) = pod_of(box)["containers"]
    return container


def variables(box):
    return {entry["name"]: entry["value"] for entry in container_of(box)["env"]}


def test_labels_and_env_identify_sandbox():
    box = made(labels={"team": "blue"}, env={"COLOR": "red"})
    identity = box["metadata"]["labels"]["holdfast.dev/sandbox-id"]
    assert uuid.UUID(identity)
    labels = {"team": "blue", "holdfast.dev/sandbox-id": identity, "holdfast.dev/managed-by": "holdfast"}
    assert box["metadata"]["labels"] == labels
    assert box["spec"]["podTemplate"]["metadata"]["labels"] == labels
    assert variables(box) == {"HOLDFAST_SANDBOX_ID": identity, "HOLDFAST_SANDBOX": "a", "COLOR": "red"}


def test_same_request_gives_same_object():
    asked = {"env": {"A": "1"}, "cpu": "1", "labels": {"x": "y"}, "command": ["sleep", "9"]}
    assert made(**asked) == made(**asked)


def test_identity_depends_on_name_and_namespace():
    found = {
        from_request.sandbox_id(name, namespace=place)
        for name in ("a", "b", "a-b")
        for place in ("n", "m", "n-a")
    }
    assert len(found) == 9


def test_endpoint_includes_certificate_paths():
    box = made(endpoint="https://holdfast.holdfast.svc:8443")
    there = variables(box)
    assert there["HOLDFAST_ENDPOINT"] == "https://holdfast.holdfast.svc:8443"
    assert there["HOLDFAST_TLS_CA"] == "/etc/holdfast/tls/ca.crt"
    assert there["HOLDFAST_TLS_CERT"] == "/etc/holdfast/tls/tls.crt"
    assert there["HOLDFAST_TLS_KEY"] == "/etc/holdfast/tls/tls.key"
    (volume,) = pod_of(box)["volumes"]
    assert volume["secret"] == {"secretName": "holdfast-sandbox-tls", "optional": True}
    mounts = container_of(box)["volumeMounts"]
    assert {"name": "tls", "mountPath": "/etc/holdfast/tls", "readOnly": True} in mounts


def test_no_endpoint_sets_no_env():
    box = made(workspace=False)
    assert not [name for name in variables(box) if "TLS" in name or "ENDPOINT" in name]
    assert "volumes" not in pod_of(box)
    assert "volumeMounts" not in container_of(box)


def test_runtime_of_default_image_is_loopback_only_by_default():
    assert variables(made(image=None))["HOLDFAST_RUNTIME_LISTEN"] == "127.0.0.1"
    open_one = made(image=None, env={"HOLDFAST_RUNTIME_LISTEN": "0.0.0.0"})
    assert variables(open_one)["HOLDFAST_RUNTIME_LISTEN"] == "0.0.0.0"
    assert "HOLDFAST_RUNTIME_LISTEN" not in variables(made())


@pytest.mark.parametrize("name", ["HOLDFAST_SANDBOX", "HOLDFAST_SANDBOX_ID"])
def test_reserved_env_is_rejected(name):
    with pytest.raises(UsageError, match=name):
        made(env={name: "x"})


@pytest.mark.parametrize(
    "key",
    [
        "holdfast.dev/sandbox-id", "my.holdfast.dev/x", "agents.x-k8s.io/claim-uid", "k8s.io/x",
        "extensions.agents.x-k8s.io/x", "new.agents.x-k8s.io/x", "kubernetes.io/x", "node.k8s.io/x",
        "pod-security.kubernetes.io/enforce",
    ],
)  # fmt: skip
def test_reserved_labels_are_rejected_in_one_line(key):
    for refused in (lambda: made(labels={key: "x"}), lambda: build_request("a", labels={key: "x"})):
        with pytest.raises(UsageError, match=f"^label {key} is reserved: the domain "):
            refused()
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"name": "a", "labels": {key: "x"}}, SandboxRequest)


@pytest.mark.parametrize("key", ["x.k8s.io/a\nb", "holdfast.dev/\x1b[2J", "kubernetes.io/" + "a" * 300])
def test_invalid_reserved_label_key_is_rejected_in_one_line(key):
    for refused in (lambda: made(labels={key: "x"}), lambda: build_request("a", labels={key: "x"})):
        with pytest.raises(UsageError, match=r"is reserved: the domain .* belongs to .*$") as caught:
            refused()
        assert caught.value.message.isprintable()
        assert len(caught.value.message) < 200


@pytest.mark.parametrize("field", ["labels", "env"])
@pytest.mark.parametrize("key", [1, None, 1.5, ("a",), b"a"])
def test_non_string_key_is_rejected_in_one_line(field, key):
    with pytest.raises(
        UsageError, match=f"{field}: .* is not a valid (label key|environment variable name)$"
    ):
        build_request("a", **{field: {key: "x"}})


@pytest.mark.parametrize("key", ["team", "example.com/x", "notk8s.io/x", "sigs.x-k8s.io/x", "k8s.io.org/x"])
def test_other_labels_are_allowed(key):
    request = msgspec.convert({"name": "a", "labels": {key: "x"}}, SandboxRequest)
    assert request == build_request("a", labels={key: "x"})
    assert made(labels={key: "x"})["metadata"]["labels"][key] == "x"


def test_label_selected_by_default_network_policy_is_rejected():
    template = {"apiVersion": "e/v1", "kind": "SandboxTemplate", "spec": {}}
    template["metadata"] = {"name": "t", "namespace": "ns", "uid": "t"}
    (let_in,) = network_policy.policy_manifest(template)["spec"]["ingress"][0]["from"]
    for refused in (made, lambda **asked: build_request("a", **asked)):
        with pytest.raises(UsageError, match="app=sandbox-router is reserved"):
            refused(labels=let_in["podSelector"]["matchLabels"])
    assert made(labels={"app": "mine"})


def test_default_workspace():
    box = made()
    (template,) = box["spec"]["volumeClaimTemplates"]
    assert template["metadata"]["name"] == "workspace"
    assert template["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}},
    }
    (mount,) = container_of(box)["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == ("workspace", "/sandbox")
    (seeder,) = pod_of(box)["initContainers"]
    assert seeder["image"] == FOREIGN
    box["metadata"]["uid"] = "u"
    pod = manifests.pod_manifest(box)
    assert pod["spec"]["volumes"] == [
        {"name": "workspace", "persistentVolumeClaim": {"claimName": "workspace-a"}}
    ]


def test_requested_size_and_storage_class_are_used():
    box = made(workspace=Workspace(size="5Gi", storage_class="fast"))
    (template,) = box["spec"]["volumeClaimTemplates"]
    assert template["spec"]["resources"]["requests"]["storage"] == "5Gi"
    assert template["spec"]["storageClassName"] == "fast"


def test_workspace_without_seeding_has_no_init_container():
    box = made(workspace=Workspace(seed=False))
    assert "initContainers" not in pod_of(box)
    assert container_of(box)["volumeMounts"]


def test_no_workspace_creates_no_pvc():
    box = made(workspace=False)
    assert "volumeClaimTemplates" not in box["spec"]
    assert "initContainers" not in pod_of(box)


@pytest.mark.parametrize("image", [FOREIGN, from_request.DEFAULT_IMAGE])
def test_containers_are_unprivileged(image):
    pod = pod_of(made(image))
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*pod["containers"], *pod["initContainers"]):
        security = container["securityContext"]
        assert security["privileged"] is False
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"]["drop"] == ["ALL"]
        may = set(security["capabilities"].get("add", ()))
        assert not may & {"SYS_ADMIN", "NET_ADMIN", "NET_RAW", "SYS_PTRACE", "MKNOD", "SYS_CHROOT", "SETFCAP"}
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}


def test_default_image_runs_as_unprivileged_user():
    pod = pod_of(made(image=None))
    assert pod["containers"][0]["image"] == from_request.DEFAULT_IMAGE
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 1000
    for container in (*pod["containers"], *pod["initContainers"]):
        assert "add" not in container["securityContext"]["capabilities"]
        assert "runAsUser" not in container["securityContext"]


def test_foreign_image_keeps_user_and_file_owners():
    pod = pod_of(made())
    assert "runAsNonRoot" not in pod["securityContext"]
    assert "runAsUser" not in pod["containers"][0]["securityContext"]
    assert pod["initContainers"][0]["securityContext"]["runAsUser"] == 0


@pytest.mark.parametrize(
    ("image", "own"),
    [
        ("holdfast/sandbox", True),
        ("holdfast/sandbox:1", True),
        ("registry.example:5000/holdfast/sandbox@sha256:00", True),
        ("holdfast/sandbox-tools:1", False),
        ("holdfast/sandbox-full:1", True),
        ("registry.example/holdfast/sandbox-full", True),
        ("notholdfast/sandbox", False),
        ("sandbox", False),
        ("registry.example:5000/sandbox:1", False),
    ],
)
def test_default_image_detection(image, own):
    assert is_sandbox_image(image) is own


def test_runtime_port_is_declared_where_it_runs():
    assert container_of(made(image=None))["ports"] == [{"name": "runtime", "containerPort": 8888}]
    assert "ports" not in container_of(made(image=None, command=["sleep", "9"]))
    assert "ports" not in container_of(made())


@pytest.mark.parametrize(
    ("asked", "limits", "requests"),
    [
        ({}, ("2", "2Gi"), ("50m", "64Mi")),
        ({"cpu": "500m", "memory": "1Gi"}, ("500m", "1Gi"), ("50m", "64Mi")),
        ({"cpu": "0.01", "memory": "20M"}, ("0.01", "20M"), ("0.01", "20M")),
        ({"cpu": "20m", "memory": "65536Ki"}, ("20m", "65536Ki"), ("20m", "64Mi")),
    ],
)
def test_resource_requests_are_capped(asked, limits, requests):
    resources = container_of(made(**asked))["resources"]
    assert resources["limits"] == {"cpu": limits[0], "memory": limits[1]}
    assert resources["requests"] == {"cpu": requests[0], "memory": requests[1]}


def kubernetes_expansion(text, values):
    """What the kubelet makes of a text: `$(NAME)` by its value where there is one, `$$` by `$`."""
    out, at = [], 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            out.append(text[at])
            at += 1
        elif text[at + 1] == "$":
            out.append("$")
            at += 2
        elif text[at + 1] == "(" and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            out.append(values.get(name, text[at : end + 1]))
            at = end + 1
        else:
            out.append("$")
            at += 1
    return "".join(out)


@given(st.text(alphabet="$()A b", max_size=12))
def test_strings_reach_container_unchanged(text):
    box = made(env={"A": "value", "B": text}, command=["sh", "-c", text], args=[text])
    container = container_of(box)
    told = [variables(box)["B"], container["command"][2], container["args"][0]]
    assert {kubernetes_expansion(word, {"A": "value"}) for word in told} == {text}


def test_times_and_policies():
    east = timezone(timedelta(hours=2))
    box = made(
        shutdown_time=datetime(2027, 1, 1, 2, 0, 0, tzinfo=east), idle_suspend_after=600, failed_pods="Keep"
    )
    assert box["spec"]["shutdownTime"] == "2027-01-01T00:00:00Z"
    assert box["spec"]["shutdownPolicy"] == "Retain"
    assert box["metadata"]["annotations"] == {
        "holdfast.dev/failed-pods": "Keep",
        "holdfast.dev/idle-suspend-after": "600",
    }


def test_template_request_creates_claim():
    asked = SandboxRequest(
        name="c",
        template="t",
        env={"A": "$(B)"},
        labels={"team": "blue"},
        shutdown_time=datetime(2027, 1, 1, tzinfo=UTC),
    )
    found = sandbox_claim_manifest(asked, namespace="ns", pool="p")
    assert found["kind"] == "SandboxClaim"
    assert found["metadata"]["annotations"] == {FAILED_PODS_ANNOTATION: "Recreate"}
    assert failed_pods_annotations(found) == {FAILED_PODS_ANNOTATION: "Recreate"}
    assert found["spec"] == {
        "warmPoolRef": {"name": "p"},
        "additionalPodMetadata": {"labels": {"sandbox.users.io/team": "blue"}},
        "env": [{"name": "A", "value": "$$(B)"}],
        "lifecycle": {"shutdownTime": "2027-01-01T00:00:00Z", "shutdownPolicy": "Retain"},
    }


def test_labels_of_claims_are_valid_for_the_published_controller():
    labels = {
        "team": "blue",
        "sandbox.users.io/team": "red",
        "x.sandbox.users.io/a": "1",
        "example.com/b": "2",
        "app": "sandbox",
    }
    asked = SandboxRequest(name="c", template="t", labels=labels)
    found = sandbox_claim_manifest(asked, namespace="ns", pool="p")
    assert find_invalid_metadata(found) is None
    assert found["spec"]["additionalPodMetadata"]["labels"] == {
        "sandbox.users.io/team": "red",
        "x.sandbox.users.io/a": "1",
        "sandbox.users.io/app": "sandbox",
    }
    assert labels.items() <= found["metadata"]["labels"].items()


def test_template_fields_cannot_be_overridden():
    asked = SandboxRequest(
        name="c", template="t", image=FOREIGN, cpu="1", workspace=False, failed_pods="Keep"
    )
    with pytest.raises(UsageError, match="image, cpu, workspace, failed_pods"):
        sandbox_claim_manifest(asked, namespace="ns", pool="p")


def test_network_policy_selects_only_this_sandbox():
    asked = SandboxRequest(name="a", image=FOREIGN, network_policy=NetworkPolicy(egress=[]))
    policy = network_policy_manifest(asked, namespace="ns")
    assert policy["spec"]["policyTypes"] == ["Egress"]
    assert policy["spec"]["egress"] == []
    box = sandbox_manifest(asked, namespace="ns", endpoint=None)
    box["metadata"]["uid"] = "u"
    labels = manifests.pod_manifest(box)["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["metadata"]["name"] == "a-sandbox-policy"
    assert network_policy_manifest(SandboxRequest(name="a"), namespace="ns") is None
    # No rules, no policy: a NetworkPolicy without directions would deny ingress.
    empty = SandboxRequest(name="a", network_policy=NetworkPolicy())
    assert network_policy_manifest(empty, namespace="ns") is None
    for open_one in (empty, SandboxRequest(name="a")):
        box = sandbox_manifest(open_one, namespace="ns", endpoint=None)
        box["metadata"]["uid"] = "u"
        unasked = manifests.pod_manifest(box)["metadata"]["labels"]
        assert not policy["spec"]["podSelector"]["matchLabels"].items() <= unasked.items()


def test_network_policy_does_not_select_sandbox_with_same_name_hash():
    names = ("box-olbvs", "box-qacxa")
    assert len({manifests.name_hash(name) for name in names}) == 1
    pods = []
    for name in names:
        asked = SandboxRequest(name=name, network_policy=NetworkPolicy(egress=[]))
        box = sandbox_manifest(asked, namespace="ns", endpoint=None)
        box["metadata"]["uid"] = name
        selector = network_policy_manifest(asked, namespace="ns")["spec"]["podSelector"]["matchLabels"]
        pods.append((selector, manifests.pod_manifest(box)["metadata"]["labels"]))
    selected = [selector.items() <= labels.items() for selector, _ in pods for _, labels in pods]
    assert selected == [True, False, False, True]


def test_shutdown_seconds_become_whole_second_timestamp():
    now = datetime(2026, 1, 1, 12, 0, 0, 999_999, tzinfo=UTC)
    asked = resolve_shutdown_time(SandboxRequest(name="a", shutdown_after=90), now)
    assert asked.shutdown_time == datetime(2026, 1, 1, 12, 1, 30, tzinfo=UTC)
    assert (
        sandbox_manifest(asked, namespace="ns", endpoint=None)["spec"]["shutdownTime"]
        == "2026-01-01T12:01:30Z"
    )
    assert resolve_shutdown_time(asked, now) == asked
    with pytest.raises(UsageError, match="exclude each other"):
        resolve_shutdown_time(SandboxRequest(name="a", shutdown_after=90, shutdown_time=now), now)
