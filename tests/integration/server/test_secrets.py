"""Secrets through the API on a real API server: written, used by sandboxes, and never read back."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from holdfast.api import API_VERSION
from holdfast.sandbox import secret_object_name

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

ROOT = "/v1/secrets"
VALUE = "planted-value-4711"


def packed(text):
    return base64.b64encode(text.encode()).decode()


def body(name, *, replace=False, **values):
    return {"name": name, "data": {key: packed(value) for key, value in values.items()}, "replace": replace}


def stored(objects, namespace, name):
    return objects.get("Secret", secret_object_name(name), namespace=namespace)


def test_create_is_idempotent_and_responses_contain_no_values(server, objects, namespace, name):
    answers = [server.request_json("POST", ROOT, body(name, TOKEN=VALUE, USER="me")) for _ in range(2)]
    assert [(status, answer["effect"]) for status, answer in answers] == [
        (201, "created"),
        (200, "unchanged"),
    ]
    assert answers[0][1]["secret"]["keys"] == ["TOKEN", "USER"]
    listed = server.request_json("GET", ROOT)
    assert name in [secret["name"] for secret in listed[1]["items"]]
    one = server.request_json("GET", f"{ROOT}/{name}")
    assert (one[0], one[1]["sandboxes"]) == (200, [])
    shown = json.dumps([answers, listed, one])
    assert VALUE not in shown
    assert packed(VALUE) not in shown
    assert stored(objects, namespace, name)["data"]["TOKEN"] == packed(VALUE)
    assert stored(objects, namespace, name)["metadata"]["labels"]["holdfast.dev/secret"] == name


def test_other_values_are_a_conflict_until_they_are_replaced(server, objects, namespace, name):
    server.request_json("POST", ROOT, body(name, TOKEN=VALUE, OLD="1"))
    status, problem = server.request_json("POST", ROOT, body(name, TOKEN="other-value", NEW="1"))
    assert (status, problem["code"]) == (409, "secret-differs")
    assert problem["message"] == f"secret {name}: exists, and differs in NEW, OLD, TOKEN"
    assert "other-value" not in json.dumps(problem)
    assert stored(objects, namespace, name)["data"] == {"TOKEN": packed(VALUE), "OLD": packed("1")}
    status, answer = server.request_json("POST", ROOT, body(name, replace=True, TOKEN="other-value", NEW="1"))
    assert (status, answer["effect"]) == (200, "replaced")
    assert stored(objects, namespace, name)["data"] == {"TOKEN": packed("other-value"), "NEW": packed("1")}


def test_concurrent_creations_and_replacements_end_with_one_of_them(server, objects, namespace, name):
    connections = [server.connect(server.bundle.client) for _ in range(8)]

    def write(number):
        sent = json.dumps(body(name, replace=True, TOKEN=str(number)))
        with closing(connections[number]) as connection:
            connection.request("POST", ROOT, sent, {"Content-Type": "application/json"})
            return connection.getresponse().status

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(write, range(8))) <= {200, 201}
    assert base64.b64decode(stored(objects, namespace, name)["data"]["TOKEN"]) in b"01234567"


def test_delete_reports_users_and_second_delete_is_404(server, name):
    server.request_json("POST", ROOT, body(name, TOKEN=VALUE))
    use = {"name": name, "secrets": [{"name": name}]}
    assert server.request_json("POST", "/v1/sandboxes", use)[0] == 201
    assert server.request_json("GET", f"{ROOT}/{name}")[1]["sandboxes"] == [name]
    assert server.request_json("DELETE", f"{ROOT}/{name}") == (200, {"deleted": True, "sandboxes": [name]})
    status, problem = server.request_json("DELETE", f"{ROOT}/{name}")
    assert (status, problem["code"]) == (404, "secret-missing")


@pytest.mark.parametrize("labels", [{}, {"holdfast.dev/secret": "another"}])
def test_foreign_kubernetes_secret_is_neither_shown_replaced_mounted_nor_deleted(
    server, objects, namespace, name, labels
):
    """A Secret of another program is out of reach, even under the name that holdfast would use."""
    metadata = {"name": secret_object_name(name), "namespace": namespace, "labels": labels}
    data = {"tls.key": packed(VALUE)}
    objects.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    uses = {"name": name, "secrets": [{"name": name, "path": "/etc/keys"}]}
    for method, path, sent in (
        ("GET", f"{ROOT}/{name}", None),
        ("POST", ROOT, body(name, replace=True, TOKEN="mine")),
        ("DELETE", f"{ROOT}/{name}", None),
        ("POST", "/v1/sandboxes", uses),
    ):
        status, problem = server.request_json(method, path, sent)
        assert (status, problem["code"]) == (409, "secret-foreign"), method
        assert VALUE not in json.dumps(problem)
    assert name not in [secret["name"] for secret in server.request_json("GET", ROOT)[1]["items"]]
    assert stored(objects, namespace, name)["data"] == data
    assert objects.get("Sandbox", name, namespace=namespace, api_version=API_VERSION) is None


def test_secrets_of_the_gateway_have_no_name_in_this_api(server, objects, namespace):
    for taken in ("holdfast-server-tls", "holdfast-sandbox-tls", "holdfast-sandbox-proxy"):
        metadata = {"name": taken, "namespace": namespace}
        objects.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"k": packed(VALUE)}}
        )
        assert server.request_json("GET", f"{ROOT}/{taken}")[0] == 404
        status, problem = server.request_json(
            "POST", "/v1/sandboxes", {"name": taken, "secrets": [{"name": taken, "path": "/keys"}]}
        )
        assert (status, problem["code"]) == (422, "secret-missing")
        server.request_json("POST", ROOT, body(taken, replace=True, k="mine"))
        assert objects.get("Secret", taken, namespace=namespace)["data"] == {"k": packed(VALUE)}


def test_sandbox_refers_to_secrets_by_name_and_contains_no_value(server, objects, namespace, name):
    server.request_json("POST", ROOT, body(name, TOKEN=VALUE))
    request = {"name": name, "secrets": [{"name": name}, {"name": name, "path": "/etc/db"}]}
    assert server.request_json("POST", "/v1/sandboxes", request)[0] == 201
    assert server.request_json("POST", "/v1/sandboxes", request)[0] == 200
    sandbox = objects.get("Sandbox", name, namespace=namespace, api_version=API_VERSION)
    assert VALUE not in json.dumps(sandbox)
    assert packed(VALUE) not in json.dumps(sandbox)
    pod = sandbox["spec"]["podTemplate"]["spec"]
    (container,) = pod["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": secret_object_name(name)}}]
    assert {"name": "secret-0", "mountPath": "/etc/db", "readOnly": True} in container["volumeMounts"]
    assert all("envFrom" not in each for each in pod["initContainers"])
    status, problem = server.request_json("POST", "/v1/sandboxes", {**request, "secrets": [{"name": name}]})
    assert (status, problem["code"]) == (409, "sandbox-differs")
    assert "secrets" in problem["message"]


def test_missing_secret_is_an_immediate_error_and_nothing_is_created(server, objects, namespace, name):
    status, problem = server.request_json(
        "POST", "/v1/sandboxes", {"name": name, "secrets": [{"name": name}]}
    )
    assert (status, problem["code"]) == (422, "secret-missing")
    assert problem["message"] == f"secret {name}: not found"
    assert f"`holdfast secret create {name}`" in problem["hint"]
    assert objects.get("Sandbox", name, namespace=namespace, api_version=API_VERSION) is None


def test_resume_without_the_secret_is_an_immediate_error(server, name):
    server.request_json("POST", ROOT, body(name, TOKEN=VALUE))
    server.request_json("POST", "/v1/sandboxes", {"name": name, "secrets": [{"name": name}]})
    server.request_json("POST", f"/v1/sandboxes/{name}/suspend")
    server.request_json("DELETE", f"{ROOT}/{name}")
    status, problem = server.request_json("POST", f"/v1/sandboxes/{name}/resume")
    assert (status, problem["code"]) == (422, "secret-missing")
    server.request_json("POST", ROOT, body(name, TOKEN=VALUE))
    assert server.request_json("POST", f"/v1/sandboxes/{name}/resume")[0] == 200


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tls.crt": "x"}, "key 'tls.crt' is not a valid environment variable name"),
        ({"BINARY": "a\0b"}, "the value of key 'BINARY' is not text"),
    ],
)
def test_keys_that_cannot_be_variables_have_to_be_mounted(server, name, values, words):
    server.request_json("POST", ROOT, body(name, **values))
    status, problem = server.request_json(
        "POST", "/v1/sandboxes", {"name": name, "secrets": [{"name": name}]}
    )
    assert (status, problem["code"]) == (422, "secret-env")
    assert problem["message"] == f"secret {name}: {words}"
    mounted = {"name": name, "secrets": [{"name": name, "path": f"/secrets/{name}"}]}
    assert server.request_json("POST", "/v1/sandboxes", mounted)[0] == 201


@pytest.mark.parametrize(
    "sent",
    [
        {"name": "Upper", "data": {"a": ""}}, {"name": "a" * 64, "data": {"a": ""}},
        {"name": "a", "data": {}}, {"name": "a", "data": {"..": ""}}, {"name": "a", "data": {"kéy": ""}},
        {"name": "a", "data": {"a": VALUE + "!"}}, {"name": "a", "data": {"a": ""}, "extra": 1},
    ],
)  # fmt: skip
def test_malformed_secrets_are_rejected_without_quoting_values(server, sent):
    status, problem = server.request_json("POST", ROOT, sent)
    assert status == 400
    assert VALUE not in json.dumps(problem)


def test_values_above_the_limit_of_kubernetes_are_rejected(server, name):
    status, problem = server.request_json("POST", ROOT, body(name, BIG="x" * (1 << 20)))
    assert (status, problem["code"]) == (422, "usage")
    assert server.request_json("POST", ROOT, body(name, BIG="x" * ((1 << 20) - 3)))[0] == 201
