"""Templates and warm pools through the API on a real API server: created once, listed, scaled and deleted."""

from __future__ import annotations

import pytest
from tests.integration.server.test_event_streams import EventStream

from holdfast.api import API_VERSION, EXTENSIONS_API_VERSION, WARM_POOL_LABEL
from holdfast.sandbox import from_request, name_hash

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

TEMPLATES, POOLS = "/v1/templates", "/v1/pools"


def stored(objects, namespace, kind, name):
    return objects.get(kind, name, namespace=namespace, api_version=EXTENSIONS_API_VERSION)


@pytest.fixture
def template(server, name):
    body = {"name": name, "image": "app:1", "memory": "1Gi", "env": {"A": "s3cr3t"}, "workspace": False}
    assert server.request_json("POST", TEMPLATES, body)[0] == 201
    return body


@pytest.fixture
def pool(server, template, name):
    body = {"name": name, "template": name, "size": 2}
    assert server.request_json("POST", POOLS, body)[0] == 201
    return body


def set_status(objects, namespace, name, **status):
    body = {"status": {"observedGeneration": 100, **status}}
    objects.patch(
        "SandboxWarmPool", name, body, namespace=namespace, api_version=EXTENSIONS_API_VERSION,
        subresource="status",
    )  # fmt: skip


def add_member(objects, namespace, pool, name, **ready):
    """A sandbox of the pool, with a Ready condition if one is given."""
    owner = stored(objects, namespace, "SandboxWarmPool", pool)
    reference = {"apiVersion": EXTENSIONS_API_VERSION, "kind": "SandboxWarmPool", "name": pool}
    reference |= {"uid": owner["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
    metadata = {"name": name, "namespace": namespace, "labels": {WARM_POOL_LABEL: name_hash(pool)}}
    spec = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}}
    objects.create(
        {
            "apiVersion": API_VERSION,
            "kind": "Sandbox",
            "metadata": {**metadata, "ownerReferences": [reference]},
            "spec": spec,
        }
    )
    condition = {"status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 100}
    explained = {"type": "holdfast.dev/Explanation", **condition, "status": "True", **ready}
    generic = {"reason": "DependenciesNotReady", "message": "m"}
    conditions = [{"type": "Ready", **condition, **generic}, explained] if ready else []
    objects.patch(
        "Sandbox", name, {"status": {"conditions": conditions}}, namespace=namespace,
        api_version=API_VERSION, subresource="status",
    )  # fmt: skip


def test_template_is_created_once_and_shown_without_values_of_variables(server, template, name):
    status, view = server.request_json("POST", TEMPLATES, template)
    assert (status, view["image"], view["memory"], view["env"]) == (200, "app:1", "1Gi", ["A"])
    assert server.request_json("GET", f"{TEMPLATES}/{name}") == (200, view)
    listed = server.request_json("GET", TEMPLATES)[1]["items"]
    assert [each["name"] for each in listed if each["name"] == name] == [name]
    assert "s3cr3t" not in str(view)


def test_sandboxes_of_a_template_get_the_pod_of_a_request_with_the_same_options(
    server, objects, namespace, name
):
    options = {"image": from_request.DEFAULT_IMAGE, "cpu": "1", "command": ["sleep", "9"], "env": {"A": "1"}}
    assert server.request_json("POST", TEMPLATES, {"name": name, **options})[0] == 201
    assert server.request_json("POST", "/v1/sandboxes", {"name": name, **options})[0] == 201
    made = stored(objects, namespace, "SandboxTemplate", name)["spec"]
    box = objects.get("Sandbox", name, namespace=namespace, api_version=API_VERSION)["spec"]
    assert made["volumeClaimTemplates"] == box["volumeClaimTemplates"]
    pods = [spec["podTemplate"]["spec"] for spec in (made, box)]
    identity = {"HOLDFAST_SANDBOX", "HOLDFAST_SANDBOX_ID"}
    variables = [{each["name"] for each in pod["containers"][0].pop("env")} for pod in pods]
    assert variables[1] - variables[0] == identity
    assert pods[0] == pods[1]
    assert (made["networkPolicyManagement"], made["envVarsInjectionPolicy"]) == ("Unmanaged", "Overrides")


def test_omitted_direction_of_a_network_policy_is_not_restricted(server, objects, namespace, name):
    body = {"name": name, "network_policy": {"egress": []}}
    status, view = server.request_json("POST", TEMPLATES, body)
    assert (status, view["network_policy"]) == (201, {"ingress": [{}], "egress": []})
    made = stored(objects, namespace, "SandboxTemplate", name)["spec"]
    assert made["networkPolicy"] == {"ingress": [{}], "egress": []}
    assert made["networkPolicyManagement"] == "Managed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": "app:2"}, "differs in image: image is app:1, requested is app:2"),
        ({"env": {"A": "t0k3n"}}, "differs in env: env differs in A"),
        ({"workspace": {"size": "1Gi"}}, "workspace is not set, requested is 1Gi"),
    ],
)
def test_different_template_of_the_same_name_is_a_conflict(server, template, change, words):
    status, problem = server.request_json("POST", TEMPLATES, template | change)
    assert (status, problem["code"]) == (409, "template-differs")
    assert words in problem["message"]
    assert not {"s3cr3t", "t0k3n"} & set(problem["message"].split())


@pytest.mark.parametrize(
    ("path", "change", "status", "words"),
    [
        (TEMPLATES, {"memory": "512MB"}, 400, "memory"),
        (TEMPLATES, {"memory": "1Mi"}, 422, "write 512Mi"),
        (TEMPLATES, {"labels": {"app": "sandbox-router"}}, 422, "app=sandbox-router is reserved"),
        (TEMPLATES, {"idle_suspend_after": 60}, 400, "idle_suspend_after"),
        (TEMPLATES, {"env": {"HOLDFAST_ENDPOINT": "x"}}, 422, "HOLDFAST_ENDPOINT is set by holdfast"),
        (POOLS, {"template": "t", "size": -1}, 400, "size"),
        (POOLS, {"template": "t", "size": 1001}, 400, "size"),
        (POOLS, {"template": "t", "update_strategy": "Never"}, 400, "update_strategy"),
        (POOLS, {"template": "t", "name": "p" * 57}, 400, "name"),
        (POOLS, {}, 400, "template"),
    ],
)
def test_invalid_request_is_rejected(server, name, path, change, status, words):
    answer, problem = server.request_json("POST", path, {"name": name, **change})
    assert (answer, words in problem["message"]) == (status, True), problem


def test_pool_is_created_once_and_shows_desired_ready_and_available(server, objects, namespace, pool, name):
    status, view = server.request_json("POST", POOLS, pool)
    assert (status, view["phase"], view["image"], view["size"]) == (200, "Pending", "app:1", 2)
    set_status(objects, namespace, name, replicas=2, readyReplicas=1)
    view = server.request_json("GET", f"{POOLS}/{name}")[1]
    assert (view["size"], view["ready"], view["available"]) == (2, 1, 2)
    assert (view["phase"], view["message"]) == ("Pending", "1 of 2 sandboxes are ready")
    set_status(objects, namespace, name, replicas=2, readyReplicas=2)
    (listed,) = [each for each in server.request_json("GET", POOLS)[1]["items"] if each["name"] == name]
    assert (listed["phase"], listed["image"], listed["template"]) == ("Ready", "app:1", name)
    assert server.request_json("GET", f"{TEMPLATES}/{name}")[1]["pools"] == [name]


def test_different_pool_of_the_same_name_is_a_conflict(server, pool, name):
    status, problem = server.request_json("POST", POOLS, pool | {"size": 3})
    assert (status, problem["code"]) == (409, "pool-differs")
    assert "size is 2, requested is 3" in problem["message"]
    assert problem["hint"] == f"Run `holdfast pool scale {name} 3` to change its size."
    problem = server.request_json("POST", POOLS, pool | {"size": 3, "update_strategy": "Recreate"})[1]
    assert "update_strategy is OnReplenish, requested is Recreate" in problem["message"]


def test_pool_is_scaled(server, objects, namespace, pool, name):
    path = f"{POOLS}/{name}"
    status, view = server.request_json("PATCH", path, {"size": 5})
    assert (status, view["size"], view["phase"]) == (200, 5, "Pending")
    assert stored(objects, namespace, "SandboxWarmPool", name)["spec"]["replicas"] == 5
    assert server.request_json("POST", POOLS, pool | {"size": 5})[0] == 200
    assert server.request_json("PATCH", path, {"size": 0})[1]["size"] == 0
    for body in ({"size": -1}, {"size": "5"}, {}, {"size": 1, "name": "x"}):
        assert server.request_json("PATCH", path, body)[0] == 400
    assert server.request_json("PATCH", f"{POOLS}/none", {"size": 1})[1]["code"] == "pool-missing"


@pytest.mark.parametrize(("root", "code"), [(TEMPLATES, "template-missing"), (POOLS, "pool-missing")])
def test_unknown_name_is_not_found(server, root, code):
    for method in ("GET", "DELETE"):
        status, problem = server.request_json(method, f"{root}/none")
        assert (status, problem["code"]) == (404, code)


def test_pages_contain_every_template_and_pool_once(server, name):
    names = [f"{name}-{number}" for number in range(3)]
    for each in names:
        assert server.request_json("POST", TEMPLATES, {"name": each, "labels": {"of": name}})[0] == 201
        assert server.request_json("POST", POOLS, {"name": each, "template": each, "size": 0})[0] == 201
    for root in (f"{TEMPLATES}?limit=1&selector=of%3D{name}", f"{POOLS}?limit=1"):
        found, token = [], ""
        while token is not None:
            page = server.request_json("GET", root + (f"&continue={token}" if token else ""))[1]
            assert len(page["items"]) <= 1
            found += [each["name"] for each in page["items"] if each["name"] in names]
            token = page["next"]
        assert found == names


def test_unknown_template_of_a_pool_or_sandbox_names_the_existing_ones(server, template, name):
    for path, body in ((POOLS, {"name": "p"}), ("/v1/sandboxes", {"name": "s"})):
        status, problem = server.request_json("POST", path, {**body, "template": "none"})
        assert (status, problem["code"]) == (422, "no-template")
        assert problem["message"].startswith("template none: not found; the templates are ")
        assert name in problem["message"] or " more" in problem["message"]


def test_sandbox_of_a_template_without_pool_names_the_command(server, template, name):
    status, problem = server.request_json("POST", "/v1/sandboxes", {"name": "s", "template": name})
    assert (status, problem["code"]) == (422, "no-pool")
    assert f"`holdfast pool create {name} --template {name}`" in problem["hint"]


def test_deletion_of_a_template_reports_its_pools_and_deletes_nothing_else(
    server, objects, namespace, pool, name
):
    assert server.request_json("DELETE", f"{TEMPLATES}/{name}") == (200, {"deleted": True, "pools": [name]})
    status, view = server.request_json("GET", f"{POOLS}/{name}")
    assert (status, view["reason"], view["image"]) == (200, "TemplateNotFound", None)
    assert f"template {name} does not exist" in view["message"]


def test_deletion_of_a_pool_reports_its_sandboxes_and_deletes_none_of_them(
    server, objects, namespace, pool, name
):
    assert server.request_json("POST", "/v1/sandboxes", {"name": f"{name}-a", "template": name})[0] == 201
    bound = {"status": {"sandbox": {"name": f"{name}-a"}}}
    objects.patch(
        "SandboxClaim", f"{name}-a", bound, namespace=namespace, api_version=EXTENSIONS_API_VERSION,
        subresource="status",
    )  # fmt: skip
    assert server.request_json("GET", f"{POOLS}/{name}")[1]["sandboxes"] == [f"{name}-a"]
    result = {"deleted": True, "sandboxes": [f"{name}-a"]}
    assert server.request_json("DELETE", f"{POOLS}/{name}") == (200, result)
    assert stored(objects, namespace, "SandboxWarmPool", name) is None
    assert stored(objects, namespace, "SandboxClaim", f"{name}-a") is not None


def test_pool_explains_the_sandbox_that_cannot_start(server, objects, namespace, pool, name):
    add_member(objects, namespace, name, f"{name}-1")
    add_member(objects, namespace, name, f"{name}-2", reason="ErrImagePull", message="no such image")
    set_status(objects, namespace, name, replicas=2)
    view = server.request_json("GET", f"{POOLS}/{name}")[1]
    assert (view["reason"], view["message"]) == (
        "ErrImagePull", f"0 of 2 sandboxes are ready; {name}-2: no such image",
    )  # fmt: skip


def test_events_of_a_pool_follow_its_status_sandboxes_and_template(server, objects, namespace, pool, name):
    stream = EventStream(server, name, f"{POOLS}/{name}/events")
    event, view = stream.next()
    assert (event, view["message"]) == ("pool", "the controller has not seen the latest change yet")
    set_status(objects, namespace, name, replicas=2)
    assert stream.next()[1]["message"] == "0 of 2 sandboxes are ready"
    add_member(objects, namespace, name, f"{name}-1", reason="ErrImagePull", message="no such image")
    assert stream.next()[1]["reason"] == "ErrImagePull"
    set_status(objects, namespace, name, replicas=2, readyReplicas=2)
    assert stream.next()[1]["phase"] == "Ready"
    server.request_json("DELETE", f"{TEMPLATES}/{name}")
    assert stream.next()[1]["reason"] == "TemplateNotFound"
    server.request_json("DELETE", f"{POOLS}/{name}")
    event, last = stream.next()
    assert (event, last["name"], last["phase"]) == ("deleted", name, "Deleting")
    assert stream.next() is None
    stream.close()


def test_events_of_an_unknown_pool_are_not_found(server):
    assert EventStream(server, "none", f"{POOLS}/none/events").answer.status == 404
