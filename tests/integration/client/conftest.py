"""The API and the controller from the source tree on a real API server; a stand-in runs the pods."""

import pytest
from tests.support.controller_process import ControllerProcess, FakeKubelet, install_crds
from tests.support.source_gateway import SourceGateway

from holdfast.kube import api_client


@pytest.fixture(scope="package")
def source(kube_server, tmp_path_factory):
    """A gateway as far as the SDK and the commands can tell."""
    folder = tmp_path_factory.mktemp("source")
    namespace = kube_server.create_namespace()
    with api_client(kube_server.kubeconfig) as api:
        install_crds(api)
    controller = ControllerProcess(kube_server.kubeconfig, namespace, folder / "controller.log")
    with pytest.MonkeyPatch.context() as patch, FakeKubelet(kube_server.kubeconfig, namespace):
        patch.setenv("HOLDFAST_HOME", str(folder))
        with SourceGateway("source", kube_server.kubeconfig, namespace, folder) as gateway:
            try:
                controller.start()
                yield gateway
            finally:
                controller.kill()


@pytest.fixture
def sandboxes(source):
    """The sandboxes of that gateway; all are gone afterwards."""
    with source.gateway.sandboxes() as found:
        yield found
        for view in list(found):
            found.sandbox(view.name).delete(ignore_missing=True)
        for view in list(found):
            found.sandbox(view.name).wait_gone(timeout=60)
