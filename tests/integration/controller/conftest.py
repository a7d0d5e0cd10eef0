"""A real control plane without nodes: owners are garbage-collected, pods run when a test says so."""

from __future__ import annotations

import pytest
from tests.support.controllers import Controller, Kubelet, Place, install_kinds

from holdfast.kube import Objects, api_client
from holdfast.testing.kube_server import KubeServer


@pytest.fixture(scope="session")
def control_plane():
    with KubeServer(controllers=True) as server:
        with api_client(server.kubeconfig) as api:
            install_kinds(api)
        yield server


@pytest.fixture(scope="session")
def objects(control_plane):
    with api_client(control_plane.kubeconfig) as api:
        yield Objects(api)


@pytest.fixture(scope="module")
def place(control_plane, objects):
    """A namespace for all tests of one file."""
    return Place(objects, control_plane.create_namespace())


@pytest.fixture(scope="module")
def controller(control_plane, place, tmp_path_factory):
    """A controller that leads in that namespace."""
    made = Controller(control_plane.kubeconfig, place.namespace, tmp_path_factory.mktemp("c") / "log")
    made.start()
    yield made
    assert made.stop() == 0, made.log()


@pytest.fixture
def kubelet(control_plane, place):
    with Kubelet(control_plane.kubeconfig, place.namespace) as made:
        yield made
