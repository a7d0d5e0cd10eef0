"""The figures of a usage report, and the number of requests for it."""

import asyncio

from holdfast.api import SandboxRequest
from holdfast.errors import TemporaryError
from holdfast.sandbox import from_request
from holdfast.server.usage import UsageService

NODE = {"status": {"capacity": {"cpu": "2", "memory": "4Gi"}}}


def sandbox(name, **fields):
    request = SandboxRequest(name=name, **fields)
    return from_request.sandbox_manifest(request, namespace="ns", endpoint=None)


def pod(name, namespace="ns", **more):
    memory = {"workingSetBytes": 100, "availableBytes": 900}
    return {
        "podRef": {"name": name, "namespace": namespace},
        "cpu": {"usageNanoCores": 250_000_000},
        "memory": memory,
        "ephemeral-storage": {"usedBytes": 7},
        "containers": [{"name": "sandbox", "memory": memory}],
        **more,
    }


class FakeCluster:
    namespace = "ns"

    def __init__(self, *sandboxes):
        self.objects, self.sandboxes, self.requests = self, sandboxes, []

    async def list(self, kind, **_):
        self.requests.append(kind)
        return type("Listed", (), {"items": list(self.sandboxes)})

    async def get(self, kind, name):
        self.requests.append(f"{kind} {name}")
        return NODE


class FakeKubelet:
    node = "n"

    def __init__(self, *pods):
        self.pods, self.requests = pods, 0

    async def read_summary(self):
        self.requests += 1
        node = {
            "nodeName": "n", "cpu": {"usageNanoCores": 1_500_000_000}, "memory": {"workingSetBytes": 5},
            "fs": {"usedBytes": 3, "capacityBytes": 10},
        }  # fmt: skip
        return {"node": node, "pods": list(self.pods)}


class DeadKubelet(FakeKubelet):
    async def read_summary(self):
        raise TemporaryError("kubelet of node n: does not answer")


def report(cluster, kubelet):
    return asyncio.run(UsageService(cluster, kubelet).report())


def test_number_of_requests_does_not_grow_with_the_sandboxes():
    cluster, kubelet = FakeCluster(*(sandbox(f"s{number}") for number in range(50))), FakeKubelet()
    assert len(report(cluster, kubelet).sandboxes) == 50
    assert (sorted(cluster.requests), kubelet.requests) == (["Node n", "Sandbox"], 1)


def test_figures_of_a_running_sandbox_and_its_node():
    volume = {"pvcRef": {"name": "workspace-a", "namespace": "ns"}, "usedBytes": 42}
    found = report(
        FakeCluster(sandbox("a", cpu="500m", memory="1Gi")), FakeKubelet(pod("a", volume=[volume]))
    )
    (usage,) = found.sandboxes
    assert (usage.cpu, usage.cpu_limit) == (0.25, 0.5)
    assert (usage.memory, usage.disk) == (100, 7)
    assert (usage.workspace, usage.workspace_size) == (42, 2 << 30)
    assert (found.node.cpu, found.node.cpu_capacity) == (1.5, 2.0)
    assert (found.node.memory, found.node.memory_capacity) == (5, 4 << 30)
    assert (found.node.disk, found.node.disk_capacity) == (3, 10)
    assert found.notes == []


def test_memory_limit_is_the_one_that_the_running_container_has():
    """An update that waits for the next resume has changed only the Sandbox."""
    (running,) = report(FakeCluster(sandbox("a", memory="1Gi")), FakeKubelet(pod("a"))).sandboxes
    (suspended,) = report(FakeCluster(sandbox("a", memory="1Gi")), FakeKubelet()).sandboxes
    assert (running.memory_limit, suspended.memory_limit) == (1000, 1 << 30)


def test_pod_of_the_same_name_in_another_namespace_does_not_count():
    (usage,) = report(FakeCluster(sandbox("a")), FakeKubelet(pod("a", namespace="other"))).sandboxes
    assert (usage.cpu, usage.memory, usage.disk) == (None, None, None)


def test_missing_figures_are_none_with_a_note():
    cluster = FakeCluster(sandbox("b"), sandbox("a", workspace=False))
    starting = {"podRef": {"name": "b", "namespace": "ns"}}
    found = report(cluster, FakeKubelet(starting))
    assert [(usage.name, usage.cpu, usage.workspace) for usage in found.sandboxes] == [
        ("a", None, None),
        ("b", None, None),
    ]
    assert found.notes == ["The storage class does not report how much of a workspace is used."]


def test_kubelet_that_does_not_answer_leaves_the_sandboxes():
    for kubelet in (DeadKubelet(), None):
        found = report(FakeCluster(sandbox("a")), kubelet)
        assert [usage.name for usage in found.sandboxes] == ["a"]
        assert found.node is None
        assert found.notes == ["The kubelet does not report CPU, memory and disk."]
