"""`api-refused` concerns this machine's kubeconfig only, and one lost request is no finding."""

import datetime as dt
from types import SimpleNamespace

import pytest
from tests.support.stubs import stub

from holdfast.containers import labels
from holdfast.errors import ApiRefusedError, ApiUnreachableError
from holdfast.gateway.cluster import KubeCredentials
from holdfast.gateway.doctor import facts as facts_module
from holdfast.gateway.doctor.checks import cluster
from holdfast.gateway.doctor.facts import GatewayFacts
from holdfast.gateway.spec import GatewaySpec
from holdfast.kube import HttpsResponse
from holdfast.pki import ClientIdentity, issue_bundle
from holdfast.retry import testing_mode

NODE = KubeCredentials(server="https://h:1", ca=b"", certificate=b"node", key=b"")
LOCAL = KubeCredentials(server="https://h:1", ca=b"", certificate=b"local", key=b"")


class FactsOfRunningGateway(GatewayFacts):
    """Facts of a running gateway on this machine."""

    credentials, local_credentials = NODE, LOCAL
    running_container = SimpleNamespace(labels={labels.GATEWAY: "dev"})
    is_tunnel_open = True


@pytest.mark.parametrize(
    ("node_error", "local_error", "expected"),
    [
        (None, None, []),
        (ApiUnreachableError("h:1: no response"), None, [("api-unreachable", "fix")]),
        (ApiRefusedError("h:1: credentials rejected (HTTP 401)"), None, [("api-untrusted", "person")]),
        (ApiRefusedError("h:1: expired", hint="Correct the clock."), None, [("api-untrusted", "person")]),
        (None, ApiRefusedError("h:1: credentials rejected (HTTP 401)"), [("api-refused", "fix")]),
    ],
)
def test_only_a_rejected_local_kubeconfig_is_replaced(monkeypatch, node_error, local_error, expected):
    def get(_gateway, path, credentials):
        assert path == "/readyz"
        error = node_error if credentials is NODE else local_error
        if error is not None:
            raise error
        return HttpsResponse(b"ok", "")

    stub(monkeypatch, facts_module, "kubernetes_get", get)
    with testing_mode():
        found = list(cluster.check_kubernetes_api(FactsOfRunningGateway("dev")))
    assert [(finding.code, finding.fixed_by) for finding in found] == expected
    assert all(finding.repair for finding in found)


@pytest.mark.parametrize(("failures", "codes"), [(1, []), (9, ["gateway-api-unreachable"])])
def test_gateway_api_is_asked_again(monkeypatch, failures, codes):
    errors = [ApiUnreachableError("h:2: no response")] * failures

    def get(_gateway, _identity):
        if errors:
            raise errors.pop()
        return b"{}"

    stub(monkeypatch, cluster, "get_gateway_info", get)
    facts = FactsOfRunningGateway("dev")
    bundle = issue_bundle(["localhost"], at=dt.datetime.now(dt.UTC))
    facts.gateway.files.client_certificates.write(ClientIdentity(bundle.ca, bundle.client))
    facts.gateway.spec = GatewaySpec(name="dev", image="holdfast/node:1", port=1, gateway_port=2)
    monkeypatch.setattr(facts.gateway, "container", lambda: None)
    with testing_mode():
        found = list(cluster.check_gateway_api(facts))
    assert [finding.code for finding in found] == codes
