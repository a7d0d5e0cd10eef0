"""Stale nodes are removed from a real cluster with their stuck pods; everything else is kept."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from holdfast.events import EventBus
from holdfast.gateway import GatewayContext
from holdfast.gateway.pv_migration import NodeView, RemoveStaleNodes, classify_nodes, remove_nodes
from holdfast.gateway.pv_migration.stale_nodes import MEMBER_LABEL
from holdfast.gateway.spec import node_name
from holdfast.kube import WaitResult, object_deleted
from holdfast.workflow import SQLiteStore, Workflow

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

GATEWAY = "dev"
SERVER = "holdfast-dev"


class NoContainerEngine(GatewayContext):
    """A gateway without a container."""

    def container(self):
        return None


@pytest.fixture
def gateway(tmp_path, monkeypatch, control_plane):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    context = NoContainerEngine(GATEWAY)
    context.files.kubeconfig.parent.mkdir(parents=True)
    shutil.copy(control_plane.kubeconfig, context.files.kubeconfig)
    return context


def run_step(gateway, tmp_path):
    """Run only this step; return its last event."""
    step = RemoveStaleNodes(gateway)
    step.needs = ()
    events = []
    Workflow("up", [step]).run(store=SQLiteStore(tmp_path / "state.db"), bus=EventBus(events.append))
    return [event for event in events if getattr(event, "step", "") == step.name][-1]


def list_nodes(objects):
    return [NodeView.from_object(node) for node in objects.list("Node").items]


def node_names(objects):
    return {node.name for node in list_nodes(objects)}


def test_stale_nodes_are_deleted_and_members_stay(cluster, node_cluster, gateway, tmp_path):
    cluster.node(SERVER)
    cluster.node("worker", **{MEMBER_LABEL: node_name(GATEWAY)})
    cluster.node("4f3a9c01d2b7")
    cluster.node("older")
    shown = run_step(gateway, tmp_path)
    assert shown.note == "removed 2: 4f3a9c01d2b7, older"
    assert node_names(node_cluster) == {SERVER, "worker"}
    shown = run_step(gateway, tmp_path)
    assert shown.reason == f"{SERVER} and 1 worker, no stale nodes"


def test_nothing_is_deleted_while_own_node_is_not_listed(cluster, node_cluster, gateway, tmp_path):
    cluster.node("only")
    shown = run_step(gateway, tmp_path)
    assert shown.reason == f"no node is removed: {SERVER} is not listed"
    assert node_names(node_cluster) == {"only"}


def test_only_stuck_or_replicated_pods_are_deleted_with_their_node(cluster, node_cluster, control_plane):
    cluster.node(SERVER)
    stale = cluster.node("stale")
    bare = cluster.pod("bare", "stale")
    stuck = cluster.pod("stuck", "stale")
    elsewhere = cluster.pod("elsewhere", SERVER)
    for pod in (stuck, elsewhere):
        cluster.objects.delete("Pod", pod["metadata"]["name"], namespace=cluster.namespace)
    pod_name = create_replica_set(cluster, control_plane, "stale")
    found = classify_nodes(list_nodes(node_cluster), gateway=GATEWAY, hostname="")
    assert [node.uid for node in found.stale] == [stale["metadata"]["uid"]]
    removed = remove_nodes(node_cluster, found.stale)
    assert (removed.nodes, removed.pods, removed.failed) == (("stale",), 2, ())
    assert cluster.get("Pod", "stuck") is None
    assert cluster.get("Pod", "bare")["metadata"]["uid"] == bare["metadata"]["uid"]
    assert "deletionTimestamp" not in cluster.get("Pod", "bare")["metadata"]
    assert cluster.get("Pod", "elsewhere")["metadata"]["uid"] == elsewhere["metadata"]["uid"]
    cluster.objects.wait(
        "Pod", pod_name, object_deleted(), namespace=cluster.namespace, deadline=30
    )  # its ReplicaSet creates another pod


def test_reregistered_node_is_not_deleted(cluster, node_cluster):
    cluster.node(SERVER)
    cluster.node("back")
    seen = classify_nodes(list_nodes(node_cluster), gateway=GATEWAY, hostname="").stale
    cluster.objects.delete("Node", "back")
    cluster.node("back")
    pod = cluster.pod("at-work", "back")
    cluster.objects.delete("Pod", "at-work", namespace=cluster.namespace)
    removed = remove_nodes(node_cluster, seen)
    assert (removed.nodes, removed.pods, removed.failed) == ((), 0, ())
    assert "back" in node_names(node_cluster)
    assert cluster.get("Pod", "at-work")["metadata"]["uid"] == pod["metadata"]["uid"]


def test_forbidden_requests_do_not_fail_the_run(cluster, node_cluster, gateway, tmp_path, control_plane):
    cluster.node(SERVER)
    cluster.node("stale")
    shutil.copy(control_plane.user_kubeconfig("somebody"), gateway.files.kubeconfig)
    shown = run_step(gateway, tmp_path)
    assert "no node could be removed" in shown.note
    assert "403" in shown.note or "orbidden" in shown.note
    assert node_names(node_cluster) == {SERVER, "stale"}


def test_unreachable_server_does_not_fail_the_run(gateway, tmp_path, control_plane):
    text = gateway.files.kubeconfig.read_text()
    assert control_plane.url in text
    gateway.files.kubeconfig.write_text(text.replace(control_plane.url, "https://127.0.0.1:9"))
    shown = run_step(gateway, tmp_path)
    assert "no node could be removed" in shown.note


def create_replica_set(cluster, control_plane, node):
    """Create a ReplicaSet, bind its pod to a node and return the pod's name."""
    template = {
        "metadata": {"labels": {"app": "r"}},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "r"}}, "template": template}
    cluster.create("ReplicaSet", "set", version="apps/v1", spec=spec)

    def has_pod(obj):
        return WaitResult(done=((obj or {}).get("status") or {}).get("replicas") == 1, observed="no pod yet")

    cluster.objects.wait("ReplicaSet", "set", has_pod, namespace=cluster.namespace, deadline=30)
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    _, pods_list = control_plane.request("GET", f"{pods}?labelSelector=app%3Dr")
    (pod,) = (each["metadata"]["name"] for each in pods_list["items"])
    binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
    status, answer = control_plane.request("POST", f"{pods}/{pod}/binding", binding)
    assert status == 201, answer
    return pod


def test_probe_does_not_import_kubernetes_models(control_plane):
    code = (
        "import sys; from holdfast.kube import Objects, api_client;"
        f"objects = Objects(api_client({str(control_plane.kubeconfig)!r}));"
        "objects.list('Node'); objects.list('PersistentVolume');"
        "print('kubernetes.client.models.v1_pod' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.split()[-1] == "False"
