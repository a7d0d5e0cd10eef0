"""The fault kit in front of a real API server, seen by the bare official client."""

from __future__ import annotations

import subprocess

import pytest
import urllib3
from kubernetes import client, config, watch

from holdfast.testing.apiserver.processes import node_binary
from holdfast.testing.faults import rule

pytestmark = pytest.mark.apiserver


@pytest.fixture
def api(faulty_kube):
    made = client.Configuration()
    made.retries = False
    loader = config.new_client_from_config(str(faulty_kube.kubeconfig), client_configuration=made)
    with loader:
        yield client.CoreV1Api(loader)


def config_map(name="a"):
    return {"metadata": {"name": name}, "data": {"x": "1"}}


def exists(server, namespace, name="a"):
    return server.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}")[0] == 200


@pytest.mark.parametrize(("kind", "done"), [("reset-before", False), ("reset-after", True)])
def test_resets_before_and_after_commit(api, faulty_kube, kube_server, kube_namespace, kind, done):
    with (
        faulty_kube.faults(rule(kind, methods="POST")) as log,
        pytest.raises((urllib3.exceptions.HTTPError, OSError)),
    ):
        api.create_namespaced_config_map(kube_namespace, config_map())
    assert exists(kube_server, kube_namespace) is done
    assert [record.committed for record in log] == [done]


def test_leader_change_may_have_committed(api, faulty_kube, kube_server, kube_namespace):
    with (
        faulty_kube.faults(rule("leader-changed", commit=True)),
        pytest.raises(client.ApiException) as caught,
    ):
        api.create_namespaced_config_map(kube_namespace, config_map())
    assert caught.value.status == 500
    assert "leader changed" in caught.value.body
    assert exists(kube_server, kube_namespace)


def test_watches_stream_and_end_as_configured(api, faulty_kube, kube_namespace):
    for name in ("a", "b", "c"):
        api.create_namespaced_config_map(kube_namespace, config_map(name))
    with faulty_kube.faults(rule("event-gone", events=2)):
        stream = watch.Watch().stream(
            api.list_namespaced_config_map, kube_namespace, resource_version="0", timeout_seconds=30
        )
        seen = [next(stream)["object"].metadata.name, next(stream)["object"].metadata.name]
        with pytest.raises(client.ApiException) as caught:
            next(stream)
    assert seen == ["a", "b"]
    assert caught.value.status == 410


def test_large_responses_pass_unchanged(api, kube_namespace):
    for number in range(20):
        body = {"metadata": {"name": f"big-{number}"}, "data": {"x": "y" * 50_000}}
        api.create_namespaced_config_map(kube_namespace, body)
    items = api.list_namespaced_config_map(kube_namespace).items
    assert sum(len(item.data["x"]) for item in items) == 1_000_000


def test_kubectl_works_through_proxy(faulty_kube, kube_namespace):
    command = [node_binary(), "kubectl", "--kubeconfig", faulty_kube.kubeconfig, "-n", kube_namespace]
    made = subprocess.run([*command, "create", "configmap", "a"], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "configmap/a created"
    with faulty_kube.faults(rule("unavailable", methods="DELETE", retry_after="absent")):
        refused = subprocess.run(
            [*command, "delete", "configmap", "a"], capture_output=True, text=True, check=False
        )
    assert refused.returncode == 1
    assert "currently unable to handle the request" in refused.stderr


def test_server_errors_pass_unchanged(api, kube_namespace):
    with pytest.raises(client.ApiException) as caught:
        api.read_namespaced_config_map("missing", kube_namespace)
    assert caught.value.status == 404
