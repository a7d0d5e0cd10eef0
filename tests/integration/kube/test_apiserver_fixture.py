"""The server fixture is a real Kubernetes API server, and ends with the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from kubernetes import client, config

from holdfast.testing.apiserver import KubeServer

pytestmark = pytest.mark.apiserver


def core(kubeconfig):
    return client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))


def test_official_client_works_with_kubeconfig(kube_server, kube_namespace):
    api = core(kube_server.kubeconfig)
    api.create_namespaced_config_map(kube_namespace, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    assert api.read_namespaced_config_map("a", kube_namespace).data == {"x": "1"}


def test_pods_without_service_account_are_stored(kube_server, kube_namespace):
    spec = {"containers": [{"name": "a", "image": "a"}]}
    pod = core(kube_server.kubeconfig).create_namespaced_pod(
        kube_namespace, {"metadata": {"name": "a"}, "spec": spec}
    )
    assert pod.status.phase == "Pending"


def test_rbac_applies_to_users_and_anonymous_is_denied(kube_server, kube_namespace):
    api = core(kube_server.user_kubeconfig("bob", "guests"))
    with pytest.raises(client.ApiException) as caught:
        api.list_namespaced_pod(kube_namespace)
    assert caught.value.status == 403
    assert "bob" in caught.value.body


def test_controllers_finalize_namespaces_and_create_service_accounts():
    with KubeServer(controllers=True) as server:
        name = server.create_namespace()
        pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
        assert server.request("POST", f"/api/v1/namespaces/{name}/pods", pod)[0] == 201
        server.request("DELETE", f"/api/v1/namespaces/{name}/pods/a?gracePeriodSeconds=0")
        server.request("DELETE", f"/api/v1/namespaces/{name}")
        deadline = time.monotonic() + 60
        while server.request("GET", f"/api/v1/namespaces/{name}")[0] != 404:
            assert time.monotonic() < deadline
            threading.Event().wait(0.1)


def test_two_servers_run_concurrently_and_stop_cleanly(kube_server):
    with KubeServer() as other:
        pids = [child.pid for child in other._children]
        directory = other.directory
        assert other.url != kube_server.url
        assert other.request("GET", "/readyz") == (200, "ok")
    assert not directory.exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert kube_server.request("GET", "/readyz")[0] == 200


def test_killed_test_leaves_no_server_process():
    program = """
        import threading
        from holdfast.testing.apiserver.kube_server import KubeServer
        with KubeServer() as server:
            print(*(child.pid for child in server._children), server.directory, flush=True)
            threading.Event().wait()
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    *pids, directory = parent.stdout.readline().split()
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}/exe").exists() for pid in pids) and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)
    subprocess.run(["rm", "-rf", directory], check=True)
