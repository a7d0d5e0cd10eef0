"""GPUs reach the node's container in the engine's own terms, and are not lost while nobody says otherwise."""

from types import SimpleNamespace

import docker.errors
import docker.types
import msgspec
import pytest
from click.testing import CliRunner

from holdfast.cli.gateway import up
from holdfast.containers import labels
from holdfast.containers.containers import find_container
from holdfast.containers.gpus import device_requests, gpus_of
from holdfast.errors import BadSettingError
from holdfast.gateway.node_container import container_config, host_config, settings_fingerprint
from holdfast.gateway.profile import HOLDFAST
from holdfast.gateway.settings import load, resolve
from holdfast.gateway.spec import GatewaySpec, Metadata, write_metadata
from holdfast.gateway.steps.container import EnsureContainer
from holdfast.gateway.work import Asked, Work

SPEC = GatewaySpec(name="dev", image="holdfast/node:1", port=16443, gateway_port=16444)
PORTS = {"port": SPEC.port, "gateway_port": SPEC.gateway_port}
UUID = "GPU-8f6d0a52-7c1e-4b0e-9c55-3b1f0e6f9d21"


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


def with_gpus(*gpus):
    return msgspec.structs.replace(SPEC, gpus=gpus)


def inspected(spec, name="holdfast-dev"):
    """A container of this spec, as an engine shows it."""
    host = host_config(spec, HOLDFAST)
    filled = [
        {"Count": 0, "DeviceIDs": None, "Options": {}, **request}
        for request in host.get("DeviceRequests", ())
    ]
    return {
        "Id": "c" * 64,
        "Name": f"/{name}",
        "Image": "sha256:" + "1" * 64,
        "State": {"Status": "exited", "ExitCode": 0},
        "Config": {**container_config(spec, HOLDFAST), "Image": spec.image},
        "HostConfig": {**host, "DeviceRequests": filled or None},
        "NetworkSettings": {"Networks": {}},
    }


def engine_with(*containers):
    by_name = {container["Name"].lstrip("/"): container for container in containers}

    def inspect_container(name):
        if name not in by_name:
            raise docker.errors.NotFound(f"No such container: {name}")
        return by_name[name]

    return SimpleNamespace(client=SimpleNamespace(inspect_container=inspect_container), address="")


def work_on(*containers, remembered=None, asked=None, **settings):
    if remembered is not None:
        write_metadata(Metadata(name="dev", image=SPEC.image, **PORTS, gpus=remembered))
    work = Work("dev", resolve({**PORTS, **settings}, environ={}), asked)
    work.engine = engine_with(*containers)
    return work


@pytest.mark.parametrize(
    ("gpus", "request_of_the_sdk"),
    [
        (("all",), docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])),
        (("1", "0"), docker.types.DeviceRequest(device_ids=["0", "1"], capabilities=[["gpu"]])),
        ((UUID,), docker.types.DeviceRequest(device_ids=[UUID], capabilities=[["gpu"]])),
    ],
)
def test_they_are_asked_for_as_the_engines_own_sdk_does(gpus, request_of_the_sdk):
    (request,) = host_config(with_gpus(*gpus), HOLDFAST)["DeviceRequests"]
    left_out = {"Count": 0, "DeviceIDs": [], "Options": {}}
    assert {**left_out, **request} == request_of_the_sdk


def test_a_count_and_ids_are_never_asked_for_together():
    assert "DeviceIDs" not in device_requests(["all"])[0]
    assert "Count" not in device_requests(["0"])[0]


def test_a_gateway_without_them_has_the_fingerprint_that_it_always_had():
    """Taken from before there were GPUs; another one would make every container that is there anew."""
    before = GatewaySpec(name="Team_Blue", image="holdfast/node:1", port=26443, gateway_port=26444)
    assert settings_fingerprint(before, HOLDFAST) == "578177d77d900478"
    named = msgspec.structs.replace(before, name="a", port=1, gateway_port=2, listen="10.0.0.1")
    named = msgspec.structs.replace(named, api_names=("x",))
    assert settings_fingerprint(named, HOLDFAST) == "63a4e1f2117a74ad"
    assert "DeviceRequests" not in host_config(before, HOLDFAST)


def test_other_gpus_are_another_container_and_another_order_is_not():
    found = [settings_fingerprint(with_gpus(*gpus), HOLDFAST) for gpus in ((), ("all",), ("0",), ("0", "1"))]
    assert len(set(found)) == len(found)
    assert settings_fingerprint(with_gpus("1", "0"), HOLDFAST) == found[-1]


@pytest.mark.parametrize("gpus", [(), ("all",), ("0", "1"), (UUID,)])
def test_what_a_container_was_made_with_is_read_back(gpus):
    view = find_container(engine_with(inspected(with_gpus(*gpus))), "holdfast-dev")
    assert view.gpus == gpus


def test_requests_for_other_devices_are_no_gpus():
    assert gpus_of([{"Driver": "cdi", "DeviceIDs": ["vendor.example/nic=0"], "Capabilities": None}]) == ()


@pytest.mark.parametrize("asked", [Asked(), Asked(recreate=True)])
def test_they_stay_while_nobody_speaks_of_them(asked):
    work = work_on(inspected(with_gpus("0", "1")), asked=asked)
    assert work.spec.gpus == ("0", "1")


def test_an_upgrade_takes_them_from_the_container_that_it_has_put_aside():
    aside = inspected(with_gpus("all"), name="before-of-holdfast-dev")
    assert aside["Config"]["Labels"][labels.GATEWAY] == "dev"
    assert work_on(aside).spec.gpus == ("all",)


def test_a_container_that_is_gone_has_left_them_in_what_is_remembered():
    assert work_on(remembered=("0",)).spec.gpus == ("0",)
    assert work_on(inspected(SPEC), remembered=("0",)).spec.gpus == ()


def test_none_takes_them_back():
    assert work_on(inspected(with_gpus("all")), remembered=("all",), gpus="none").spec.gpus == ()


@pytest.mark.parametrize(
    ("has", "settings", "why"),
    [
        (("all",), {}, ""),
        (("0", "1"), {"gpus": "1,0"}, ""),
        ((), {"gpus": "none"}, ""),
        (("all",), {"gpus": "none"}, "its settings differ from what is asked for"),
        ((), {"gpus": "all"}, "its settings differ from what is asked for"),
        (("0",), {"gpus": "0,1"}, "its settings differ from what is asked for"),
    ],
)
def test_a_container_is_made_anew_only_for_other_gpus(has, settings, why):
    work = work_on(inspected(with_gpus(*has)), **settings)
    assert EnsureContainer(work)._why_remake(work.container()) == why


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
def test_ways_to_write_them(tmp_path, raw, gpus):
    assert load({"gpus": raw}, environ={}, cwd=tmp_path).gpus == gpus


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("", "entry 1 is no device id"),
        ("0,,1", "entry 2 is no device id"),
        (["0", ""], "entry 2 is no device id"),
        ("0 1", "entry 1 is no device id"),
        ("0;rm", "entry 1 is no device id"),
        ("-1", "entry 1 is no device id"),
        ("\u0660", "entry 1 is no device id"),
        ("x" * 129, "entry 1 is no device id"),
        ([True], "entry 1 is no device id"),
        ([-1], "entry 1 is no device id"),
        ([["0"]], "entry 1 is no device id"),
        ("all,0", "all stands alone"),
        ("0,ALL", "all stands alone"),
        ("none,0", "none stands alone"),
        ("all,none", "all stands alone"),
        ("0,1,0", "0 is there twice"),
        (["0", 0], "0 is there twice"),
        (2, "it is no list"),
        (True, "it is no list"),
        ({"0": "1"}, "it is no list"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path, raw, why):
    with pytest.raises(BadSettingError) as caught:
        load({"gpus": raw}, environ={}, cwd=tmp_path)
    assert caught.value.message.startswith("gpus: the value ")
    assert caught.value.message.endswith(f"cannot be used: {why}")
    assert "\n" not in caught.value.message
    assert caught.value.hint == "gpus takes all, none, or device ids, as a list or with commas between them."


def test_file_variable_and_flag(tmp_path):
    (tmp_path / "holdfast.toml").write_text("gpus = [0, 1]")
    assert load(environ={}, cwd=tmp_path).gpus == ("0", "1")
    environ = {"HOLDFAST_GPUS": "all"}
    assert load(environ=environ, cwd=tmp_path).gpus == ("all",)
    assert load({"gpus": "none"}, environ=environ, cwd=tmp_path).gpus == ()


def test_the_flag_of_up_is_the_setting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(up, ["dev", "--gpus", "all,0"])
    assert isinstance(ended.exception, BadSettingError)
    assert "gpus: the value 'all,0' from the command line" in ended.exception.message
