"""Nodes that are no members leave a real cluster with their stuck pods; everything else stays."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from holdfast.engine import SQLiteStore, Workflow
from holdfast.events import Bus
from holdfast.gateway.nodes.membership import MEMBER_LABEL, member_value, membership
from holdfast.gateway.nodes.removal import remove_nodes
from holdfast.gateway.steps.nodes import RemoveStaleNodes
from holdfast.gateway.work import Work
from holdfast.kube import Sight
from holdfast.kube.conditions import deleted

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

GATEWAY = "dev"
SERVER = "holdfast-dev"


class EngineLess(Work):
    """A gateway of whose container nothing is known but its hostname."""

    def container(self):
        return None


@pytest.fixture
def work(tmp_path, monkeypatch, control_plane):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    made = EngineLess(GATEWAY)
    made.files.kubeconfig.parent.mkdir(parents=True)
    shutil.copy(control_plane.kubeconfig, made.files.kubeconfig)
    return made


def run_step(work, tmp_path):
    """The step alone, on the real engine: its result and what was shown of it."""
    step = RemoveStaleNodes(work)
    step.needs = ()
    events = []
    ended = Workflow("up", [step]).run(store=SQLiteStore(tmp_path / "state.db"), bus=Bus(events.append))
    shown = [event for event in events if getattr(event, "step", "") == step.name]
    return ended.result(step.name), shown[-1]


def listed(nodes):
    return {node.name for node in nodes.nodes()}


def test_stale_nodes_go_and_members_stay(cluster, nodes, work, tmp_path):
    cluster.node(SERVER)
    cluster.node("worker", **{MEMBER_LABEL: member_value(GATEWAY)})
    cluster.node("4f3a9c01d2b7")
    cluster.node("older")
    count, shown = run_step(work, tmp_path)
    assert count == 2
    assert shown.note == "removed 2: 4f3a9c01d2b7, older"
    assert listed(nodes) == {SERVER, "worker"}
    count, shown = run_step(work, tmp_path)
    assert (count, shown.reason) == (0, f"{SERVER} and 1 worker, and no other")


def test_nothing_is_removed_while_the_own_node_is_not_listed(cluster, nodes, work, tmp_path):
    cluster.node("only")
    count, shown = run_step(work, tmp_path)
    assert (count, shown.reason) == (0, f"none is removed: {SERVER} is not listed")
    assert listed(nodes) == {"only"}


def test_only_pods_that_cannot_end_or_are_made_again_go_with_their_node(cluster, nodes, control_plane):
    cluster.node(SERVER)
    stale = cluster.node("stale")
    bare = cluster.pod("bare", "stale")
    stuck = cluster.pod("stuck", "stale")
    elsewhere = cluster.pod("elsewhere", SERVER)
    for pod in (stuck, elsewhere):
        cluster.objects.delete("Pod", pod["metadata"]["name"], namespace=cluster.namespace)
    made = replicated(cluster, control_plane, "stale")
    found = membership(nodes.nodes(), gateway=GATEWAY, hostname="")
    assert [node.uid for node in found.stale] == [stale["metadata"]["uid"]]
    removed = remove_nodes(nodes, found.stale)
    assert (removed.nodes, removed.pods, removed.failed) == (("stale",), 2, ())
    assert cluster.get("Pod", "stuck") is None
    assert cluster.get("Pod", "bare")["metadata"]["uid"] == bare["metadata"]["uid"]
    assert "deletionTimestamp" not in cluster.get("Pod", "bare")["metadata"]
    assert cluster.get("Pod", "elsewhere")["metadata"]["uid"] == elsewhere["metadata"]["uid"]
    cluster.objects.wait(
        "Pod", made, deleted(), namespace=cluster.namespace, deadline=30
    )  # its ReplicaSet makes another one, under another name


def test_a_node_that_registered_again_is_another_node_and_stays(cluster, nodes):
    cluster.node(SERVER)
    cluster.node("back")
    seen = membership(nodes.nodes(), gateway=GATEWAY, hostname="").stale
    cluster.objects.delete("Node", "back")
    cluster.node("back")
    pod = cluster.pod("at-work", "back")
    cluster.objects.delete("Pod", "at-work", namespace=cluster.namespace)
    removed = remove_nodes(nodes, seen)
    assert (removed.nodes, removed.pods, removed.failed) == ((), 0, ())
    assert "back" in listed(nodes)
    assert cluster.get("Pod", "at-work")["metadata"]["uid"] == pod["metadata"]["uid"]


def test_a_cluster_that_refuses_does_not_stop_the_run(cluster, nodes, work, tmp_path, control_plane):
    cluster.node(SERVER)
    cluster.node("stale")
    shutil.copy(control_plane.user_kubeconfig("somebody"), work.files.kubeconfig)
    count, shown = run_step(work, tmp_path)
    assert count == 0
    assert "none could be removed" in shown.note
    assert "403" in shown.note or "orbidden" in shown.note
    assert listed(nodes) == {SERVER, "stale"}


def test_a_server_that_is_gone_does_not_stop_the_run(work, tmp_path, control_plane):
    text = work.files.kubeconfig.read_text()
    assert control_plane.url in text
    work.files.kubeconfig.write_text(text.replace(control_plane.url, "https://127.0.0.1:9"))
    count, shown = run_step(work, tmp_path)
    assert count == 0
    assert "none could be removed" in shown.note


def replicated(cluster, control_plane, node):
    """A pod that a ReplicaSet made, bound to a node; returns its name."""
    template = {
        "metadata": {"labels": {"app": "r"}},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "r"}}, "template": template}
    cluster.make("ReplicaSet", "set", version="apps/v1", spec=spec)

    def made(obj):
        return Sight(done=((obj or {}).get("status") or {}).get("replicas") == 1, seen="no pod yet")

    cluster.objects.wait("ReplicaSet", "set", made, namespace=cluster.namespace, deadline=30)
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    _, found = control_plane.request("GET", f"{pods}?labelSelector=app%3Dr")
    (pod,) = (each["metadata"]["name"] for each in found["items"])
    binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
    status, answer = control_plane.request("POST", f"{pods}/{pod}/binding", binding)
    assert status == 201, answer
    return pod


def test_only_looking_loads_no_models_of_kinds(control_plane):
    code = (
        "import sys; from holdfast.gateway.nodes.cluster import NodeCluster;"
        "from holdfast.kube import api_client;"
        f"found = NodeCluster(api_client({str(control_plane.kubeconfig)!r}), None, 30.0);"
        "print(len(found.nodes()), len(found.volumes()), 'kubernetes.client.models.v1_pod' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split()[-1] == "False"
