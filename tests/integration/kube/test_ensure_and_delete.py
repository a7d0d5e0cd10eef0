"""Ensure, delete and generated names on a real server: once, ours, and only what was meant."""

from __future__ import annotations

import threading

import pytest
from kubernetes import client

from holdfast.errors import ObjectConflictError
from holdfast.kube import Objects, api_client, resilient
from holdfast.retry import Budget, Policy, exponential
from holdfast.testing.faults import Fault, rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]

POLICY = Policy(
    attempts=None, deadline=60, backoff=exponential(0.01, cap=0.2), budget=Budget(1000, burst=1000)
)
LOST_RESPONSE_FAULTS = [
    "reset-after",
    "truncated",
    Fault(kind="gateway-timeout", commit=True),
    Fault(kind="leader-changed", commit=True),
    Fault(kind="server-timeout", commit=True),
    Fault(kind="stall-headers", seconds=0.1, commit=True),
    Fault(kind="html", status=502, commit=True),
    Fault(kind="html", status=200, commit=True),
]


@pytest.fixture
def objects(faulty_kube):
    with api_client(faulty_kube.kubeconfig) as made:
        yield Objects(made, POLICY)


def config_map(value="1", **metadata):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata or {"name": "a"},
        "data": {"x": value},
    }


def object_names(server, namespace, resource="configmaps"):
    return server.request("GET", f"/api/v1/namespaces/{namespace}/{resource}")[1]["items"]


@pytest.mark.parametrize(
    "fault", LOST_RESPONSE_FAULTS, ids=lambda fault: fault if isinstance(fault, str) else fault.kind
)
@pytest.mark.parametrize("named", ["name", "generateName"])
def test_create_with_lost_responses_creates_one_object(
    objects, faulty_kube, kube_server, kube_namespace, fault, named
):
    with faulty_kube.faults(rule(fault, methods="POST", count=3)):
        result = objects.ensure(
            config_map(**{named: "a-"[: 1 if named == "name" else 2]}), namespace=kube_namespace
        )
    assert result.effect == "created"
    (live,) = object_names(kube_server, kube_namespace)
    assert live["metadata"]["uid"] == result.uid


def test_resilient_client_create_with_lost_response_creates_one_object(
    faulty_kube, kube_server, kube_namespace
):
    with (
        api_client(faulty_kube.kubeconfig) as made,
        faulty_kube.faults(rule(*LOST_RESPONSE_FAULTS, methods="POST", count=4)),
    ):
        api = resilient(client.CoreV1Api(made), POLICY)
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(generate_name="gen-"), data={"x": "1"})
        created = api.create_namespaced_config_map(kube_namespace, body)
    (live,) = object_names(kube_server, kube_namespace)
    assert live["metadata"]["name"] == created.metadata.name
    assert body.metadata.name is None


def test_twenty_threads_ensure_one_object(objects, faulty_kube, kube_server, kube_namespace):
    results, errors = [], []

    def work():
        try:
            results.append(objects.ensure(config_map(), namespace=kube_namespace, owner="us").effect)
        except Exception as error:  # noqa: BLE001 - shown with the others
            errors.append(error)

    with faulty_kube.faults(rule(*LOST_RESPONSE_FAULTS, "reset-before", probability=0.4)):
        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert sorted(results) == ["created"] + ["unchanged"] * 19
    assert len(object_names(kube_server, kube_namespace)) == 1


def test_equal_object_is_adopted_and_different_object_is_a_conflict(objects, kube_server, kube_namespace):
    kube_server.request("POST", f"/api/v1/namespaces/{kube_namespace}/configmaps", config_map("1"))
    assert objects.ensure(config_map("1"), namespace=kube_namespace).effect == "adopted"
    with pytest.raises(ObjectConflictError, match=r"differs in data\.x"):
        objects.ensure(config_map("2"), namespace=kube_namespace)
    objects.ensure(config_map(name="b"), namespace=kube_namespace, owner="them")
    with pytest.raises(ObjectConflictError, match="belongs to 'them'"):
        objects.ensure(config_map(name="b"), namespace=kube_namespace, owner="us")


def test_already_exists_then_deleted_is_created_again(objects, faulty_kube, kube_server, kube_namespace):
    path = f"/api/v1/namespaces/{kube_namespace}/configmaps"
    kube_server.request("POST", path, config_map("theirs"))
    seen = threading.Event()

    def vanish():
        while not any(record.upstream_status == 409 for record in faulty_kube.log):
            assert not seen.wait(0.005)
        kube_server.request("DELETE", f"{path}/a")

    other = threading.Thread(target=vanish)
    other.start()
    with faulty_kube.faults(rule("slow", methods="GET", path="/a$", seconds=1.0)):
        result = objects.ensure(config_map("ours"), namespace=kube_namespace)
    other.join()
    assert result.effect == "created"
    assert [item["data"]["x"] for item in object_names(kube_server, kube_namespace)] == ["ours"]


def test_delete_removes_only_object_with_expected_uid(objects, faulty_kube, kube_server, kube_namespace):
    path = f"/api/v1/namespaces/{kube_namespace}/configmaps"
    first = objects.ensure(config_map("1"), namespace=kube_namespace)
    kube_server.request("DELETE", f"{path}/a")
    later = objects.ensure(config_map("2"), namespace=kube_namespace)
    assert objects.delete("ConfigMap", "a", namespace=kube_namespace, uid=first.uid).effect == "absent"
    assert [item["metadata"]["uid"] for item in object_names(kube_server, kube_namespace)] == [later.uid]


@pytest.mark.parametrize(
    "fault", LOST_RESPONSE_FAULTS, ids=lambda fault: fault if isinstance(fault, str) else fault.kind
)
def test_delete_with_lost_responses_succeeds(objects, faulty_kube, kube_server, kube_namespace, fault):
    objects.ensure(config_map(), namespace=kube_namespace)
    with faulty_kube.faults(rule(fault, methods="DELETE", count=3)):
        assert objects.delete("ConfigMap", "a", namespace=kube_namespace).effect == "deleted"
        assert objects.delete("ConfigMap", "a", namespace=kube_namespace).effect == "absent"
    assert object_names(kube_server, kube_namespace) == []


def test_delete_can_wait_for_finalizers(objects, faulty_kube, kube_server, kube_namespace):
    path = f"/api/v1/namespaces/{kube_namespace}/configmaps"
    objects.ensure(config_map(name="a", finalizers=["holdfast.dev/test"]), namespace=kube_namespace)

    def let_go():
        while "deletionTimestamp" not in kube_server.request("GET", f"{path}/a")[1]["metadata"]:
            threading.Event().wait(0.02)
        _, live = kube_server.request("GET", f"{path}/a")
        live["metadata"]["finalizers"] = []
        kube_server.request("PUT", f"{path}/a", live)

    other = threading.Thread(target=let_go)
    other.start()
    with faulty_kube.faults(rule("drop-stream", "event-gone", "end-stream", probability=0.5)):
        assert objects.delete("ConfigMap", "a", namespace=kube_namespace, wait=60).effect == "deleted"
    other.join()
    assert object_names(kube_server, kube_namespace) == []


def test_stale_replace_and_list_patch_are_not_retried_blindly(faulty_kube, kube_server, kube_namespace):
    with api_client(faulty_kube.kubeconfig) as made:
        api = resilient(client.CoreV1Api(made), POLICY)
        body = {"metadata": {"name": "a", "finalizers": ["holdfast.dev/one"]}, "data": {"x": "1"}}
        live = api.create_namespaced_config_map(kube_namespace, body)
        with faulty_kube.faults(rule("reset-after", methods="PUT", count=1)):
            live.data = {"x": "2"}
            assert api.replace_namespaced_config_map("a", kube_namespace, live).data == {"x": "2"}
        live.data = {"x": "3"}
        with pytest.raises(client.ApiException) as conflict:
            api.replace_namespaced_config_map("a", kube_namespace, live)
        assert conflict.value.status == 409
        add = [{"op": "add", "path": "/metadata/finalizers/-", "value": "holdfast.dev/two"}]
        with (
            faulty_kube.faults(rule("gateway-timeout", methods="PATCH", commit=True)) as log,
            pytest.raises(client.ApiException) as lost,
        ):
            api.patch_namespaced_config_map("a", kube_namespace, add)
    assert lost.value.status == 504
    assert sum(record.method == "PATCH" for record in log) == 1
    (found,) = object_names(kube_server, kube_namespace)
    assert found["metadata"]["finalizers"] == ["holdfast.dev/one", "holdfast.dev/two"]
    assert found["data"] == {"x": "2"}
