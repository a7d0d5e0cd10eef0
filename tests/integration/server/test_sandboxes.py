"""Sandboxes through the API on a real API server: made once, found, suspended and deleted."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from holdfast.errors import ClusterRefusedError
from holdfast.retry import Policy
from holdfast.sandbox import creation
from holdfast.sandbox.api import API_VERSION, EXTENSIONS_API_VERSION, NAME_HASH
from holdfast.sandbox.names import name_hash
from holdfast.sandbox.wire import NetworkPolicy, SandboxRequest
from holdfast.server.service import ASKED
from holdfast.server.volumes import KEPT

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

ROOT = "/v1/sandboxes"


def claim(objects, namespace, name):
    return objects.get("PersistentVolumeClaim", f"workspace-{name}", namespace=namespace)


def own_policy(objects, namespace, name):
    return objects.get("NetworkPolicy", f"{name}-sandbox-policy", namespace=namespace)


def stored(objects, namespace, name, kind="Sandbox", version=API_VERSION):
    return objects.get(kind, name, namespace=namespace, api_version=version)


def test_made_once_and_found_as_it_is(server, objects, namespace, name):
    body = {"name": name, "image": "app:1", "env": {"A": "1"}, "labels": {"team": "blue"}}
    status, made = server.call("POST", ROOT, body)
    assert (status, made["phase"], made["image"]) == (201, "Pending", "app:1")
    assert server.call("POST", ROOT, body)[0] == 200
    assert server.call("GET", f"{ROOT}/{name}") == (200, made)
    box = stored(objects, namespace, name)
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
def test_another_one_of_that_name_is_a_conflict_that_says_what_differs(server, name, change, words):
    body = {"name": name, "image": "app:1", "env": {"A": "1"}}
    assert server.call("POST", ROOT, body)[0] == 201
    status, problem = server.call("POST", ROOT, body | change)
    assert (status, problem["code"]) == (409, "sandbox-differs")
    assert words in problem["message"]


def test_the_same_request_to_another_version_finds_what_the_former_made(server, objects, namespace, name):
    """Their default images differ, and what else an object is made of may, too."""
    body = {"name": name, "env": {"A": "1"}}
    assert server.call("POST", ROOT, body)[0] == 201
    spec = stored(objects, namespace, name)["spec"]
    spec["podTemplate"]["spec"]["containers"][0]["image"] = "holdfast/sandbox:0.0.1"
    objects.patch("Sandbox", name, {"spec": spec}, namespace=namespace, api_version=API_VERSION)
    status, shown = server.call("POST", ROOT, body)
    assert (status, shown["image"]) == (200, "holdfast/sandbox:0.0.1")
    assert "differs in env" in server.call("POST", ROOT, {"name": name})[1]["message"]
    said = {"metadata": {"annotations": {ASKED: "rubbish"}}}
    objects.patch("Sandbox", name, said, namespace=namespace, api_version=API_VERSION)
    assert server.call("POST", ROOT, body)[1]["code"] == "sandbox-differs"


def test_one_that_somebody_else_made_is_a_conflict_too(server, objects, namespace, name):
    spec = {"podTemplate": {"spec": {"containers": [{"name": "x", "image": "y"}]}}}
    objects.ensure(
        {"apiVersion": API_VERSION, "kind": "Sandbox", "metadata": {"name": name}, "spec": spec},
        namespace=namespace,
    )
    status, problem = server.call("POST", ROOT, {"name": name})
    assert (status, problem["code"]) == (409, "sandbox-differs")
    assert server.call("GET", f"{ROOT}/{name}")[1]["image"] == "y"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"name": "Upper"}, "name"), ({"name": "a", "size": 3}, "size"), ({}, "name"), ([], "object"),
        ({"name": "a", "workspace": {"size": "big"}}, "size"), ({"name": "a", "env": {"1": "x"}}, "env"),
        ({"name": "a", "labels": {"holdfast.dev/x": "y"}}, "labels"), ({"name": "a", "cpu": "-1"}, "cpu"),
        ({"name": "a", "shutdown_time": "tomorrow"}, "shutdown_time"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_meant_names_the_field(server, body, word):
    status, problem = server.call("POST", ROOT, body)
    assert (status, problem["code"]) == (400, "bad-request")
    assert word in problem["message"]


def test_a_request_larger_than_any_is_refused(server):
    status, problem = server.call("POST", ROOT, {"name": "a", "args": ["x" * (1 << 21)]})
    assert (status, problem["code"]) == (413, "too-large")


def test_what_is_not_there_says_so(server):
    for method, path in [
        ("GET", ""), ("DELETE", ""), ("POST", "/suspend"), ("POST", "/resume"), ("GET", "/events"),
        ("GET", "/logs"), ("GET", "/files?path=/x"),
    ]:  # fmt: skip
        status, problem = server.call(method, f"{ROOT}/nobody{path}")
        assert (status, problem["code"]) == (404, "sandbox-missing"), path


def test_suspend_and_resume_write_the_wish_and_twice_is_once(server, objects, namespace, hand, name):
    server.call("POST", ROOT, {"name": name, "workspace": False})
    hand.look(name)
    for word, mode in [("suspend", "Suspended"), ("suspend", "Suspended"), ("resume", "Running")]:
        status, shown = server.call("POST", f"{ROOT}/{name}/{word}")
        assert (status, shown["phase"]) == (200, "Pending")
        assert stored(objects, namespace, name)["spec"]["operatingMode"] == mode
    server.call("POST", f"{ROOT}/{name}/suspend")
    objects.delete("Pod", name, namespace=namespace)
    hand.look(name)
    assert server.call("GET", f"{ROOT}/{name}")[1]["phase"] == "Suspended"


def test_delete_says_what_becomes_of_the_data(server, objects, namespace, hand, name):
    server.call("POST", ROOT, {"name": name})
    hand.look(name)
    assert server.call("GET", f"{ROOT}/{name}")[1]["workspace"]["phase"] == "Pending"
    status, said = server.call("DELETE", f"{ROOT}/{name}")
    named = {"claim": f"workspace-{name}", "claims": [f"workspace-{name}"]}
    assert (status, said) == (200, {"deleted": True, "workspace": "deleted", **named})
    assert stored(objects, namespace, name) is None
    server.call("POST", ROOT, {"name": f"{name}-x", "workspace": False})
    assert server.call("DELETE", f"{ROOT}/{name}-x")[1]["workspace"] == "none"


def test_a_kept_workspace_is_nobodys_until_a_sandbox_of_that_name_comes_back(
    server, objects, namespace, hand, name
):
    server.call("POST", ROOT, {"name": name})
    hand.look(name)
    owned = claim(objects, namespace, name)
    assert owned["metadata"]["ownerReferences"]
    said = server.call("DELETE", f"{ROOT}/{name}?keep_workspace=true")[1]
    assert (said["workspace"], said["claim"]) == ("kept", f"workspace-{name}")
    kept = claim(objects, namespace, name)
    assert kept["metadata"]["uid"] == owned["metadata"]["uid"]
    assert not kept["metadata"].get("ownerReferences")
    # What the garbage collector does in a cluster.
    objects.delete("Pod", name, namespace=namespace)
    assert server.call("POST", ROOT, {"name": name})[0] == 201
    hand.look(name)
    again, box = claim(objects, namespace, name), stored(objects, namespace, name)
    assert again["metadata"]["uid"] == owned["metadata"]["uid"]
    assert again["metadata"]["ownerReferences"][0]["uid"] == box["metadata"]["uid"]


def test_between_disowning_and_deleting_the_controller_does_not_take_it_back(
    server, objects, namespace, hand, name
):
    """The first half of a delete that died in the middle: a look leaves the claim alone."""
    server.call("POST", ROOT, {"name": name})
    hand.look(name)
    blocked = {"metadata": {"finalizers": ["test.holdfast.dev/wait"]}}
    objects.patch("Sandbox", name, blocked, namespace=namespace, api_version=API_VERSION)
    assert server.call("DELETE", f"{ROOT}/{name}?keep_workspace=true")[0] == 200
    assert server.call("GET", f"{ROOT}/{name}")[1]["phase"] == "Deleting"
    assert server.call("POST", ROOT, {"name": name})[1]["code"] == "sandbox-deleting"
    hand.look(name)
    assert not claim(objects, namespace, name)["metadata"].get("ownerReferences")
    objects.patch(
        "Sandbox", name, {"metadata": {"finalizers": None}}, namespace=namespace, api_version=API_VERSION
    )


def test_a_create_in_the_middle_of_a_delete_does_not_take_the_data_along(
    server, objects, namespace, hand, name
):
    """Disowned, and not deleted yet: the sandbox that is there must not get its claim back."""
    assert server.call("POST", ROOT, {"name": name})[0] == 201
    hand.look(name)
    change = {"labels": {NAME_HASH: None, KEPT: name_hash(name)}, "ownerReferences": None}
    objects.patch("PersistentVolumeClaim", f"workspace-{name}", {"metadata": change}, namespace=namespace)
    assert server.call("POST", ROOT, {"name": name})[0] == 200
    hand.look(name)
    assert not claim(objects, namespace, name)["metadata"].get("ownerReferences")
    said = server.call("DELETE", f"{ROOT}/{name}?keep_workspace=true")[1]
    assert (said["workspace"], said["claims"]) == ("kept", [f"workspace-{name}"])
    # One without a workspace leaves it to the next that wants one.
    assert server.call("POST", ROOT, {"name": name, "workspace": False})[0] == 201
    assert claim(objects, namespace, name)["metadata"]["labels"][KEPT] == name_hash(name)


def test_the_same_create_many_times_at_once_takes_a_kept_workspace_up(server, objects, namespace, hand, name):
    server.call("POST", ROOT, {"name": name})
    hand.look(name)
    server.call("DELETE", f"{ROOT}/{name}?keep_workspace=true")
    connections = [server.connect(server.bundle.client) for _ in range(8)]

    def post(connection):
        with closing(connection):
            connection.request("POST", ROOT, json.dumps({"name": name}), {"content-type": "application/json"})
            return connection.getresponse().status

    with ThreadPoolExecutor(len(connections)) as threads:
        answers = list(threads.map(post, connections))
    assert sorted(answers) == [200] * 7 + [201]
    labels = claim(objects, namespace, name)["metadata"]["labels"]
    assert (labels.get(KEPT), labels[NAME_HASH]) == (None, name_hash(name))


def test_every_claim_of_a_sandbox_is_kept_and_named(server, objects, namespace, hand, name):
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
    hand.look(name)
    names = [f"{each}-{name}" for each in ("workspace", "data", "cache")]
    assert server.call("DELETE", f"{ROOT}/{name}?keep_workspace=true")[1] == {
        "deleted": True, "workspace": "kept", "claim": names[0], "claims": names,
    }  # fmt: skip
    for each in names:
        found = objects.get("PersistentVolumeClaim", each, namespace=namespace)
        assert not found["metadata"].get("ownerReferences")


def test_a_claim_that_is_on_its_way_out_is_not_told_as_kept(server, objects, namespace, hand, name):
    server.call("POST", ROOT, {"name": name})
    hand.look(name)
    place = {"namespace": namespace}
    waiting = {"metadata": {"finalizers": ["test.holdfast.dev/wait"]}}
    objects.patch("PersistentVolumeClaim", f"workspace-{name}", waiting, **place)
    objects.delete("PersistentVolumeClaim", f"workspace-{name}", **place)
    said = server.call("DELETE", f"{ROOT}/{name}?keep_workspace=true")[1]
    assert (said["workspace"], said["claims"]) == ("deleted", [f"workspace-{name}"])
    gone = {"metadata": {"finalizers": None}}
    objects.patch("PersistentVolumeClaim", f"workspace-{name}", gone, **place)


def test_a_network_policy_is_the_sandboxs_own(server, objects, namespace, name):
    rules = {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}], "ingress": []}
    body = {"name": name, "network_policy": rules}
    assert server.call("POST", ROOT, body)[0] == 201
    assert server.call("POST", ROOT, body)[0] == 200
    policy = own_policy(objects, namespace, name)
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    owner = stored(objects, namespace, name)["metadata"]["uid"]
    assert [each["uid"] for each in policy["metadata"]["ownerReferences"]] == [owner]
    # Lost or changed, the same request makes up for it.
    changed = {"spec": {"egress": [], "policyTypes": ["Egress"]}}
    objects.patch("NetworkPolicy", f"{name}-sandbox-policy", changed, namespace=namespace)
    assert server.call("POST", ROOT, body)[0] == 200
    assert own_policy(objects, namespace, name)["spec"] == policy["spec"]
    objects.delete("NetworkPolicy", f"{name}-sandbox-policy", namespace=namespace)
    assert server.call("POST", ROOT, body)[0] == 200
    again = own_policy(objects, namespace, name)
    assert [each["uid"] for each in again["metadata"]["ownerReferences"]] == [owner]


def test_a_network_policy_of_somebody_else_is_left_alone(server, objects, namespace, name):
    made = {}
    for each in (name, f"{name}-sandbox-policy"):
        manifest = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": each},
            "spec": {"podSelector": {}, "policyTypes": ["Egress"]},
        }
        made[each] = objects.ensure(manifest, namespace=namespace).object
    status, problem = server.call("POST", ROOT, {"name": name, "network_policy": {"egress": []}})
    assert (status, problem["code"]) == (409, "policy-taken")
    assert stored(objects, namespace, name) is None
    for each, before in made.items():
        assert objects.get("NetworkPolicy", each, namespace=namespace) == before


def test_the_network_policy_of_an_attempt_that_was_cut_is_taken_over(server, objects, namespace, name):
    asked = SandboxRequest(name=name, network_policy=NetworkPolicy(egress=[]))
    left = objects.ensure(creation.network_policy(asked, namespace=namespace)).object
    other = {"name": name, "network_policy": {"ingress": []}}
    assert server.call("POST", ROOT, other)[1]["code"] == "policy-taken"
    assert server.call("POST", ROOT, {"name": name, "network_policy": {"egress": []}})[0] == 201
    policy = own_policy(objects, namespace, name)
    assert policy["metadata"]["uid"] == left["metadata"]["uid"]
    assert policy["metadata"]["ownerReferences"][0]["name"] == name
    # That sandbox is gone, and its policy goes soon: no sandbox may rely on it.
    server.call("DELETE", f"{ROOT}/{name}")
    again = server.call("POST", ROOT, {"name": name, "network_policy": {"egress": []}})
    assert (again[0], again[1]["code"]) == (409, "policy-taken")
    assert stored(objects, namespace, name) is None


def test_a_network_policy_without_rules_is_none(server, objects, namespace, name):
    assert server.call("POST", ROOT, {"name": name, "network_policy": {}})[0] == 201
    assert own_policy(objects, namespace, name) is None


def test_a_sandbox_that_is_refused_leaves_no_network_policy(server, objects, namespace, name):
    body = {"name": name, "network_policy": {"egress": []}}
    assert server.call("POST", ROOT, {"name": name})[0] == 201
    assert server.call("POST", ROOT, body)[0] == 409
    assert own_policy(objects, namespace, name) is None


def test_a_network_policy_that_the_cluster_refuses_leaves_nothing_behind(server, objects, namespace, name):
    for rule in ({"nonsense": 1}, {"to": [{"ipBlock": {"cidr": "everywhere"}}]}):
        status, problem = server.call("POST", ROOT, {"name": name, "network_policy": {"egress": [rule]}})
        assert (status, problem["code"]) == (422, "invalid")
        assert stored(objects, namespace, name) is None


def test_the_same_words_later_leave_an_end_in_seconds_where_it_was(server, name):
    first = server.call("POST", ROOT, {"name": name, "shutdown_after": 60})
    threading.Event().wait(1.1)  # the cluster keeps whole seconds
    second = server.call("POST", ROOT, {"name": name, "shutdown_after": 60})
    assert (first[0], second[0], second[1]["shutdown_time"]) == (201, 200, str(first[1]["shutdown_time"]))


def test_a_template_is_reached_through_a_claim_on_its_pool(server, objects, namespace, name):
    extension = {"apiVersion": EXTENSIONS_API_VERSION}
    status, problem = server.call("POST", ROOT, {"name": name, "template": name})
    assert (status, problem["code"]) == (422, "no-pool")
    pool = {"replicas": 0, "sandboxTemplateRef": {"name": name}}
    objects.ensure(
        {**extension, "kind": "SandboxWarmPool", "metadata": {"name": f"p-{name}"}, "spec": pool},
        namespace=namespace,
    )
    refused = server.call("POST", ROOT, {"name": name, "template": name, "image": "x:1"})
    assert refused[0] == 422
    body = {"name": name, "template": name, "labels": {"team": "blue"}}
    status, shown = server.call("POST", ROOT, body)
    assert (status, shown["name"], shown["phase"], shown["claim"]) == (201, name, "Pending", name)
    assert server.call("POST", ROOT, body)[0] == 200
    made = stored(objects, namespace, name, "SandboxClaim", EXTENSIONS_API_VERSION)
    assert made["spec"]["warmPoolRef"]["name"] == f"p-{name}"
    assert server.call("GET", f"{ROOT}/{name}")[1]["claim"] == name
    status, problem = server.call("POST", ROOT, {"name": name})
    assert (status, problem["code"]) == (409, "sandbox-differs")
    assert "of a template" in problem["message"]
    assert stored(objects, namespace, name) is None
    nothing = {"workspace": "none", "claim": None, "claims": []}
    assert server.call("DELETE", f"{ROOT}/{name}")[1] == {"deleted": True, **nothing}
    assert stored(objects, namespace, name, "SandboxClaim", EXTENSIONS_API_VERSION) is None


def test_what_a_rule_of_the_cluster_forbids_is_refused_with_its_words(server, objects, namespace, name):
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
        box = creation.manifest(SandboxRequest(name=name, image="app:1"), namespace=namespace, endpoint=None)
        Policy(attempts=None, deadline=60, retry_on=NotYetError).call(lambda: assert_forbidden(objects, box))
        status, problem = server.call("POST", ROOT, {"name": name, "image": "app:1"})
        assert (status, problem["code"]) == (422, "forbidden")
        assert "not on Mondays" in problem["message"]
        assert "rule" in problem["hint"]
    finally:
        for kind in ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"):
            objects.delete(kind, name, api_version=rule["apiVersion"])


class NotYetError(Exception):
    """The rule is there, but nobody keeps to it yet."""


def assert_forbidden(objects, box):
    try:
        objects.create(box)
    except ClusterRefusedError:
        return
    objects.delete("Sandbox", box["metadata"]["name"], namespace=box["metadata"]["namespace"],
                   api_version=API_VERSION)  # fmt: skip
    raise NotYetError
