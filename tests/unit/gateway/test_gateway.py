"""`holdfast.Gateway`: thin over the commands, and as strict as they are."""

import inspect
import re

import pytest
import yaml
from tests.support.completion_world import record_run

from holdfast import Gateway
from holdfast.cli.output.errors import run_command
from holdfast.cli.status import kubeconfig
from holdfast.errors import (
    ContainerEngineUnreachableError,
    GatewayNotFoundError,
    HostUnreachableError,
    InvalidGatewayNameError,
    InvalidSettingError,
)
from holdfast.gateway import reconnect
from holdfast.gateway.cluster.kubeconfig import build_host_kubeconfig
from holdfast.gateway.registry import GatewayMetadata, write_metadata


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.delenv("HOLDFAST_GATEWAY", raising=False)


def test_invalid_name_is_rejected_on_construction():
    with pytest.raises(InvalidGatewayNameError):
        Gateway("no/slashes")


def test_gateway_without_name_is_that_of_the_variable_or_the_active_one(monkeypatch):
    assert Gateway().name == "default"
    for name in ("a", "b"):
        write_metadata(GatewayMetadata(name=name, image="i", port=1))
    with pytest.raises(GatewayNotFoundError):
        Gateway()
    Gateway("b").use()
    assert Gateway().name == "b"
    monkeypatch.setenv("HOLDFAST_GATEWAY", "a")
    assert Gateway().name == "a"


def test_constructor_makes_no_requests():
    dev = Gateway("dev")
    assert dev.kubeconfig.name == "kubeconfig"
    assert not dev.kubeconfig.exists()
    with pytest.raises(ContainerEngineUnreachableError):
        dev.status()


def test_settings_are_passed_by_key():
    with pytest.raises(InvalidSettingError) as caught:
        Gateway("dev").plan(settings={"timeouts.no_such": 1})
    assert "timeouts.no_such" in caught.value.message


def test_subscriber_receives_run_events():
    heard = []
    with pytest.raises(ContainerEngineUnreachableError):
        Gateway("dev", listener=heard.append).destroy(data=True)
    assert type(heard[0]).__name__ == "RunStarted"


def test_runs_are_those_of_the_gateway_newest_first():
    assert Gateway("dev").runs() == []
    ids = [record_run("dev"), record_run("dev"), record_run("other")]
    assert [run.id for run in Gateway("dev").runs()] == [ids[1], ids[0]]


@pytest.mark.parametrize(("recorded", "problem"), [(True, "no kubeconfig"), (False, "not found")])
def test_merge_kubeconfig_needs_one(recorded, problem):
    if recorded:
        write_metadata(GatewayMetadata(name="dev", image="i", port=1))
    with pytest.raises(GatewayNotFoundError, match=f"gateway dev: {problem}"):
        Gateway("dev").merge_kubeconfig()


def write_kubeconfig(server):
    path = Gateway("dev").kubeconfig
    path.parent.mkdir(parents=True, exist_ok=True)
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority-data": "Y2E="}
    user = {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}
    parts = {"clusters": [{"name": "n", "cluster": cluster}], "users": [{"name": "n", "user": user}]}
    node = yaml.safe_dump({**parts, "contexts": []}).encode()
    path.write_bytes(build_host_kubeconfig(node, name="dev", server=server))


@pytest.fixture
def user_kubeconfig(tmp_path, monkeypatch):
    target = tmp_path / "theirs"
    monkeypatch.setenv("KUBECONFIG", str(target))
    return target


def test_merge_kubeconfig_makes_the_context_current(user_kubeconfig):
    write_kubeconfig("https://127.0.0.1:1")
    assert Gateway("dev").merge_kubeconfig() == user_kubeconfig
    assert "current-context: holdfast-dev" in user_kubeconfig.read_text()


def merge_from_python():
    Gateway("dev").merge_kubeconfig()
    return 0


def merge_from_command_line():
    return run_command(kubeconfig, ["dev", "--merge"])


@pytest.mark.parametrize("merge", [merge_from_python, merge_from_command_line])
def test_merged_kubeconfig_has_the_address_of_the_reopened_tunnel(monkeypatch, user_kubeconfig, merge):
    write_metadata(GatewayMetadata(name="dev", image="i", port=1, remote="me@far"))
    write_kubeconfig("https://127.0.0.1:1")

    def open_tunnel(gateway):
        assert gateway.name == "dev"
        write_kubeconfig("https://127.0.0.1:2")

    monkeypatch.setattr(reconnect, "ensure_tunnel", open_tunnel)
    assert merge() == 0
    assert "server: https://127.0.0.1:2" in user_kubeconfig.read_text()


def fail_to_connect(_gateway):
    raise HostUnreachableError("me@far: no route to host")


def test_unreachable_host_is_an_error_in_python(monkeypatch, user_kubeconfig):
    write_metadata(GatewayMetadata(name="dev", image="i", port=1, remote="me@far"))
    write_kubeconfig("https://127.0.0.1:1")
    monkeypatch.setattr(reconnect, "ensure_tunnel", fail_to_connect)
    with pytest.raises(HostUnreachableError, match="no route"):
        merge_from_python()
    assert not user_kubeconfig.exists()


@pytest.mark.parametrize("words", [["--merge"], ["--path"], []], ids=" ".join)
def test_unreachable_host_is_a_warning_on_the_command_line(monkeypatch, capsys, user_kubeconfig, words):
    write_metadata(GatewayMetadata(name="dev", image="i", port=1, remote="me@far"))
    write_kubeconfig("https://127.0.0.1:1")
    monkeypatch.setattr(reconnect, "ensure_tunnel", fail_to_connect)
    assert run_command(kubeconfig, ["dev", *words]) == 0
    assert capsys.readouterr().err == "tunnel to gateway dev: down: me@far: no route to host\n"
    assert user_kubeconfig.exists() is ("--merge" in words)


@pytest.mark.parametrize(
    "call",
    [
        lambda dev: dev.upgrade(timeout=60),
        lambda dev: dev.plan_upgrade(image="holdfast/node:0.1.0"),
        lambda dev: dev.push_images(["app:1"]),
    ],
    ids=["upgrade", "plan_upgrade", "push_images"],
)
def test_commands_reach_the_engine(call):
    with pytest.raises(ContainerEngineUnreachableError):
        call(Gateway("dev"))


@pytest.mark.parametrize("name", ["upgrade", "plan_upgrade"])
def test_invalid_timeout_is_rejected_first(name):
    with pytest.raises(InvalidSettingError, match=re.escape("timeouts.node_ready: invalid value")):
        getattr(Gateway("dev"), name)(timeout=0)


def test_doctor_reports_a_missing_engine():
    diagnosis = Gateway("dev").doctor()
    assert diagnosis.report.gateway == "dev"
    assert "problem" in {finding.severity for finding in diagnosis.report.findings}


def test_list_returns_registered_gateways():
    assert Gateway.all() == []
    write_metadata(GatewayMetadata(name="dev", image="i", port=1))
    assert [repr(found) for found in Gateway.all()] == ["<gateway dev>"]


def test_every_command_has_docstring_and_types():
    for name, method in inspect.getmembers(Gateway, inspect.isfunction):
        if not name.startswith("_"):
            assert method.__doc__
            assert "return" in method.__annotations__
