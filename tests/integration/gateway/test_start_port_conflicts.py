"""Port conflicts on a real engine: two commands with the same free port, and other programs."""

import socket
import uuid

import pytest

from holdfast.containers import find_container
from holdfast.errors import PortInUseError
from holdfast.events import EventBus
from holdfast.gateway import GatewayContext, commands, resolve_settings
from holdfast.gateway.node import CheckPorts
from holdfast.gateway.plan import up_steps
from holdfast.workflow import MemoryStore, Workflow

pytestmark = pytest.mark.engine


@pytest.fixture
def new_context(tmp_path, monkeypatch):
    """Create contexts of new gateways; the gateways are destroyed at the end."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_WORKLOADS", "false")
    monkeypatch.setenv("HOLDFAST_ATTEMPTS_START", "1")
    contexts = []

    def create(**settings):
        for key, value in settings.items():
            monkeypatch.setenv(f"HOLDFAST_{key.upper()}", str(value))
        contexts.append(GatewayContext(f"t-ports-{uuid.uuid4().hex[:6]}", resolve_settings()))
        return contexts[-1]

    yield create
    for gateway in contexts:
        commands.destroy(gateway.name, with_data=True, bus=EventBus())


def start(gateway):
    """Run the plan of `up` up to the start of the container."""
    steps = up_steps(gateway)
    last = next(index for index, step in enumerate(steps) if step.name == "start-container")
    return Workflow("up", steps[: last + 1]).run(store=MemoryStore(), bus=EventBus())


def ports(gateway):
    return {port for _, port in find_container(gateway.engine, gateway.object_name).ports.values()}


def test_concurrent_starts_with_same_free_ports_both_succeed(new_context):
    first, second = new_context(), new_context()
    assert first.spec.port == second.spec.port
    start(first)
    start(second)
    assert find_container(second.engine, second.object_name).is_running
    assert not ports(first) & ports(second)
    published = second.published_spec()
    assert ports(second) == {published.port, published.gateway_port}


def test_taken_port_is_refused_before_anything_is_created(new_context):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        gateway = new_context(port=taken.getsockname()[1])
        with pytest.raises(PortInUseError, match=str(gateway.spec.port)):
            start(gateway)
        assert find_container(gateway.engine, gateway.object_name) is None


def test_requested_port_is_not_changed_when_it_is_taken_later(new_context, monkeypatch):
    monkeypatch.setattr(CheckPorts, "run", lambda *_: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        gateway = new_context(port=taken.getsockname()[1])
        with pytest.raises(PortInUseError, match=str(gateway.spec.port)):
            start(gateway)
        assert gateway.spec.port in ports(gateway)


def test_conflicting_gateway_port_is_named(new_context):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        gateway = new_context(gateway_port=taken.getsockname()[1])
        with pytest.raises(PortInUseError, match=str(taken.getsockname()[1])) as raised:
            start(gateway)
        assert "HOLDFAST_GATEWAY_PORT=auto holdfast up" in raised.value.hint
