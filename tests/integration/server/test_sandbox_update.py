"""Updates of sandboxes through the API on a real API server; a stand-in for the kubelet resizes pods."""

from __future__ import annotations

import json
import threading
from contextlib import closing, contextmanager

import pytest

from holdfast.api import API_VERSION, EXTENSIONS_API_VERSION
from holdfast.sandbox.manifests import pod_manifest

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

ROOT = "/v1/sandboxes"


@pytest.fixture
def cluster(objects, namespace):
    return Cluster(objects, namespace)


class Cluster:
    """The objects of one sandbox, as the controller and the kubelet see them."""

    def __init__(self, objects, namespace):
        self.objects, self.namespace = objects, namespace

    def sandbox(self, name):
        return self.objects.get("Sandbox", name, namespace=self.namespace, api_version=API_VERSION)

    def pod(self, name):
        return self.objects.get("Pod", name, namespace=self.namespace)

    def start_pod(self, name):
        """What the controller creates and the kubelet runs."""
        manifest = pod_manifest(self.sandbox(name))
        manifest["spec"]["serviceAccountName"] = "default"
        self.objects.create(manifest)
        self.report(name)

    def report(self, name, **condition):
        """Report the resources of the pod's spec as enforced, or why they are not."""
        pod = self.pod(name)
        (container,) = pod["spec"]["containers"]
        before = (pod.get("status") or {}).get("containerStatuses") or [{}]
        resources = before[0].get("resources", {}) if condition else container["resources"]
        status = {
            "name": container["name"], "image": container["image"], "imageID": "i", "ready": True,
            "restartCount": 0, "resources": resources,
        }  # fmt: skip
        rows = [{"status": "True", "lastTransitionTime": None, **condition}] if condition else []
        patch = {"phase": "Running", "containerStatuses": [status], "conditions": rows}
        self.objects.patch(
            "Pod", name, {"status": patch}, namespace=self.namespace, uid=pod["metadata"]["uid"],
            subresource="status",
        )  # fmt: skip

    @contextmanager
    def kubelet(self, name, **condition):
        """Report once the spec of the pod has other resources than now."""
        before = self.pod(name)["spec"]["containers"][0]["resources"]

        def follow():
            self.objects.wait(
                "Pod", name, lambda pod: pod["spec"]["containers"][0]["resources"] != before,
                namespace=self.namespace, deadline=30,
            )  # fmt: skip
            self.report(name, **condition)

        thread = threading.Thread(target=follow)
        thread.start()
        yield
        thread.join()


def limits(obj):
    pod = obj["spec"]["podTemplate"]["spec"] if obj["kind"] == "Sandbox" else obj["spec"]
    return pod["containers"][0]["resources"]["limits"]


def create(server, name, **fields):
    assert server.request_json("POST", ROOT, {"name": name, **fields})[0] == 201


def update(server, name, /, **fields):
    return server.request_json("PATCH", f"{ROOT}/{name}", fields)


def test_running_pod_is_resized_and_not_replaced(server, cluster, name):
    create(server, name, cpu="1", memory="256Mi")
    cluster.start_pod(name)
    uid = cluster.pod(name)["metadata"]["uid"]
    with cluster.kubelet(name):
        status, result = update(server, name, cpu="500m", memory="512Mi")
    assert (status, result["applied"], result["pending"]) == (200, ["cpu", "memory"], [])
    assert (result["sandbox"]["cpu"], result["sandbox"]["memory"]) == ("500m", "512Mi")
    assert limits(cluster.pod(name)) == {"cpu": "500m", "memory": "512Mi"}
    assert cluster.pod(name)["metadata"]["uid"] == uid
    seed = cluster.sandbox(name)["spec"]["podTemplate"]["spec"]["initContainers"][0]
    assert seed["resources"]["limits"] == {"cpu": "500m", "memory": "512Mi"}


def test_infeasible_resize_is_undone_and_waits_for_the_resume(server, cluster, name):
    create(server, name, cpu="1")
    cluster.start_pod(name)
    condition = {"type": "PodResizePending", "reason": "Infeasible", "message": "the node has no such CPUs"}
    with cluster.kubelet(name, **condition):
        status, result = update(server, name, cpu="64")
    assert (status, result["applied"], result["pending"]) == (200, [], ["cpu"])
    assert result["notes"] == ["cpu: the node has no such CPUs"]
    assert limits(cluster.sandbox(name))["cpu"] == "64"
    assert limits(cluster.pod(name))["cpu"] == "1"


def test_resize_that_does_not_complete_is_undone_and_waits_for_the_resume(server, cluster, name):
    create(server, name, cpu="1")
    cluster.start_pod(name)
    status, result = update(server, name, cpu="2")
    assert (status, result["pending"]) == (200, ["cpu"])
    assert result["notes"] == ["cpu: the kubelet has not applied it yet"]
    assert limits(cluster.pod(name))["cpu"] == "1"
    with cluster.kubelet(name):
        assert update(server, name, cpu="2")[1]["applied"] == ["cpu"]


def test_resize_that_kubernetes_rejects_waits_for_the_resume(server, cluster, name):
    """Requests equal to the limits would make the pod Guaranteed, and its QoS class cannot change."""
    create(server, name, cpu="1", memory="256Mi", workspace=False)
    cluster.start_pod(name)
    status, result = update(server, name, cpu="20m", memory="32Mi")
    assert (status, result["pending"]) == (200, ["cpu", "memory"])
    assert "QOS" in result["notes"][0].upper()
    assert limits(cluster.pod(name)) == {"cpu": "1", "memory": "256Mi"}


def test_environment_and_image_wait_for_the_next_pod(server, cluster, name):
    create(server, name, image="app:1", env={"KEPT": "$(HOME)", "OLD": "1"})
    cluster.start_pod(name)
    status, result = update(server, name, image="app:2", env={"OLD": None, "NEW": "$$"})
    assert (status, result["applied"], result["pending"]) == (200, [], ["image", "env"])
    (container,) = cluster.sandbox(name)["spec"]["podTemplate"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert container["image"] == "app:2"
    assert (variables["KEPT"], variables["NEW"]) == ("$$(HOME)", "$$$$")
    assert "OLD" not in variables
    cluster.objects.delete("Pod", name, namespace=cluster.namespace, wait=30, grace_seconds=0)
    cluster.start_pod(name)
    assert update(server, name, image="app:2", env={"NEW": "$$"})[1]["applied"] == ["image", "env"]


def test_everything_about_the_pod_of_a_suspended_sandbox_waits(server, name):
    create(server, name)
    server.request_json("POST", f"{ROOT}/{name}/suspend")
    status, result = update(server, name, cpu="1", labels={"team": "red"}, idle_suspend_after=600)
    assert status == 200
    assert result["applied"] == ["idle_suspend_after"]
    assert result["pending"] == ["cpu", "labels"]


def test_labels_reach_the_running_pod(server, cluster, name, reconciler):
    create(server, name, labels={"team": "blue", "old": "1"})
    cluster.start_pod(name)
    follower = threading.Thread(target=lambda: follow_labels(cluster, name))
    follower.start()
    status, result = update(server, name, labels={"team": "red", "old": None})
    follower.join()
    assert (status, result["applied"]) == (200, ["labels"])
    assert cluster.sandbox(name)["metadata"]["labels"]["team"] == "red"
    assert "old" not in result["sandbox"]["labels"]


def follow_labels(cluster, name):
    """What the controller does with the labels of the template."""
    cluster.objects.wait(
        "Sandbox", name, lambda sandbox: sandbox["metadata"]["labels"]["team"] == "red",
        namespace=cluster.namespace, api_version=API_VERSION, deadline=30,
    )  # fmt: skip
    cluster.objects.patch(
        "Pod", name, {"metadata": {"labels": {"team": "red", "old": None}}}, namespace=cluster.namespace
    )


def test_repeated_create_matches_new_options_and_lists_differences_of_old_ones(server, name):
    before = {"image": "app:1", "cpu": "1", "env": {"A": "1", "B": "2"}, "labels": {"team": "blue"}}
    create(server, name, **before)
    changes = {
        "cpu": "2", "env": {"A": None, "C": "3"}, "labels": {"team": "red"}, "idle_suspend_after": 60,
        "failed_pods": "Keep",
    }  # fmt: skip
    assert update(server, name, **changes)[0] == 200
    after = {
        "image": "app:1", "cpu": "2", "env": {"B": "2", "C": "3"}, "labels": {"team": "red"},
        "idle_suspend_after": 60, "failed_pods": "Keep",
    }  # fmt: skip
    assert server.request_json("POST", ROOT, {"name": name, **after})[0] == 200
    status, problem = server.request_json("POST", ROOT, {"name": name, **before})
    assert (status, problem["code"]) == (409, "sandbox-differs")
    assert "env, failed_pods, idle_suspend_after, labels" in problem["message"]
    assert "env differs in A, C" in problem["message"]
    restored = {
        "cpu": "1", "env": {"A": "1", "C": None}, "labels": {"team": "blue"}, "idle_suspend_after": None,
        "failed_pods": "Recreate",
    }  # fmt: skip
    assert update(server, name, **restored)[0] == 200
    assert server.request_json("POST", ROOT, {"name": name, **before})[0] == 200


def test_concurrent_updates_and_annotation_writes_lose_nothing(server, cluster, name):
    create(server, name, labels={"n": "0"})
    connections = [server.connect(server.bundle.client) for _ in range(6)]

    def send(number):
        sent = json.dumps({"env": {f"V{number}": str(number)}})
        with closing(connections[number]) as connection:
            connection.request("PATCH", f"{ROOT}/{name}", sent, {"Content-Type": "application/json"})
            statuses.append(connection.getresponse().status)

    def annotate():
        for number in range(20):
            change = {"metadata": {"annotations": {"holdfast.dev/last-used": str(number)}}}
            cluster.objects.patch(
                "Sandbox", name, change, namespace=cluster.namespace, api_version=API_VERSION
            )

    statuses: list[int] = []
    threads = [threading.Thread(target=send, args=(number,)) for number in range(6)]
    threads.append(threading.Thread(target=annotate))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 6
    (container,) = cluster.sandbox(name)["spec"]["podTemplate"]["spec"]["containers"]
    assert {f"V{number}" for number in range(6)} <= {each["name"] for each in container["env"]}


def test_shutdown_time_is_set_and_removed(server, cluster, name):
    create(server, name)
    status, result = update(server, name, shutdown_after=3600)
    assert (status, result["applied"]) == (200, ["shutdown_after"])
    assert cluster.sandbox(name)["spec"]["shutdownTime"] == result["sandbox"]["shutdown_time"]
    assert update(server, name, shutdown_after=None)[1]["sandbox"]["shutdown_time"] is None


@pytest.mark.parametrize(
    ("changes", "expected", "words"),
    [
        ({}, 422, "no changes"),
        ({"memory": "1Mi"}, 422, "16Mi"),
        ({"cpu": "-1"}, 400, "cpu"),
        ({"cpu": 1}, 400, "cpu"),
        ({"env": {"1A": "x"}}, 400, "env"),
        ({"env": {"HOLDFAST_SANDBOX": "x"}}, 422, "HOLDFAST_SANDBOX"),
        ({"env": {"HOLDFAST_SANDBOX_ID": None}}, 422, "HOLDFAST_SANDBOX_ID"),
        ({"labels": {"holdfast.dev/sandbox-id": None}}, 400, "reserved"),
        ({"labels": {"app": "sandbox-router"}}, 422, "reserved"),
        ({"idle_suspend_after": 0}, 400, "idle_suspend_after"),
        ({"workspace": False}, 400, "workspace"),
        ({"name": "other"}, 400, "name"),
    ],
)
def test_invalid_updates_are_rejected_and_change_nothing(server, cluster, name, changes, expected, words):
    create(server, name)
    before = cluster.sandbox(name)
    status, problem = update(server, name, **changes)
    assert (status, words in problem["message"]) == (expected, True), problem
    assert cluster.sandbox(name) == before


def test_update_of_missing_sandbox_is_404(server, name):
    status, problem = update(server, name, cpu="1")
    assert (status, problem["code"]) == (404, "sandbox-missing")


def test_sandbox_from_template_accepts_only_what_its_template_does_not_determine(
    server, objects, cluster, namespace, name
):
    create(server, name)
    sandbox = cluster.sandbox(name)
    owner = {
        "apiVersion": EXTENSIONS_API_VERSION, "kind": "SandboxClaim", "name": name, "controller": True,
        "uid": "7f7d3cf4-9d6d-4b3c-8f2b-5f0f6c1d2e3f",
    }  # fmt: skip
    change = {"metadata": {"ownerReferences": [owner]}}
    objects.patch("Sandbox", name, change, namespace=namespace, api_version=API_VERSION)
    status, problem = update(server, name, cpu="1", labels={"a": "b"}, idle_suspend_after=60)
    assert (status, problem["code"]) == (422, "template-determines")
    assert "determines cpu, labels" in problem["message"]
    assert cluster.sandbox(name)["spec"] == sandbox["spec"]
    assert update(server, name, idle_suspend_after=60)[1]["applied"] == ["idle_suspend_after"]
