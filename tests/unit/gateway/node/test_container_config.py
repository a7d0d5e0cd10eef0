"""The node's container: least privilege, loopback only, recreated only after a changed setting."""

import msgspec
import pytest

from holdfast.containers import EngineFacts
from holdfast.errors import ContainerEngineUnsupportedError
from holdfast.gateway.node import check_engine
from holdfast.gateway.node.container import container_config, host_config, settings_fingerprint
from holdfast.gateway.spec import HOLDFAST_NODE, GatewaySpec

SPEC = GatewaySpec(name="Team_Blue", image="holdfast/node:1", port=26443, gateway_port=26444)
FACTS = EngineFacts(
    version="20.10.24",
    api_version="1.41",
    cgroup_version="1",
    security_options=(),
)


def test_container_is_unprivileged_with_explicit_capabilities():
    host = host_config(SPEC, HOLDFAST_NODE)
    assert "Privileged" not in host
    assert host["CapDrop"] == ["ALL"]
    dangerous = {
        "SYS_MODULE",
        "SYS_BOOT",
        "SYS_TIME",
        "SYS_RAWIO",
        "SYS_RESOURCE",
        "MAC_ADMIN",
        "MAC_OVERRIDE",
    }
    assert not dangerous & set(host["CapAdd"])
    assert host["CgroupnsMode"] == "private"


def test_ports_are_published_on_loopback_only():
    assert host_config(SPEC, HOLDFAST_NODE)["PortBindings"] == {
        "6443/tcp": [{"HostIp": "127.0.0.1", "HostPort": "26443"}],
        "8443/tcp": [{"HostIp": "127.0.0.1", "HostPort": "26444"}],
    }


def test_hostname_and_node_name_are_equal_and_stable():
    config = container_config(SPEC, HOLDFAST_NODE)
    assert config["Hostname"] == "holdfast-team-blue"
    assert "HOLDFAST_NODE_NAME=holdfast-team-blue" in config["Env"]


def test_settings_change_fingerprint_and_image_does_not():
    assert settings_fingerprint(SPEC, HOLDFAST_NODE) != settings_fingerprint(
        msgspec.structs.replace(SPEC, port=26444), HOLDFAST_NODE
    )
    assert settings_fingerprint(SPEC, HOLDFAST_NODE) == settings_fingerprint(
        msgspec.structs.replace(SPEC, image="other"), HOLDFAST_NODE
    )


@pytest.mark.parametrize("cgroup_version", ["1", "2"])
def test_both_cgroup_versions_are_supported(cgroup_version):
    check_engine(msgspec.structs.replace(FACTS, cgroup_version=cgroup_version))


@pytest.mark.parametrize("option", ["name=rootless", "name=userns"])
def test_unsupported_engine_is_rejected_with_reason(option):
    with pytest.raises(ContainerEngineUnsupportedError) as caught:
        check_engine(msgspec.structs.replace(FACTS, security_options=(option,)))
    assert caught.value.exit_code == 3
    assert caught.value.hint


def test_restart_policy_restarts_running_container():
    assert host_config(SPEC, HOLDFAST_NODE)["RestartPolicy"] == {"Name": "always"}


def test_restart_policy_change_does_not_recreate_container(monkeypatch):
    before = settings_fingerprint(SPEC, HOLDFAST_NODE)
    monkeypatch.setattr("holdfast.gateway.node.container.RESTART_ALWAYS", "unless-stopped")
    assert host_config(SPEC, HOLDFAST_NODE)["RestartPolicy"] == {"Name": "unless-stopped"}
    assert settings_fingerprint(SPEC, HOLDFAST_NODE) == before


@pytest.mark.parametrize(
    ("listen", "asked", "held"),
    [
        ("127.0.0.1", ("a.example",), "a.example"),
        ("0.0.0.0", ("a.example",), "a.example"),
        ("192.168.1.5", (), "192.168.1.5"),
        ("192.168.1.5", ("192.168.1.5", "a.example"), "a.example,192.168.1.5"),
    ],
)
def test_certificate_contains_api_address(listen, asked, held):
    spec = msgspec.structs.replace(SPEC, listen=listen, api_names=asked)
    assert f"{HOLDFAST_NODE.sans_variable}={held}" in container_config(spec, HOLDFAST_NODE)["Env"]
