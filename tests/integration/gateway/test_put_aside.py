"""The old container of an upgrade on a real engine: under a name that no other gateway can have."""

import uuid

import pytest

from holdfast.containers.containers import create_container, find_container, remove_container
from holdfast.containers.engine import connect
from holdfast.containers.labels import GATEWAY
from holdfast.engine import MemoryStore, Workflow
from holdfast.events import Bus
from holdfast.gateway.steps.rollback import TakeBack
from holdfast.gateway.steps.upgrade import PutAside
from holdfast.gateway.work import DEFAULT_IMAGE, Work

pytestmark = pytest.mark.engine


@pytest.fixture
def engine():
    return connect()


@pytest.fixture
def new_container(engine):
    """Makes containers of gateways that never start."""
    made = []

    def make(name, gateway):
        made.append(
            create_container(
                engine,
                name,
                image=DEFAULT_IMAGE,
                config={"Labels": {GATEWAY: gateway}},
                host_config={"NetworkMode": "none"},
                networking={},
            )
        )
        return made[-1]

    yield make
    for container in made:
        remove_container(engine, container)


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_IMAGE", "t-aside/another:1")
    return Work(f"t-aside-{uuid.uuid4().hex[:6]}")


def run(step):
    step.needs = ()
    return Workflow("one-step", [step]).run(store=MemoryStore(), bus=Bus())


def test_a_gateway_called_like_the_old_name_is_not_in_the_way(engine, work, new_container):
    ours = new_container(work.object, work.name)
    other = new_container(f"{work.object}-before", f"{work.name}-before")
    run(PutAside(work))
    assert work.predecessor().id == ours
    assert work.container() is None
    assert Work(f"{work.name}-before").container().id == other
    run(TakeBack(work))
    assert work.container().id == ours
    assert work.predecessor() is None
    assert find_container(engine, f"{work.object}-before").id == other


def test_an_upgrade_that_was_begun_with_the_old_name_is_found(work, new_container):
    ours = new_container(f"{work.object}-before", work.name)
    assert work.predecessor().id == ours
    run(TakeBack(work))
    assert work.container().id == ours
