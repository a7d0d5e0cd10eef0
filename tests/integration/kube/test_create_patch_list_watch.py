"""Create, patch, list and follow on a real server: once, this very object, and all of them."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ObjectConflictError, TemporaryError
from holdfast.kube import AsyncObjects, Objects, api_client, async_api_client, condition
from holdfast.retry import Budget, Policy, exponential
from holdfast.testing.faults import rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]

POLICY = Policy(
    attempts=None, deadline=60, backoff=exponential(0.01, cap=0.2), budget=Budget(1000, burst=1000)
)


@pytest.fixture
def objects(faulty_kube):
    with api_client(faulty_kube.kubeconfig) as made:
        yield Objects(made, POLICY)


def config_map(name="a", value="1", **labels):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": {"x": value},
    }


def claim(name="c"):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def test_create_with_lost_response_returns_created_object(objects, faulty_kube, kube_namespace):
    with faulty_kube.faults(rule("reset-after", methods="POST", count=2)):
        made = objects.create(config_map(), namespace=kube_namespace)
    assert (
        made["metadata"]["uid"] == objects.get("ConfigMap", "a", namespace=kube_namespace)["metadata"]["uid"]
    )


def test_create_of_existing_equal_object_is_a_conflict(objects, kube_namespace):
    objects.create(config_map(), namespace=kube_namespace)
    with pytest.raises(ObjectConflictError, match="ConfigMap"):
        objects.create(config_map(), namespace=kube_namespace)


def test_patch_merges_removes_keys_and_reports_missing_object(objects, kube_namespace):
    objects.create(config_map(keep="1", drop="2"), namespace=kube_namespace)
    patch = {"metadata": {"labels": {"drop": None}}, "data": {"y": "2"}}
    found = objects.patch("ConfigMap", "a", patch, namespace=kube_namespace)
    assert (found["metadata"]["labels"], found["data"]) == ({"keep": "1"}, {"x": "1", "y": "2"})
    assert objects.patch("ConfigMap", "b", patch, namespace=kube_namespace) is None


def test_patch_with_uid_or_version_changes_only_that_object(objects, kube_namespace):
    made = objects.create(config_map(), namespace=kube_namespace)
    about = {"namespace": kube_namespace}
    with pytest.raises(ObjectConflictError, match="the uid has changed"):
        objects.patch("ConfigMap", "a", {"data": {"x": "2"}}, uid="0-0-0", **about)
    objects.patch("ConfigMap", "a", {"data": {"x": "3"}}, uid=made["metadata"]["uid"], **about)
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "4"}}
    with pytest.raises(ObjectConflictError):
        objects.patch("ConfigMap", "a", old, **about)
    assert objects.get("ConfigMap", "a", **about)["data"] == {"x": "3"}


def test_status_patch_changes_only_status(objects, kube_namespace):
    objects.create(claim(), namespace=kube_namespace)
    patch = {"spec": {"volumeName": "v"}, "status": {"phase": "Lost"}}
    found = objects.patch("PersistentVolumeClaim", "c", patch, namespace=kube_namespace, subresource="status")
    assert found["status"]["phase"] == "Lost"
    assert "volumeName" not in found["spec"]


def widget_crd():
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.test.example"},
        "spec": {
            "group": "test.example",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [version],
        },
    }


def test_status_patch_of_custom_resource_changes_only_the_object_with_that_uid(objects, kube_namespace):
    """The server ignores the uid in the metadata of a status patch of a custom resource."""
    objects.ensure(widget_crd())
    objects.wait("CustomResourceDefinition", "widgets.test.example", condition("Established"))
    about = {"namespace": kube_namespace, "api_version": "test.example/v1"}
    widget = {"apiVersion": "test.example/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
    first = objects.create(widget, namespace=kube_namespace)
    objects.delete("Widget", "w", wait=30, **about)
    second = objects.create(widget, namespace=kube_namespace)
    # A change of the spec, which a resourceVersion would make a conflict.
    objects.patch("Widget", "w", {"spec": {"size": 1}}, **about)

    def patch_status(obj, status):
        uid = obj["metadata"]["uid"]
        return objects.patch("Widget", "w", {"status": status}, uid=uid, subresource="status", **about)

    with pytest.raises(ObjectConflictError, match="the uid has changed"):
        patch_status(first, {"phase": "Old"})
    assert patch_status(second, {"phase": "New", "detail": 1})["status"] == {"phase": "New", "detail": 1}
    assert patch_status(second, {"phase": "Newer"})["status"] == {"phase": "Newer"}


@pytest.mark.parametrize("chunk", [1, 3, 250])
def test_chunked_list_is_complete(objects, kube_namespace, chunk):
    for number in range(7):
        objects.create(config_map(f"m-{number}", odd=str(number % 2)), namespace=kube_namespace)
    found = objects.list("ConfigMap", namespace=kube_namespace, label_selector="odd=1", chunk_size=chunk)
    assert [each["metadata"]["name"] for each in found.items] == ["m-1", "m-3", "m-5"]
    assert {(each["kind"], each["apiVersion"]) for each in found.items} == {("ConfigMap", "v1")}
    assert int(found.resource_version) > 0
    everywhere = objects.list("ConfigMap", label_selector="odd=1")
    assert {each["metadata"]["name"] for each in everywhere.items} >= {"m-1", "m-3", "m-5"}


def test_async_objects(faulty_kube, kube_namespace):
    async def all_of_it():
        async with await async_api_client(faulty_kube.kubeconfig) as api:
            objects = AsyncObjects(api, POLICY)
            with faulty_kube.faults(rule("reset-after", methods={"POST", "PATCH"}, count=2)):
                made = await objects.create(config_map(), namespace=kube_namespace)
                uid = made["metadata"]["uid"]
                patch = {"data": {"x": "2"}}
                await objects.patch("ConfigMap", "a", patch, namespace=kube_namespace, uid=uid)
            return uid, await objects.list("ConfigMap", namespace=kube_namespace)

    uid, found = asyncio.run(all_of_it())
    ours = [each for each in found.items if each["metadata"]["name"] == "a"]
    assert [(each["metadata"]["uid"], each["data"]) for each in ours] == [(uid, {"x": "2"})]


def test_follow_reports_each_change_since_version(objects, faulty_kube, kube_namespace):
    before = objects.create(config_map("old", mine="1"), namespace=kube_namespace)
    told = []

    async def follow(version):
        async with await async_api_client(faulty_kube.kubeconfig) as api:
            return await AsyncObjects(api).watch(
                "ConfigMap", tell, resource_version=version, namespace=kube_namespace, label_selector="mine=1"
            )

    def tell(what, found):
        told.append((what, found["metadata"]["name"], found["kind"]))
        if what == "DELETED":
            raise RuntimeError("enough")

    objects.create(config_map("other"), namespace=kube_namespace)
    objects.create(config_map("new", mine="1"), namespace=kube_namespace)
    objects.patch("ConfigMap", "new", {"data": {"y": "2"}}, namespace=kube_namespace)
    objects.delete("ConfigMap", "new", namespace=kube_namespace)
    with pytest.raises(RuntimeError, match="enough"):
        asyncio.run(follow(before["metadata"]["resourceVersion"]))
    assert told == [(what, "new", "ConfigMap") for what in ("ADDED", "MODIFIED", "DELETED")]


@pytest.mark.parametrize("fault", ["gone", "event-gone"])
def test_follow_from_expired_version_requires_list(objects, faulty_kube, kube_namespace, fault):
    async def follow():
        async with await async_api_client(faulty_kube.kubeconfig) as api:
            return await AsyncObjects(api).watch(
                "ConfigMap", print, resource_version="1", namespace=kube_namespace
            )

    objects.create(config_map(), namespace=kube_namespace)
    with faulty_kube.faults(rule(fault, query="watch=true", count=1)):
        assert asyncio.run(follow()) is False


def test_cut_follow_connection_is_a_transient_error(faulty_kube, kube_namespace):
    async def follow():
        async with await async_api_client(faulty_kube.kubeconfig) as api:
            await AsyncObjects(api).watch("ConfigMap", print, resource_version="0", namespace=kube_namespace)

    with faulty_kube.faults(rule("reset-before", methods="GET", count=9)), pytest.raises(TemporaryError):
        asyncio.run(follow())
