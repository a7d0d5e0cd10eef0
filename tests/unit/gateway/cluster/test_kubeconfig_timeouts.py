"""The settings say how long an API may be silent; this one takes connections and says nothing."""

from __future__ import annotations

import base64
import datetime as dt
import socket
import time
from types import SimpleNamespace

import pytest
import yaml

from holdfast.errors import ApiUnreachableError, HoldfastError
from holdfast.gateway.base_steps import ClusterStep
from holdfast.gateway.cluster import get_gateway_info, kubeconfig, kubernetes_get
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.settings import resolve_settings
from holdfast.pki import issue_bundle

SHORT = {"timeouts.glance": 1, "timeouts.request": 1, "attempts.apply": 1}


@pytest.fixture
def silent_server():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def bundle():
    return issue_bundle(["127.0.0.1"], at=dt.datetime.now(dt.UTC))


@pytest.fixture
def gateway(tmp_path, monkeypatch, silent_server, bundle):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    gateway = GatewayContext("dev", resolve_settings({**SHORT, "gateway_port": silent_server}))
    gateway.files.kubeconfig.parent.mkdir(parents=True)
    gateway.files.kubeconfig.write_bytes(
        kubeconfig.build_host_kubeconfig(
            node_kubeconfig(bundle), name="dev", server=f"https://127.0.0.1:{silent_server}"
        )
    )
    monkeypatch.setattr(GatewayContext, "gateway_api_url", f"https://127.0.0.1:{silent_server}")
    return gateway


def node_kubeconfig(bundle):
    def data(pem):
        return base64.b64encode(pem).decode()

    return yaml.safe_dump({
        "clusters": [{"cluster": {"certificate-authority-data": data(bundle.ca), "server": "https://n:1"}}],
        "users": [{"user": {
            "client-certificate-data": data(bundle.client.certificate),
            "client-key-data": data(bundle.client.key),
        }}],
    }).encode()  # fmt: skip


def seconds_of(call):
    began = time.monotonic()
    with pytest.raises(HoldfastError) as raised:
        call()
    return time.monotonic() - began, raised.value


def test_https_get_to_kubernetes_ends_at_timeout(gateway):
    took, error = seconds_of(lambda: kubernetes_get(gateway, "/readyz"))
    assert isinstance(error, ApiUnreachableError)
    assert 0.9 < took < 4.5


def test_https_get_to_gateway_api_ends_at_timeout(gateway, bundle):
    took, error = seconds_of(lambda: get_gateway_info(gateway, bundle))
    assert isinstance(error, ApiUnreachableError)
    assert 0.9 < took < 4.5


def test_step_request_ends_at_timeout(gateway):
    step, ctx = ClusterStep(gateway), SimpleNamespace(is_preview=False, retry=lambda policy: policy)
    took, _ = seconds_of(lambda: step.objects(ctx).get("Namespace", "default"))
    assert 0.9 < took < 25
