"""What a Kubernetes user expects of a node: pods, Services by name, exec, logs, volumes, kubectl."""

import pytest
from tests.support.gateway import pod_manifest, pvc_manifest, service_manifest

from holdfast.containers import run_in_container
from holdfast.remote import connect

pytestmark = pytest.mark.engine


def test_kubectl_on_host_sees_one_ready_node(bare_gateway):
    (node,) = bare_gateway.get("nodes")["items"]
    ready = next(one for one in node["status"]["conditions"] if one["type"] == "Ready")
    assert node["metadata"]["name"] == f"holdfast-{bare_gateway.name}"
    assert ready["status"] == "True"
    assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.34.")


def test_pod_output_is_logged(bare_gateway):
    bare_gateway.apply(pod_manifest("talker", command="echo said; exec tail -f /dev/null"))
    bare_gateway.wait_ready("talker")
    assert bare_gateway.kubectl("logs", "talker") == "said\n"
    assert bare_gateway.exec_in_pod("talker", "sh", "-c", "echo $((6 * 7))") == "42\n"


def test_service_resolves_by_dns_name(bare_gateway):
    bare_gateway.apply(
        pod_manifest(
            "web", command="mkdir /w && echo served > /w/index.html && exec httpd -f -p 8080 -h /w", app="web"
        ),
        service_manifest("web", app="web", port=8080),
        pod_manifest("asker"),
    )
    bare_gateway.wait_ready("web")
    bare_gateway.wait_ready("asker")
    for name in ("web", "web.default.svc.cluster.local"):
        assert bare_gateway.exec_in_pod("asker", "wget", "-q", "-O-", f"http://{name}:8080/") == "served\n"


def test_engine_dns_names_resolve_in_pod(bare_gateway):
    bare_gateway.apply(pod_manifest("resolver"))
    bare_gateway.wait_ready("resolver")
    answer = bare_gateway.exec_in_pod("resolver", "nslookup", f"{bare_gateway.container}.")
    assert "Address" in answer


def test_pvc_is_bound_by_default_storage_class(bare_gateway):
    bare_gateway.apply(pvc_manifest("dynamic"), pod_manifest("writer", claim="dynamic"))
    bare_gateway.wait_ready("writer")
    bare_gateway.exec_in_pod("writer", "sh", "-c", "echo kept > /data/file && sync")
    assert bare_gateway.exec_in_pod("writer", "cat", "/data/file") == "kept\n"
    bound = bare_gateway.get("pvc", "dynamic")
    assert bound["status"]["phase"] == "Bound"
    assert bound["spec"]["storageClassName"] == "local-path"


def test_pvc_is_bound_without_a_pod_and_its_directory_is_deleted_with_it(bare_gateway):
    bare_gateway.apply(pvc_manifest("unused"))
    bare_gateway.kubectl("wait", "pvc/unused", "--for=jsonpath={.status.phase}=Bound", "--timeout=30s")
    volume = bare_gateway.get("pvc", "unused")["spec"]["volumeName"]
    path = bare_gateway.get("pv", volume)["spec"]["hostPath"]["path"]
    is_directory = ["test", "-d", path]
    assert run_in_container(connect(), bare_gateway.container, is_directory).exit_code == 0
    bare_gateway.kubectl("delete", "pvc/unused")
    bare_gateway.kubectl("wait", f"pv/{volume}", "--for=delete", "--timeout=30s")
    assert run_in_container(connect(), bare_gateway.container, is_directory).exit_code == 1


def test_node_is_unprivileged_and_listens_on_loopback_only(bare_gateway):
    host = bare_gateway.inspect()["HostConfig"]
    assert not host["Privileged"]
    assert {place["HostIp"] for places in host["PortBindings"].values() for place in places} == {"127.0.0.1"}


def test_node_reports_healthy(bare_gateway):
    assert run_in_container(connect(), bare_gateway.container, ["holdfast-node", "health"]).exit_code == 0
