"""Free ports on a real engine: two commands that chose the same one, and programs that were quicker."""

import socket
import uuid

import pytest

from holdfast.containers.containers import find_container
from holdfast.engine import MemoryStore, Workflow
from holdfast.errors import PortTakenError
from holdfast.events import Bus
from holdfast.gateway import commands
from holdfast.gateway.plan import up_steps
from holdfast.gateway.settings import resolve
from holdfast.gateway.work import Work

pytestmark = pytest.mark.engine


@pytest.fixture
def new_work(tmp_path, monkeypatch):
    """Makes work on gateways that are not there yet; what became of them is taken away."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_WORKLOADS", "false")
    monkeypatch.setenv("HOLDFAST_ATTEMPTS_START", "1")
    made = []

    def make(**settings):
        for key, value in settings.items():
            monkeypatch.setenv(f"HOLDFAST_{key.upper()}", str(value))
        made.append(Work(f"t-ports-{uuid.uuid4().hex[:6]}", resolve()))
        return made[-1]

    yield make
    for work in made:
        commands.destroy(work.name, with_data=True, bus=Bus())


def start(work):
    """The plan of `up` as far as the start of the container."""
    steps = up_steps(work)
    last = next(index for index, step in enumerate(steps) if step.name == "start-container")
    return Workflow("up", steps[: last + 1]).run(store=MemoryStore(), bus=Bus())


def ports(work):
    return {port for _, port in find_container(work.engine, work.object).ports.values()}


def test_two_that_chose_the_same_free_ports_both_start(new_work):
    first, second = new_work(), new_work()
    assert first.spec.port == second.spec.port
    start(first)
    start(second)
    assert find_container(second.engine, second.object).running
    assert not ports(first) & ports(second)
    assert ports(second) == {second.spec.port, second.spec.gateway_port}


def test_a_port_that_was_asked_for_is_not_exchanged(new_work):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        work = new_work(port=taken.getsockname()[1])
        with pytest.raises(PortTakenError, match=str(work.spec.port)):
            start(work)
        assert work.spec.port in ports(work)


def test_the_gateways_own_port_is_the_one_that_is_named(new_work):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        work = new_work(gateway_port=taken.getsockname()[1])
        with pytest.raises(PortTakenError, match=str(taken.getsockname()[1])) as refused:
            start(work)
        assert "gateway_port" in refused.value.hint
