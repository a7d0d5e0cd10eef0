"""`holdfast status` lists network policies, because the gateway does not enforce them."""

from __future__ import annotations

import pytest

from holdfast.gateway import GatewayContext, resolve_settings
from holdfast.gateway.status import status_notes
from holdfast.kube import Objects, api_client
from holdfast.testing.apiserver import KubeServer

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]


def policy(name):
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }


def test_unenforced_policies_are_listed_only_if_present(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    gateway = GatewayContext("dev", resolve_settings({}))
    gateway.files.kubeconfig.parent.mkdir(parents=True)
    with KubeServer() as server, api_client(server.kubeconfig) as api:
        gateway.files.kubeconfig.write_bytes(server.kubeconfig.read_bytes())
        assert status_notes(gateway) == ()
        Objects(api).create(policy("deny"))
        (note,) = status_notes(gateway)
        assert note == (
            "network policies exist (default/deny), but this gateway's network does not enforce them: "
            "every pod can reach every other pod"
        )
        for number in range(5):
            Objects(api).create(policy(f"deny-{number}"))
        (note,) = status_notes(gateway)
        assert "default/deny-3, …)" in note
    assert status_notes(gateway) == ()
