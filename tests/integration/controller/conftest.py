"""A real control plane without nodes: it collects garbage, and tests set the status of pods."""

from __future__ import annotations

import pytest
from tests.support.controller_process import ControllerProcess, FakeKubelet, SandboxNamespace, install_crds

from holdfast.kube import Objects, api_client
from holdfast.testing.apiserver import KubeServer


@pytest.fixture(scope="session")
def control_plane():
    with KubeServer(controllers=True) as server:
        with api_client(server.kubeconfig) as api:
            install_crds(api)
        yield server


@pytest.fixture(scope="session")
def objects(control_plane):
    with api_client(control_plane.kubeconfig) as api:
        yield Objects(api)


@pytest.fixture(scope="module")
def ns(control_plane, objects):
    """A namespace for all tests of one file."""
    return SandboxNamespace(objects, control_plane.create_namespace())


@pytest.fixture(scope="module")
def controller(control_plane, ns, tmp_path_factory):
    """A controller that leads in that namespace."""
    log = tmp_path_factory.mktemp("c") / "log"
    options = ("--policy-labels", "rejected")
    made = ControllerProcess(control_plane.kubeconfig, ns.namespace, log, options=options)
    made.start()
    yield made
    assert made.stop() == 0, made.log()


@pytest.fixture
def kubelet(control_plane, ns):
    with FakeKubelet(control_plane.kubeconfig, ns.namespace) as made:
        yield made
