"""What a Kubernetes user expects of a node: pods, Services by name, exec, logs, volumes, kubectl."""

import pytest
from tests.support.gateways import claim, pod, service

pytestmark = pytest.mark.engine


def test_kubectl_on_the_host_sees_one_ready_node_of_the_right_name(bare_gateway):
    (node,) = bare_gateway.get("nodes")["items"]
    ready = next(one for one in node["status"]["conditions"] if one["type"] == "Ready")
    assert node["metadata"]["name"] == f"holdfast-{bare_gateway.name}"
    assert ready["status"] == "True"
    assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.34.")


def test_a_pod_runs_a_command_and_its_output_is_logged(bare_gateway):
    bare_gateway.apply(pod("talker", command="echo said; exec tail -f /dev/null"))
    bare_gateway.wait_ready("talker")
    assert bare_gateway.kubectl("logs", "talker") == "said\n"
    assert bare_gateway.execute("talker", "sh", "-c", "echo $((6 * 7))") == "42\n"


def test_a_service_is_found_by_its_dns_name_from_another_pod(bare_gateway):
    bare_gateway.apply(
        pod(
            "web", command="mkdir /w && echo served > /w/index.html && exec httpd -f -p 8080 -h /w", app="web"
        ),
        service("web", app="web", port=8080),
        pod("asker"),
    )
    bare_gateway.wait_ready("web")
    bare_gateway.wait_ready("asker")
    for name in ("web", "web.default.svc.cluster.local"):
        assert bare_gateway.execute("asker", "wget", "-q", "-O-", f"http://{name}:8080/") == "served\n"


def test_docker_names_resolve_from_a_pod(bare_gateway):
    bare_gateway.apply(pod("resolver"))
    bare_gateway.wait_ready("resolver")
    answer = bare_gateway.execute("resolver", "nslookup", f"{bare_gateway.container}.")
    assert "Address" in answer


def test_a_claim_gets_a_volume_from_the_default_storage_class(bare_gateway):
    bare_gateway.apply(claim("dynamic"), pod("writer", claim="dynamic"))
    bare_gateway.wait_ready("writer")
    bare_gateway.execute("writer", "sh", "-c", "echo kept > /data/file && sync")
    assert bare_gateway.execute("writer", "cat", "/data/file") == "kept\n"
    bound = bare_gateway.get("pvc", "dynamic")
    assert bound["status"]["phase"] == "Bound"
    assert bound["spec"]["storageClassName"] == "local-path"


def test_the_node_listens_on_loopback_alone_and_is_not_privileged(bare_gateway):
    host = bare_gateway.inspect()["HostConfig"]
    assert not host["Privileged"]
    assert {place["HostIp"] for places in host["PortBindings"].values() for place in places} == {"127.0.0.1"}


def test_the_node_reports_itself_healthy(bare_gateway):
    from holdfast.containers.commands import run_in
    from holdfast.containers.engine import connect

    assert run_in(connect(), bare_gateway.container, ["holdfast-node", "health"]).exit_code == 0
