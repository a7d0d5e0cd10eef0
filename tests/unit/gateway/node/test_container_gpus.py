"""GPUs of the node's container: the device requests, and which source decides."""

import docker.types
import msgspec
import pytest
from tests.support.inspected_containers import engine_with, inspected

from holdfast.cli.output import run_command
from holdfast.cli.up import up
from holdfast.containers import device_requests, find_container, labels
from holdfast.containers.containers import requested_gpus
from holdfast.errors import InvalidSettingError
from holdfast.gateway.context import GatewayContext, UpOptions
from holdfast.gateway.node import recreate_reason
from holdfast.gateway.node.container import host_config, settings_fingerprint
from holdfast.gateway.registry import GatewayMetadata, write_metadata
from holdfast.gateway.settings import resolve_settings
from holdfast.gateway.spec import HOLDFAST_NODE, GatewaySpec

SPEC = GatewaySpec(name="dev", image="holdfast/node:1", port=16443, gateway_port=16444)
PORTS = {"port": SPEC.port, "gateway_port": SPEC.gateway_port}
UUID = "GPU-8f6d0a52-7c1e-4b0e-9c55-3b1f0e6f9d21"


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


def with_gpus(*gpus):
    return msgspec.structs.replace(SPEC, gpus=gpus)


def context_for(*containers, remembered=None, asked=None, **settings):
    if remembered is not None:
        write_metadata(GatewayMetadata(name="dev", image=SPEC.image, **PORTS, gpus=remembered))
    gateway = GatewayContext("dev", resolve_settings({**PORTS, **settings}, environ={}), asked)
    gateway.engine = engine_with(*containers)
    return gateway


@pytest.mark.parametrize(
    ("gpus", "request_of_the_sdk"),
    [
        (("all",), docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])),
        (("1", "0"), docker.types.DeviceRequest(device_ids=["0", "1"], capabilities=[["gpu"]])),
        ((UUID,), docker.types.DeviceRequest(device_ids=[UUID], capabilities=[["gpu"]])),
    ],
)
def test_device_request_matches_docker_sdk(gpus, request_of_the_sdk):
    (request,) = host_config(with_gpus(*gpus), HOLDFAST_NODE)["DeviceRequests"]
    left_out = {"Count": 0, "DeviceIDs": [], "Options": {}}
    assert {**left_out, **request} == request_of_the_sdk


def test_count_and_ids_are_mutually_exclusive():
    assert "DeviceIDs" not in device_requests(["all"])[0]
    assert "Count" not in device_requests(["0"])[0]


def test_container_without_gpus_requests_no_devices():
    assert "DeviceRequests" not in host_config(with_gpus(), HOLDFAST_NODE)


def test_changed_gpus_change_fingerprint_and_order_does_not():
    found = [
        settings_fingerprint(with_gpus(*gpus), HOLDFAST_NODE) for gpus in ((), ("all",), ("0",), ("0", "1"))
    ]
    assert len(set(found)) == len(found)
    assert settings_fingerprint(with_gpus("1", "0"), HOLDFAST_NODE) == found[-1]


@pytest.mark.parametrize("gpus", [(), ("all",), ("0", "1"), (UUID,)])
def test_gpus_are_read_back_from_container(gpus):
    view = find_container(engine_with(inspected(with_gpus(*gpus))), "holdfast-dev")
    assert view.gpus == gpus


def test_other_device_requests_are_not_gpus():
    assert (
        requested_gpus([{"Driver": "cdi", "DeviceIDs": ["vendor.example/nic=0"], "Capabilities": None}]) == ()
    )


@pytest.mark.parametrize("asked", [UpOptions(), UpOptions(recreate=True)])
def test_gpus_are_kept_when_not_specified(asked):
    gateway = context_for(inspected(with_gpus("0", "1")), asked=asked)
    assert gateway.spec.gpus == ("0", "1")


def test_upgrade_reads_gpus_from_parked_container():
    aside = inspected(with_gpus("all"), name="before-of-holdfast-dev")
    assert aside["Config"]["Labels"][labels.GATEWAY] == "dev"
    assert context_for(aside).spec.gpus == ("all",)


def test_gpus_of_removed_container_come_from_metadata():
    assert context_for(remembered=("0",)).spec.gpus == ("0",)
    assert context_for(inspected(SPEC), remembered=("0",)).spec.gpus == ()


def test_none_removes_gpus():
    assert context_for(inspected(with_gpus("all")), remembered=("all",), gpus="none").spec.gpus == ()


@pytest.mark.parametrize(
    ("has", "settings", "why"),
    [
        (("all",), {}, ""),
        (("0", "1"), {"gpus": "1,0"}, ""),
        ((), {"gpus": "none"}, ""),
        (("all",), {"gpus": "none"}, "its settings differ"),
        ((), {"gpus": "all"}, "its settings differ"),
        (("0",), {"gpus": "0,1"}, "its settings differ"),
    ],
)
def test_container_is_recreated_only_for_changed_gpus(has, settings, why):
    gateway = context_for(inspected(with_gpus(*has)), **settings)
    assert recreate_reason(gateway, gateway.container()) == why


@pytest.mark.parametrize(
    ("raw", "gpus"),
    [
        ("all", ("all",)),
        (" ALL ", ("all",)),
        (["all"], ("all",)),
        ("none", ()),
        ("None", ()),
        ([], ()),
        ("0", ("0",)),
        ("0, 1", ("0", "1")),
        ([0, 1], ("0", "1")),
        ([UUID, "MIG-GPU-1/2/0", "0:1"], (UUID, "MIG-GPU-1/2/0", "0:1")),
    ],
)
def test_accepted_formats(tmp_path, raw, gpus):
    assert resolve_settings({"gpus": raw}, environ={}, cwd=tmp_path).settings.gpus == gpus


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("", "entry 1: not a device id"),
        ("0,,1", "entry 2: not a device id"),
        (["0", ""], "entry 2: not a device id"),
        ("0 1", "entry 1: not a device id"),
        ("0;rm", "entry 1: not a device id"),
        ("-1", "entry 1: not a device id"),
        ("\u0660", "entry 1: not a device id"),
        ("x" * 129, "entry 1: not a device id"),
        ([True], "entry 1: not a device id"),
        ([-1], "entry 1: not a device id"),
        ([["0"]], "entry 1: not a device id"),
        ("all,0", "all must be the only entry"),
        ("0,ALL", "all must be the only entry"),
        ("none,0", "none must be the only entry"),
        ("all,none", "all must be the only entry"),
        ("0,1,0", "duplicate entry 0"),
        (["0", 0], "duplicate entry 0"),
        (2, "not a list"),
        (True, "not a list"),
        ({"0": "1"}, "not a list"),
    ],
)
def test_invalid_values_are_rejected_in_one_line(tmp_path, raw, why):
    with pytest.raises(InvalidSettingError) as caught:
        resolve_settings({"gpus": raw}, environ={}, cwd=tmp_path)
    assert caught.value.message.startswith("gpus: invalid value ")
    assert caught.value.message.endswith(f": {why}")
    assert "\n" not in caught.value.message
    assert caught.value.hint == "Set gpus to all, none, or device ids, as a list or separated by commas."


def test_file_variable_and_flag(tmp_path):
    (tmp_path / "holdfast.toml").write_text("gpus = [0, 1]")
    assert resolve_settings(environ={}, cwd=tmp_path).settings.gpus == ("0", "1")
    environ = {"HOLDFAST_GPUS": "all"}
    assert resolve_settings(environ=environ, cwd=tmp_path).settings.gpus == ("all",)
    assert resolve_settings({"gpus": "none"}, environ=environ, cwd=tmp_path).settings.gpus == ()


def test_up_flag_is_checked_like_the_setting(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(up, ["dev", "--gpus", "all,0"]) == 2
    error = capsys.readouterr().err
    assert (
        "--gpus all,0: not valid; write all, none, or device IDs separated by commas [bad-setting]" in error
    )
