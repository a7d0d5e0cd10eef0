"""The settings say how long an API may be silent; this one takes connections and says nothing."""

from __future__ import annotations

import base64
import datetime as dt
import socket
import time
from types import SimpleNamespace

import pytest
import yaml

from holdfast.errors import HoldfastError
from holdfast.gateway import kubeconfig
from holdfast.gateway.glances import ask_gateway, ask_kubernetes
from holdfast.gateway.settings import resolve
from holdfast.gateway.steps.cluster import ClusterStep
from holdfast.gateway.work import Work
from holdfast.kube.reach import ApiUnreachableError
from holdfast.pki import issue

SHORT = {"timeouts.glance": 1, "timeouts.request": 1, "attempts.apply": 1}


@pytest.fixture
def mute():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def bundle():
    return issue(["127.0.0.1"], at=dt.datetime.now(dt.UTC))


@pytest.fixture
def work(tmp_path, monkeypatch, mute, bundle):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    work = Work("dev", resolve({**SHORT, "gateway_port": mute}))
    work.files.kubeconfig.parent.mkdir(parents=True)
    work.files.kubeconfig.write_bytes(
        kubeconfig.for_host(node_kubeconfig(bundle), name="dev", server=f"https://127.0.0.1:{mute}")
    )
    monkeypatch.setattr(Work, "gateway_api", f"https://127.0.0.1:{mute}")
    return work


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


def test_a_glance_at_kubernetes_ends_when_its_time_is_over(work):
    took, error = seconds_of(lambda: ask_kubernetes(work, "/readyz"))
    assert isinstance(error, ApiUnreachableError)
    assert 0.9 < took < 4.5


def test_a_glance_at_the_gateways_own_api_too(work, bundle):
    took, error = seconds_of(lambda: ask_gateway(work, bundle))
    assert isinstance(error, ApiUnreachableError)
    assert 0.9 < took < 4.5


def test_a_request_of_a_step_ends_when_its_time_is_over(work):
    step, ctx = ClusterStep(work), SimpleNamespace(previewing=False, retry=lambda policy: policy)
    took, _ = seconds_of(lambda: step.objects(ctx).get("Namespace", "default"))
    assert 0.9 < took < 25
