"""The node's container: least privilege, loopback only, made anew only when a setting changed."""

import msgspec
import pytest

from holdfast.containers.engine import EngineFacts
from holdfast.errors import EngineUnfitError
from holdfast.gateway.node_container import (
    check_engine,
    container_config,
    host_config,
    settings_fingerprint,
)
from holdfast.gateway.profile import HOLDFAST
from holdfast.gateway.spec import GatewaySpec

SPEC = GatewaySpec(name="Team_Blue", image="holdfast/node:1", port=26443, gateway_port=26444)
FACTS = EngineFacts(
    version="20.10.24",
    api_version="1.41",
    cgroup_version="1",
    security_options=(),
)


def test_it_is_not_privileged_and_names_each_capability():
    host = host_config(SPEC, HOLDFAST)
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


def test_nothing_is_published_beyond_loopback():
    assert host_config(SPEC, HOLDFAST)["PortBindings"] == {
        "6443/tcp": [{"HostIp": "127.0.0.1", "HostPort": "26443"}],
        "8443/tcp": [{"HostIp": "127.0.0.1", "HostPort": "26444"}],
    }


def test_hostname_and_node_name_are_the_same_stable_name():
    config = container_config(SPEC, HOLDFAST)
    assert config["Hostname"] == "holdfast-team-blue"
    assert "HOLDFAST_NODE_NAME=holdfast-team-blue" in config["Env"]


def test_another_setting_changes_the_fingerprint_and_another_image_does_not():
    assert settings_fingerprint(SPEC, HOLDFAST) != settings_fingerprint(
        msgspec.structs.replace(SPEC, port=26444), HOLDFAST
    )
    assert settings_fingerprint(SPEC, HOLDFAST) == settings_fingerprint(
        msgspec.structs.replace(SPEC, image="other"), HOLDFAST
    )


@pytest.mark.parametrize("cgroup_version", ["1", "2"])
def test_an_ordinary_engine_is_fit_on_either_cgroup_version(cgroup_version):
    check_engine(msgspec.structs.replace(FACTS, cgroup_version=cgroup_version))


@pytest.mark.parametrize("option", ["name=rootless", "name=userns"])
def test_an_engine_that_cannot_run_a_node_is_refused_with_a_reason(option):
    with pytest.raises(EngineUnfitError) as caught:
        check_engine(msgspec.structs.replace(FACTS, security_options=(option,)))
    assert caught.value.exit_code == 3
    assert caught.value.hint


def test_a_container_that_is_meant_to_run_comes_back_whoever_ended_it():
    assert host_config(SPEC, HOLDFAST)["RestartPolicy"] == {"Name": "always"}


def test_the_restart_policy_is_no_reason_to_make_a_container_anew(monkeypatch):
    before = settings_fingerprint(SPEC, HOLDFAST)
    monkeypatch.setattr("holdfast.gateway.node_container.MEANT_TO_RUN", "unless-stopped")
    assert host_config(SPEC, HOLDFAST)["RestartPolicy"] == {"Name": "unless-stopped"}
    assert settings_fingerprint(SPEC, HOLDFAST) == before


@pytest.mark.parametrize(
    ("listen", "asked", "held"),
    [
        ("127.0.0.1", ("a.example",), "a.example"),
        ("0.0.0.0", ("a.example",), "a.example"),
        ("192.168.1.5", (), "192.168.1.5"),
        ("192.168.1.5", ("192.168.1.5", "a.example"), "a.example,192.168.1.5"),
    ],
)
def test_the_certificate_holds_the_address_that_the_api_is_met_at(listen, asked, held):
    spec = msgspec.structs.replace(SPEC, listen=listen, api_names=asked)
    assert f"{HOLDFAST.sans_variable}={held}" in container_config(spec, HOLDFAST)["Env"]
