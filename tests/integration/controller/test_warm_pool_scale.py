"""A pool by its scale subresource and its short name, as kubectl and an autoscaler use them."""

from __future__ import annotations

import json
import subprocess

import pytest
from tests.support.controller_process import EVENTUALLY, default_pod_spec, status_of

from holdfast.testing.apiserver.processes import node_binary

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

POOL = "scaled"


@pytest.fixture(scope="module")
def kubectl(control_plane, ns):
    def run(*words, fails=False):
        command = [node_binary(), "kubectl", "--kubeconfig", control_plane.kubeconfig, "-n", ns.namespace]
        ended = subprocess.run([*command, *words], capture_output=True, text=True, check=False, timeout=60)
        assert bool(ended.returncode) == fails, ended.stdout + ended.stderr
        return ended.stderr if fails else ended.stdout

    return run


@pytest.fixture
def pool_scale(ns, controller, kubelet, kubectl):
    """A pool with one that waits, and how its scale looks."""
    ns.create("SandboxTemplate", POOL, {"podTemplate": {"spec": default_pod_spec()}})
    ns.create("SandboxWarmPool", POOL, {"sandboxTemplateRef": {"name": POOL}})
    path = f"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{ns.namespace}/sandboxwarmpools/{POOL}/scale"

    def scale():
        found = json.loads(kubectl("get", "--raw", path))
        return (
            found["spec"].get("replicas", 0),
            found["status"].get("replicas", 0),
            found["status"]["selector"],
        )

    wait_ready(ns, 1)
    return scale


def wait_ready(place, count):
    return place.wait(
        "SandboxWarmPool", POOL, lambda found: status_of(found).get("readyReplicas", 0) == count
    )


def test_scale_subresource_reports_replicas_and_selector_finds_pods(ns, kubectl, pool_scale):
    assert pool_scale()[:2] == (1, 1)
    kubectl("scale", f"swp/{POOL}", "--replicas=3")
    wait_ready(ns, 3)
    asked, there, selector = pool_scale()
    assert (asked, there) == (3, 3)
    # What an autoscaler measures: the very pods of those that wait.
    assert pods_by_selector(kubectl, selector) == {each["metadata"]["name"] for each in ns.list("Sandbox")}
    assert kubectl("get", "swp", POOL).split()[:7] == ["NAME", "READY", "DESIRED", "AGE", POOL, "3", "3"]
    refused = json.dumps({"spec": {"replicas": -1}})
    said = kubectl("patch", f"swp/{POOL}", "--subresource=scale", "--type=merge", "-p", refused, fails=True)
    assert "spec.replicas" in said

    ns.create("SandboxClaim", "mine", {"warmPoolRef": {"name": POOL}})
    bound = ns.wait_conditions("SandboxClaim", "mine", Ready="True DependenciesReady")
    taken = bound["status"]["sandbox"]["name"]
    assert kubectl("get", "sandboxclaim", "mine").split()[:8] == [
        "NAME", "READY", "SANDBOX", "REASON", "AGE", "mine", "True", taken,
    ]  # fmt: skip
    EVENTUALLY.call(lambda: assert_warm_pods(ns, kubectl, selector, count=3, but=taken))

    kubectl("scale", f"swp/{POOL}", "--replicas=0")
    EVENTUALLY.call(lambda: assert_warm_pods(ns, kubectl, selector, count=0, but=taken))
    ns.wait("SandboxWarmPool", POOL, lambda found: not status_of(found).get("replicas"))
    assert pool_scale()[:2] == (0, 0)


def pods_by_selector(kubectl, selector):
    pods = json.loads(kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
    return {pod["metadata"]["name"] for pod in pods}


def assert_warm_pods(place, kubectl, selector, *, count, but):
    """So many wait, and the selector finds their pods but not the one that was taken."""
    names = {each["metadata"]["name"] for each in place.list("Sandbox")}
    assert but in names
    assert pods_by_selector(kubectl, selector) == names - {but}
    assert len(names) == count + 1
