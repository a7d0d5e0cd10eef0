"""One API server and one controller for all rows."""

from __future__ import annotations

import pytest
from tests.conformance import scenarios_claims, scenarios_pools, scenarios_sandboxes  # noqa: F401 (register)
from tests.conformance.table import Row
from tests.conformance.world import ImpatientNamespace, World
from tests.support.controller_process import ControllerProcess, FakeKubelet, install_crds

from holdfast.kube import Objects, api_client
from holdfast.testing.apiserver import KubeServer


@pytest.fixture(scope="session")
def world(tmp_path_factory, request):
    with KubeServer(controllers=True) as server, api_client(server.kubeconfig) as api:
        install_crds(api)
        plain, running = (ImpatientNamespace(Objects(api), server.create_namespace()) for _ in range(2))
        log = tmp_path_factory.mktemp("controller") / "log"
        process = ControllerProcess(server.kubeconfig, plain.namespace, log, all_namespaces=True)
        process.start()
        with FakeKubelet(server.kubeconfig, running.namespace):
            world = World(plain, running, server)
            world.metrics = lambda: process.http_get("/metrics")
            calls = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
            rows = [params["row"] for params in calls if isinstance(params.get("row"), Row)]
            world.start(list(dict.fromkeys(row.scenario for row in rows)))
            yield world
        assert process.stop() == 0, process.log()
