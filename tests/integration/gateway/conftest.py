"""A real control plane without nodes: its controllers bind PVCs and create pods."""

from __future__ import annotations

import uuid

import pytest
from tests.support.cluster import ClusterObjects

from holdfast.kube import Objects, api_client
from holdfast.retry import Policy, exponential
from holdfast.testing.apiserver import KubeServer
from holdfast.testing.apiserver.processes import ChildProcess, node_binary

CONTROLLERS = (
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "replicaset-controller",
)


@pytest.fixture(scope="session")
def control_plane():
    """API server and the required controllers, which sync every second; no scheduler, no kubelet."""
    with KubeServer() as server:
        command = [
            node_binary(),
            "kube-controller-manager",
            f"--kubeconfig={server.kubeconfig}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--pvclaimbinder-sync-period=1s",
            "--leader-elect=false",
            "--secure-port=0",
        ]
        manager = ChildProcess("kube-controller-manager", command, log=server.directory / "manager.log")
        yield server
        manager.kill()


@pytest.fixture(scope="session")
def client(control_plane):
    with api_client(control_plane.kubeconfig) as connected:
        yield connected


@pytest.fixture
def cluster(client, control_plane):
    """The cluster as a test sees it, with a new namespace; nodes and volumes are deleted at the end."""
    objects = ClusterObjects(Objects(client), control_plane.create_namespace(), uuid.uuid4().hex[:6])
    yield objects
    objects.delete_all()


@pytest.fixture
def node_cluster(client):
    """The cluster as the steps see it."""
    return Objects(client, Policy(attempts=4, backoff=exponential(0.05, cap=1)))
