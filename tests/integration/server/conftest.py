"""The gateway's API in front of a real API server, with no more rights there than its own Role grants."""

import datetime as dt
import uuid

import pytest
from tests.support.controller_process import install_crds
from tests.support.gateway_api_server import LOOPBACK, GatewayApiServer
from tests.support.manual_reconciler import ManualReconciler
from tests.support.workload_manifests import api_server_rules

from holdfast.kube import Objects, api_client
from holdfast.pki import issue_bundle

ACCOUNT = "the-api"
STREAMS = 4


@pytest.fixture(scope="module")
def objects(kube_server):
    """The cluster as its administrator sees it, with the kinds of sandboxes."""
    with api_client(kube_server.kubeconfig) as api:
        install_crds(api)
        yield Objects(api)


@pytest.fixture(scope="module")
def namespace(kube_server, objects):
    """Where the sandboxes are; the server's account has its Role there and nothing elsewhere."""
    name = kube_server.create_namespace("api")
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    objects.ensure(
        {**rbac, "kind": "Role", "metadata": {"name": "api"}, "rules": api_server_rules()}, namespace=name
    )
    objects.ensure(
        {
            **rbac,
            "kind": "RoleBinding",
            "metadata": {"name": "api"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "api"},
            "subjects": [{"kind": "User", "name": ACCOUNT, "apiGroup": "rbac.authorization.k8s.io"}],
        },
        namespace=name,
    )
    return name


@pytest.fixture(scope="module")
def server(kube_server, namespace, tmp_path_factory):
    """The API as a process, and a client of it."""
    bundle = issue_bundle(["localhost", LOOPBACK], at=dt.datetime.now(dt.UTC))
    made = GatewayApiServer(
        tmp_path_factory.mktemp("server"), bundle, kubeconfig=kube_server.user_kubeconfig(ACCOUNT),
        namespace=namespace, streams=str(STREAMS), endpoint="https://gateway.test",
        **{"requests-per-second": "10000"},
    )  # fmt: skip
    try:
        yield made.wait_ready()
    finally:
        made.stop()


@pytest.fixture(scope="module")
def reconciler(objects, namespace):
    """Does what the controller would do."""
    return ManualReconciler(objects, namespace)


@pytest.fixture
def name():
    """A name that no other test has."""
    return f"s-{uuid.uuid4().hex[:8]}"
