"""A port or an address that cannot be published is reported before anything is changed."""

import socket

import msgspec
import pytest
from tests.support.inspected_containers import engine_with, inspected

from holdfast.errors import InvalidSettingError, PortInUseError
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.node import CheckPorts
from holdfast.gateway.registry import GatewayMetadata, write_metadata
from holdfast.gateway.settings import resolve_settings
from holdfast.gateway.spec import GatewaySpec
from holdfast.workflow import Workflow

SPEC = GatewaySpec(name="dev", image="holdfast/node:1", port=16443, gateway_port=16444)
ABSENT_ADDRESS = "192.0.2.1"
"""Reserved for documentation: no machine has it."""


@pytest.fixture(autouse=True)
def local_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")


@pytest.fixture
def taken():
    """A port of another program."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def check(*containers, **settings):
    """A workflow of the check alone; the fake engine can change nothing."""
    gateway = GatewayContext("dev", resolve_settings(settings, environ={}))
    gateway.engine = engine_with(*containers)
    step = CheckPorts(gateway)
    step.needs = ()
    return Workflow("up", [step])


RUNNING = inspected(SPEC, Status="running")


@pytest.mark.parametrize(
    ("key", "command"),
    [
        ("port", "`holdfast up dev --port auto`"),
        ("gateway_port", "`HOLDFAST_GATEWAY_PORT=auto holdfast up dev`"),
    ],
)
def test_taken_port_is_refused_while_the_gateway_runs(taken, key, command):
    with pytest.raises(PortInUseError, match=f"port {taken}: .*process.*; nothing was changed") as raised:
        check(RUNNING, **{key: taken}).run()
    assert command in raised.value.hint


def test_preview_reports_a_taken_port(taken):
    with pytest.raises(PortInUseError, match=str(taken)):
        check(RUNNING, port=taken).plan()


def test_taken_port_is_refused_for_a_new_gateway(taken):
    with pytest.raises(PortInUseError):
        check(port=taken, gateway_port=16444).run()


def test_taken_port_of_a_stopped_gateway_is_refused(taken):
    spec = msgspec.structs.replace(SPEC, port=taken)
    write_metadata(GatewayMetadata(**msgspec.structs.asdict(spec)))
    with pytest.raises(PortInUseError):
        check(inspected(spec, Status="exited", StartedAt="2026-01-01T00:00:00Z")).run()


def test_own_ports_of_the_running_container_are_not_taken(taken):
    check(inspected(msgspec.structs.replace(SPEC, port=taken), Status="running")).run()


def test_automatic_port_is_left_to_the_start(taken):
    """A new container with a port that was taken meanwhile gets another one when it starts."""
    check(inspected(msgspec.structs.replace(SPEC, port=taken), Status="created")).run()


def test_one_port_for_both_apis_is_refused():
    with pytest.raises(PortInUseError, match="port 16444: the gateway's own API has this port too"):
        check(RUNNING, port=16444).run()


def test_address_of_another_machine_is_refused():
    with pytest.raises(InvalidSettingError, match=f"listen: {ABSENT_ADDRESS} .*; nothing was changed"):
        check(RUNNING, listen=ABSENT_ADDRESS).run()


def test_port_of_another_address_is_not_taken(taken):
    check(RUNNING, port=taken, listen="127.0.0.2").run()
