"""`holdfast status` says what a gateway does not enforce, from what its API server has."""

from __future__ import annotations

import pytest

from holdfast.gateway.settings import resolve
from holdfast.gateway.status_notes import status_notes
from holdfast.gateway.work import Work
from holdfast.kube import Objects, api_client
from holdfast.testing.kube_server import KubeServer

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]


def policy(name):
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }


def test_policies_that_are_there_are_named_and_none_are_not_spoken_of(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    work = Work("dev", resolve({}))
    work.files.kubeconfig.parent.mkdir(parents=True)
    with KubeServer() as server, api_client(server.kubeconfig) as api:
        work.files.kubeconfig.write_bytes(server.kubeconfig.read_bytes())
        assert status_notes(work) == ()
        Objects(api).create(policy("shut"))
        (note,) = status_notes(work)
        assert note == (
            "network policies are there (default/shut), but this gateway's network does not enforce them: "
            "every pod reaches every other"
        )
        for number in range(5):
            Objects(api).create(policy(f"shut-{number}"))
        (note,) = status_notes(work)
        assert "default/shut-3, …)" in note
    assert status_notes(work) == ()
