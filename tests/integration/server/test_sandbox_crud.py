"""Sandboxes through the API on a real API server: made once, found, suspended and deleted."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from holdfast.api import API_VERSION, EXTENSIONS_API_VERSION, NAME_HASH_LABEL, SandboxRequest
from holdfast.api.rest_models import NetworkPolicy
from holdfast.errors import ApiRequestRejectedError
from holdfast.retry import Policy
from holdfast.sandbox import from_request, name_hash
from holdfast.server.sandboxes.request_comparison import REQUEST_DIGESTS_ANNOTATION
from holdfast.server.sandboxes.sandbox_objects import KEPT_WORKSPACE_LABEL

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

ROOT = "/v1/sandboxes"


def pvc_of(objects, namespace, name):
    return objects.get("PersistentVolumeClaim", f"workspace-{name}", namespace=namespace)


def network_policy_of(objects, namespace, name):
    return objects.get("NetworkPolicy", f"{name}-sandbox-policy", namespace=namespace)


def stored_object(objects, namespace, name, kind="Sandbox", version=API_VERSION):
    return objects.get(kind, name, namespace=namespace, api_version=version)


def test_create_is_idempotent_and_get_returns_it(server, objects, namespace, name):
    body = {"name": name, "image": "app:1", "env": {"A": "1"}, "labels": {"team": "blue"}}
    status, made = server.request_json("POST", ROOT, body)
    assert (status, made["phase"], made["image"]) == (201, "Pending", "app:1")
    assert server.request_json("POST", ROOT, body)[0] == 200
    assert server.request_json("GET", f"{ROOT}/{name}") == (200, made)
    box = stored_object(objects, namespace, name)
    assert box["metadata"]["labels"] == made["labels"]
    assert box["metadata"]["labels"]["holdfast.dev/managed-by"] == "holdfast"
    variables = {
        each["name"]: each["value"] for each in box["spec"]["podTemplate"]["spec"]["containers"][0]["env"]
    }
    assert (variables["A"], variables["HOLDFAST_ENDPOINT"]) == ("1", "https://gateway.test")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": "app:2"}, "differs in image"),
        ({"env": {}}, "differs in env"),
        ({"workspace": False, "cpu": "1"}, "differs in cpu, workspace"),
    ],
)
def test_create_with_same_name_and_different_spec_is_a_conflict(server, name, change, words):
    body = {"name": name, "image": "app:1", "env": {"A": "1"}}
    assert server.request_json("POST", ROOT, body)[0] == 201
    status, problem = server.request_json("POST", ROOT, body | change)
    assert (status, problem["code"]) == (409, "sandbox-differs")
    assert words in problem["message"]


def test_default_image_that_is_named_matches_existing_sandbox(server, name):
    default = from_request.DEFAULT_IMAGE
    assert server.request_json("POST", ROOT, {"name": name})[0] == 201
    assert server.request_json("POST", ROOT, {"name": name, "image": default})[0] == 200
    other = {"name": name, "image": "app:1", "env": {"A": "s3cr3t"}}
    status, problem = server.request_json("POST", ROOT, other)
    assert (status, problem["code"]) == (409, "sandbox-differs")
    assert f"image is {default}, requested is app:1; env differs in A" in problem["message"]
    assert "s3cr3t" not in problem["message"]


def test_same_request_after_version_upgrade_matches_existing_sandbox(server, objects, namespace, name):
    """Their default images differ, and what else an object is made of may, too."""
    body = {"name": name, "env": {"A": "1"}}
    assert server.request_json("POST", ROOT, body)[0] == 201
    spec = stored_object(objects, namespace, name)["spec"]
    spec["podTemplate"]["spec"]["containers"][0]["image"] = "holdfast/sandbox:0.0.1"
    objects.patch("Sandbox", name, {"spec": spec}, namespace=namespace, api_version=API_VERSION)
    status, shown = server.request_json("POST", ROOT, body)
    assert (status, shown["image"]) == (200, "holdfast/sandbox:0.0.1")
    assert "differs in env" in server.request_json("POST", ROOT, {"name": name})[1]["message"]
    said = {"metadata": {"annotations": {REQUEST_DIGESTS_ANNOTATION: "rubbish"}}}
    objects.patch("Sandbox", name, said, namespace=namespace, api_version=API_VERSION)
    assert server.request_json("POST", ROOT, body)[1]["code"] == "sandbox-differs"


def test_sandbox_created_by_another_client_is_a_conflict(server, objects, namespace, name):
    spec = {"podTemplate": {"spec": {"containers": [{"name": "x", "image": "y"}]}}}
    objects.ensure(
        {"apiVersion": API_VERSION, "kind": "Sandbox", "metadata": {"name": name}, "spec": spec},
        namespace=namespace,
    )
    status, problem = server.request_json("POST", ROOT, {"name": name})
    assert (status, problem["code"]) == (409, "sandbox-differs")
    assert server.request_json("GET", f"{ROOT}/{name}")[1]["image"] == "y"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"name": "Upper"}, "name"), ({"name": "a", "size": 3}, "size"), ({}, "name"), ([], "object"),
        ({"name": "a", "workspace": {"size": "big"}}, "size"), ({"name": "a", "env": {"1": "x"}}, "env"),
        ({"name": "a", "labels": {"holdfast.dev/x": "y"}}, "labels"), ({"name": "a", "cpu": "-1"}, "cpu"),
        ({"name": "a", "shutdown_time": "tomorrow"}, "shutdown_time"),
    ],
)  # fmt: skip
def test_invalid_request_names_field(server, body, word):
    status, problem = server.request_json("POST", ROOT, body)
    assert (status, problem["code"]) == (400, "bad-request")
    assert word in problem["message"]


def test_oversized_request_is_rejected(server):
    status, problem = server.request_json("POST", ROOT, {"name": "a", "args": ["x" * (1 << 21)]})
    assert (status, problem["code"]) == (413, "too-large")


def test_missing_sandbox_is_not_found(server):
    for method, path in [
        ("GET", ""), ("DELETE", ""), ("POST", "/suspend"), ("POST", "/resume"), ("GET", "/events"),
        ("GET", "/logs"), ("GET", "/files?path=/x"),
    ]:  # fmt: skip
        status, problem = server.request_json(method, f"{ROOT}/nobody{path}")
        assert (status, problem["code"]) == (404, "sandbox-missing"), path


def test_suspend_and_resume_are_idempotent(server, objects, namespace, reconciler, name):
    server.request_json("POST", ROOT, {"name": name, "workspace": False})
    reconciler.reconcile(name)
    for word, mode in [("suspend", "Suspended"), ("suspend", "Suspended"), ("resume", "Running")]:
        status, shown = server.request_json("POST", f"{ROOT}/{name}/{word}")
        assert (status, shown["phase"]) == (200, "Pending")
        assert stored_object(objects, namespace, name)["spec"]["operatingMode"] == mode
    server.request_json("POST", f"{ROOT}/{name}/suspend")
    objects.delete("Pod", name, namespace=namespace)
    reconciler.reconcile(name)
    assert server.request_json("GET", f"{ROOT}/{name}")[1]["phase"] == "Suspended"


def test_delete_reports_data_retention(server, objects, namespace, reconciler, name):
    server.request_json("POST", ROOT, {"name": name})
    reconciler.reconcile(name)
    assert server.request_json("GET", f"{ROOT}/{name}")[1]["workspace"]["phase"] == "Pending"
    status, said = server.request_json("DELETE", f"{ROOT}/{name}")
    named = {"pvc": f"workspace-{name}", "pvcs": [f"workspace-{name}"]}
    assert (status, said) == (200, {"deleted": True, "workspace": "deleted", **named})
    assert stored_object(objects, namespace, name) is None
    server.request_json("POST", ROOT, {"name": f"{name}-x", "workspace": False})
    assert server.request_json("DELETE", f"{ROOT}/{name}-x")[1]["workspace"] == "none"


def test_kept_workspace_is_unowned_until_sandbox_is_recreated(server, objects, namespace, reconciler, name):
    server.request_json("POST", ROOT, {"name": name})
    reconciler.reconcile(name)
    owned = pvc_of(objects, namespace, name)
    assert owned["metadata"]["ownerReferences"]
    said = server.request_json("DELETE", f"{ROOT}/{name}?keep_workspace=true")[1]
    assert (said["workspace"], said["pvc"]) == ("kept", f"workspace-{name}")
    kept = pvc_of(objects, namespace, name)
    assert kept["metadata"]["uid"] == owned["metadata"]["uid"]
    assert not kept["metadata"].get("ownerReferences")
    # What the garbage collector does in a cluster.
    objects.delete("Pod", name, namespace=namespace)
    assert server.request_json("POST", ROOT, {"name": name})[0] == 201
    reconciler.reconcile(name)
    again, box = pvc_of(objects, namespace, name), stored_object(objects, namespace, name)
    assert again["metadata"]["uid"] == owned["metadata"]["uid"]
    assert again["metadata"]["ownerReferences"][0]["uid"] == box["metadata"]["uid"]


def test_disowned_pvc_is_not_readopted_by_controller(server, objects, namespace, reconciler, name):
    """The first half of an interrupted delete: a reconcile does not change the SandboxClaim."""
    server.request_json("POST", ROOT, {"name": name})
    reconciler.reconcile(name)
    blocked = {"metadata": {"finalizers": ["test.holdfast.dev/wait"]}}
    objects.patch("Sandbox", name, blocked, namespace=namespace, api_version=API_VERSION)
    assert server.request_json("DELETE", f"{ROOT}/{name}?keep_workspace=true")[0] == 200
    assert server.request_json("GET", f"{ROOT}/{name}")[1]["phase"] == "Deleting"
    assert server.request_json("POST", ROOT, {"name": name})[1]["code"] == "sandbox-deleting"
    reconciler.reconcile(name)
    assert not pvc_of(objects, namespace, name)["metadata"].get("ownerReferences")
    objects.patch(
        "Sandbox", name, {"metadata": {"finalizers": None}}, namespace=namespace, api_version=API_VERSION
    )


def test_create_during_delete_keeps_data(server, objects, namespace, reconciler, name):
    """Disowned, and not deleted yet: the sandbox that is there must not get its claim back."""
    assert server.request_json("POST", ROOT, {"name": name})[0] == 201
    reconciler.reconcile(name)
    change = {
        "labels": {NAME_HASH_LABEL: None, KEPT_WORKSPACE_LABEL: name_hash(name)},
        "ownerReferences": None,
    }
    objects.patch("PersistentVolumeClaim", f"workspace-{name}", {"metadata": change}, namespace=namespace)
    assert server.request_json("POST", ROOT, {"name": name})[0] == 200
    reconciler.reconcile(name)
    assert not pvc_of(objects, namespace, name)["metadata"].get("ownerReferences")
    said = server.request_json("DELETE", f"{ROOT}/{name}?keep_workspace=true")[1]
    assert (said["workspace"], said["pvcs"]) == ("kept", [f"workspace-{name}"])
    # One without a workspace leaves it to the next that wants one.
    assert server.request_json("POST", ROOT, {"name": name, "workspace": False})[0] == 201
    assert pvc_of(objects, namespace, name)["metadata"]["labels"][KEPT_WORKSPACE_LABEL] == name_hash(name)


def test_concurrent_identical_creates_adopt_kept_workspace(server, objects, namespace, reconciler, name):
    server.request_json("POST", ROOT, {"name": name})
    reconciler.reconcile(name)
    server.request_json("DELETE", f"{ROOT}/{name}?keep_workspace=true")
    connections = [server.connect(server.bundle.client) for _ in range(8)]

    def post(connection):
        with closing(connection):
            connection.request("POST", ROOT, json.dumps({"name": name}), {"content-type": "application/json"})
            return connection.getresponse().status

    with ThreadPoolExecutor(len(connections)) as threads:
        answers = list(threads.map(post, connections))
    assert sorted(answers) == [200] * 7 + [201]
    labels = pvc_of(objects, namespace, name)["metadata"]["labels"]
    assert (labels.get(KEPT_WORKSPACE_LABEL), labels[NAME_HASH_LABEL]) == (None, name_hash(name))


def test_every_pvc_of_sandbox_is_kept_and_named(server, objects, namespace, reconciler, name):
    volume = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    templates = [{"metadata": {"name": each}, "spec": volume} for each in ("data", "workspace", "cache")]
    spec = {
        "podTemplate": {"spec": {"containers": [{"name": "x", "image": "y"}]}},
        "volumeClaimTemplates": templates,
    }
    objects.ensure(
        {"apiVersion": API_VERSION, "kind": "Sandbox", "metadata": {"name": name}, "spec": spec},
        namespace=namespace,
    )
    reconciler.reconcile(name)
    names = [f"{each}-{name}" for each in ("workspace", "data", "cache")]
    assert server.request_json("DELETE", f"{ROOT}/{name}?keep_workspace=true")[1] == {
        "deleted": True, "workspace": "kept", "pvc": names[0], "pvcs": names,
    }  # fmt: skip
    for each in names:
        found = objects.get("PersistentVolumeClaim", each, namespace=namespace)
        assert not found["metadata"].get("ownerReferences")


def test_terminating_pvc_is_not_reported_as_kept(server, objects, namespace, reconciler, name):
    server.request_json("POST", ROOT, {"name": name})
    reconciler.reconcile(name)
    place = {"namespace": namespace}
    waiting = {"metadata": {"finalizers": ["test.holdfast.dev/wait"]}}
    objects.patch("PersistentVolumeClaim", f"workspace-{name}", waiting, **place)
    objects.delete("PersistentVolumeClaim", f"workspace-{name}", **place)
    said = server.request_json("DELETE", f"{ROOT}/{name}?keep_workspace=true")[1]
    assert (said["workspace"], said["pvcs"]) == ("deleted", [f"workspace-{name}"])
    gone = {"metadata": {"finalizers": None}}
    objects.patch("PersistentVolumeClaim", f"workspace-{name}", gone, **place)


def test_network_policy_is_owned_by_sandbox(server, objects, namespace, name):
    rules = {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}], "ingress": []}
    body = {"name": name, "network_policy": rules}
    assert server.request_json("POST", ROOT, body)[0] == 201
    assert server.request_json("POST", ROOT, body)[0] == 200
    policy = network_policy_of(objects, namespace, name)
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    owner = stored_object(objects, namespace, name)["metadata"]["uid"]
    assert [each["uid"] for each in policy["metadata"]["ownerReferences"]] == [owner]
    # Lost or changed, the same request makes up for it.
    changed = {"spec": {"egress": [], "policyTypes": ["Egress"]}}
    objects.patch("NetworkPolicy", f"{name}-sandbox-policy", changed, namespace=namespace)
    assert server.request_json("POST", ROOT, body)[0] == 200
    assert network_policy_of(objects, namespace, name)["spec"] == policy["spec"]
    objects.delete("NetworkPolicy", f"{name}-sandbox-policy", namespace=namespace)
    assert server.request_json("POST", ROOT, body)[0] == 200
    again = network_policy_of(objects, namespace, name)
    assert [each["uid"] for each in again["metadata"]["ownerReferences"]] == [owner]


def test_foreign_network_policy_is_left_alone(server, objects, namespace, name):
    made = {}
    for each in (name, f"{name}-sandbox-policy"):
        manifest = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": each},
            "spec": {"podSelector": {}, "policyTypes": ["Egress"]},
        }
        made[each] = objects.ensure(manifest, namespace=namespace).object
    status, problem = server.request_json("POST", ROOT, {"name": name, "network_policy": {"egress": []}})
    assert (status, problem["code"]) == (409, "policy-taken")
    assert stored_object(objects, namespace, name) is None
    for each, before in made.items():
        assert objects.get("NetworkPolicy", each, namespace=namespace) == before


def test_network_policy_of_interrupted_create_is_adopted(server, objects, namespace, name):
    asked = SandboxRequest(name=name, network_policy=NetworkPolicy(egress=[]))
    left = objects.ensure(from_request.network_policy_manifest(asked, namespace=namespace)).object
    other = {"name": name, "network_policy": {"ingress": []}}
    assert server.request_json("POST", ROOT, other)[1]["code"] == "policy-taken"
    assert server.request_json("POST", ROOT, {"name": name, "network_policy": {"egress": []}})[0] == 201
    policy = network_policy_of(objects, namespace, name)
    assert policy["metadata"]["uid"] == left["metadata"]["uid"]
    assert policy["metadata"]["ownerReferences"][0]["name"] == name
    # That sandbox is gone, and its policy goes soon: no sandbox may rely on it.
    server.request_json("DELETE", f"{ROOT}/{name}")
    again = server.request_json("POST", ROOT, {"name": name, "network_policy": {"egress": []}})
    assert (again[0], again[1]["code"]) == (409, "policy-taken")
    assert stored_object(objects, namespace, name) is None


def test_network_policy_without_rules_is_not_created(server, objects, namespace, name):
    assert server.request_json("POST", ROOT, {"name": name, "network_policy": {}})[0] == 201
    assert network_policy_of(objects, namespace, name) is None


def test_rejected_sandbox_leaves_no_network_policy(server, objects, namespace, name):
    body = {"name": name, "network_policy": {"egress": []}}
    assert server.request_json("POST", ROOT, {"name": name})[0] == 201
    assert server.request_json("POST", ROOT, body)[0] == 409
    assert network_policy_of(objects, namespace, name) is None


def test_rejected_network_policy_leaves_no_objects(server, objects, namespace, name):
    for rule in ({"nonsense": 1}, {"to": [{"ipBlock": {"cidr": "everywhere"}}]}):
        status, problem = server.request_json(
            "POST", ROOT, {"name": name, "network_policy": {"egress": [rule]}}
        )
        assert (status, problem["code"]) == (422, "invalid")
        assert stored_object(objects, namespace, name) is None


def test_repeated_create_keeps_original_shutdown_time(server, name):
    first = server.request_json("POST", ROOT, {"name": name, "shutdown_after": 60})
    threading.Event().wait(1.1)  # the cluster keeps whole seconds
    second = server.request_json("POST", ROOT, {"name": name, "shutdown_after": 60})
    assert (first[0], second[0], second[1]["shutdown_time"]) == (201, 200, str(first[1]["shutdown_time"]))


def test_template_sandbox_is_created_through_claim(server, objects, namespace, name):
    extension = {"apiVersion": EXTENSIONS_API_VERSION}
    status, problem = server.request_json("POST", ROOT, {"name": name, "template": name})
    assert (status, problem["code"]) == (422, "no-template")
    pool = {"replicas": 0, "sandboxTemplateRef": {"name": name}}
    objects.ensure(
        {**extension, "kind": "SandboxWarmPool", "metadata": {"name": f"p-{name}"}, "spec": pool},
        namespace=namespace,
    )
    refused = server.request_json("POST", ROOT, {"name": name, "template": name, "image": "x:1"})
    assert refused[0] == 422
    body = {"name": name, "template": name, "labels": {"team": "blue"}}
    status, shown = server.request_json("POST", ROOT, body)
    assert (status, shown["name"], shown["phase"], shown["sandbox_claim"]) == (201, name, "Pending", name)
    assert server.request_json("POST", ROOT, body)[0] == 200
    made = stored_object(objects, namespace, name, "SandboxClaim", EXTENSIONS_API_VERSION)
    assert made["spec"]["warmPoolRef"]["name"] == f"p-{name}"
    assert server.request_json("GET", f"{ROOT}/{name}")[1]["sandbox_claim"] == name
    status, problem = server.request_json("POST", ROOT, {"name": name})
    assert (status, problem["code"]) == (409, "sandbox-differs")
    assert "created from a template" in problem["message"]
    assert stored_object(objects, namespace, name) is None
    nothing = {"workspace": "none", "pvc": None, "pvcs": []}
    assert server.request_json("DELETE", f"{ROOT}/{name}")[1] == {"deleted": True, **nothing}
    assert stored_object(objects, namespace, name, "SandboxClaim", EXTENSIONS_API_VERSION) is None


def test_admission_rejection_message_is_returned(server, objects, namespace, name):
    rule = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    boxes = {
        "apiGroups": ["agents.x-k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"],
        "resources": ["sandboxes"],
    }  # fmt: skip
    wrong = {
        "expression": f"object.metadata.name != '{name}'", "reason": "Forbidden", "message": "not on Mondays",
    }  # fmt: skip
    policy = {"matchConstraints": {"resourceRules": [boxes]}, "validations": [wrong]}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    objects.create({**rule, "kind": "ValidatingAdmissionPolicy", "spec": policy})
    objects.create({**rule, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound})
    try:
        box = from_request.sandbox_manifest(
            SandboxRequest(name=name, image="app:1"), namespace=namespace, endpoint=None
        )
        Policy(attempts=None, deadline=60, retry_on=NotReadyError).call(
            lambda: assert_forbidden(objects, box)
        )
        status, problem = server.request_json("POST", ROOT, {"name": name, "image": "app:1"})
        assert (status, problem["code"]) == (422, "forbidden")
        assert "not on Mondays" in problem["message"]
        assert "policy" in problem["hint"]
    finally:
        for kind in ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"):
            objects.delete(kind, name, api_version=rule["apiVersion"])


class NotReadyError(Exception):
    """The policy exists, but is not enforced yet."""


def assert_forbidden(objects, box):
    try:
        objects.create(box)
    except ApiRequestRejectedError:
        return
    objects.delete("Sandbox", box["metadata"]["name"], namespace=box["metadata"]["namespace"],
                   api_version=API_VERSION)  # fmt: skip
    raise NotReadyError
