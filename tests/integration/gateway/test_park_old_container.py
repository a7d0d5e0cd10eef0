"""An upgrade parks the old container under a name that no other gateway can have, on a real engine."""

import uuid

import pytest

from holdfast.containers import GATEWAY, create_container, find_container, remove_container
from holdfast.events import EventBus
from holdfast.gateway import GatewayContext
from holdfast.gateway.context import DEFAULT_IMAGE
from holdfast.gateway.upgrade import ParkOldContainer, RestoreOldContainer
from holdfast.remote import connect
from holdfast.workflow import MemoryStore, Workflow

pytestmark = pytest.mark.engine


@pytest.fixture
def engine():
    return connect()


@pytest.fixture
def new_container(engine):
    """Create containers that are never started."""
    containers = []

    def create(name, gateway):
        containers.append(
            create_container(
                engine,
                name,
                image=DEFAULT_IMAGE,
                config={"Labels": {GATEWAY: gateway}},
                host_config={"NetworkMode": "none"},
                networking_config={},
            )
        )
        return containers[-1]

    yield create
    for container in containers:
        remove_container(engine, container)


@pytest.fixture
def context(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_IMAGE", "t-aside/another:1")
    return GatewayContext(f"t-aside-{uuid.uuid4().hex[:6]}")


def run(step):
    step.needs = ()
    return Workflow("one-step", [step]).run(store=MemoryStore(), bus=EventBus())


def test_gateway_with_similar_name_does_not_conflict(engine, context, new_container):
    ours = new_container(context.object_name, context.name)
    other = new_container(f"{context.object_name}-before", f"{context.name}-before")
    run(ParkOldContainer(context))
    assert context.parked_container().id == ours
    assert context.container() is None
    assert GatewayContext(f"{context.name}-before").container().id == other
    run(RestoreOldContainer(context))
    assert context.container().id == ours
    assert context.parked_container() is None
    assert find_container(engine, f"{context.object_name}-before").id == other
