"""A real control plane without nodes: its controllers bind claims, make pods and collect what is orphaned."""

from __future__ import annotations

import uuid

import pytest
from tests.support.clusters import Cluster

from holdfast.gateway.nodes.cluster import NodeCluster
from holdfast.kube import Objects, api_client
from holdfast.retry import Policy, exponential
from holdfast.testing.kube_server import KubeServer
from holdfast.testing.node_binary import node_binary
from holdfast.testing.processes import Child

CONTROLLERS = (
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "replicaset-controller",
)


@pytest.fixture(scope="session")
def control_plane():
    """API server and the controllers that matter here, looking every second: no scheduler, no kubelet."""
    with KubeServer() as server:
        words = [
            node_binary(),
            "kube-controller-manager",
            f"--kubeconfig={server.kubeconfig}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--pvclaimbinder-sync-period=1s",
            "--leader-elect=false",
            "--secure-port=0",
        ]
        manager = Child("kube-controller-manager", words, log=server.directory / "manager.log")
        yield server
        manager.kill()


@pytest.fixture(scope="session")
def client(control_plane):
    with api_client(control_plane.kubeconfig) as made:
        yield made


@pytest.fixture
def cluster(client, control_plane):
    """The cluster as a test sees it, with a namespace of its own; its nodes and volumes go at the end."""
    made = Cluster(Objects(client), control_plane.create_namespace(), uuid.uuid4().hex[:6])
    yield made
    made.tidy()


@pytest.fixture
def nodes(client):
    """The cluster as the steps see it."""
    return NodeCluster(client, Policy(attempts=4, backoff=exponential(0.05, cap=1)), 30.0)
