"""An upgrade parks the old container under a name that no other gateway can have, on a real engine."""

import subprocess
import uuid

import msgspec
import pytest
from tests.support.hints import hint_commands
from tests.support.holdfast_cli import HoldfastCli

from holdfast.containers import (
    GATEWAY,
    create_container,
    find_container,
    remove_container,
    start_container,
    write_private_file,
)
from holdfast.errors import CorruptFileError, PermanentError, TemporaryError
from holdfast.events import EventBus
from holdfast.gateway import GatewayContext, commands
from holdfast.gateway.context import DEFAULT_IMAGE
from holdfast.gateway.upgrade import ParkOldContainer, RestoreOldContainer, datastore, state_machine
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


def write_record(engine, context):
    """Write the record of a snapshot that is current now."""
    record = datastore.new_record(context, context.container())
    path = f"{context.contract.state_path}/{datastore.RECORD_FILE}".removeprefix("/")
    write_private_file(engine, context.object_name, "/", path, msgspec.json.encode(record))


def run(step):
    step.needs = ()
    return Workflow("one-step", [step]).run(store=MemoryStore(), bus=EventBus())


def test_gateway_with_similar_name_does_not_conflict(engine, context, new_container):
    ours = new_container(context.object_name, context.name)
    other = new_container(f"{context.object_name}-before", f"{context.name}-before")
    write_record(engine, context)
    run(ParkOldContainer(context))
    assert context.parked_container().id == ours
    assert context.container() is None
    assert GatewayContext(f"{context.name}-before").container().id == other
    run(RestoreOldContainer(context))
    assert context.container().id == ours
    assert context.parked_container() is None
    assert find_container(engine, f"{context.object_name}-before").id == other


def test_node_that_was_started_after_its_snapshot_is_not_parked(engine, context, new_container):
    new_container(context.object_name, context.name)
    write_record(engine, context)
    start_container(engine, context.object_name)
    with pytest.raises(TemporaryError, match="its node was started after the snapshot"):
        run(ParkOldContainer(context))
    assert context.parked_container() is None


@pytest.mark.parametrize("is_healthy", [True, False])
def test_hint_for_parked_container_without_record(context, new_container, is_healthy):
    new = new_container(context.object_name, context.name)
    old = new_container(context.parked_name, context.name)
    with pytest.raises(CorruptFileError) as caught:
        state_machine.resolve_direction(context)
    remove, *restore = hint_commands(
        caught.value.hint,
        "If {} is healthy, run `docker rm {}`. Otherwise run `docker rm --force {}` and "
        "`docker rename {} {}`.",
    )
    for command in [remove] if is_healthy else restore:
        subprocess.run(command.split(), check=True)
    assert context.container().id == (new if is_healthy else old)
    assert context.parked_container() is None


def test_hint_of_refused_destroy_removes_the_gateway(context, new_container, tmp_path):
    new_container(context.parked_name, context.name)
    with pytest.raises(PermanentError) as caught:
        commands.destroy(context.name, with_data=False, bus=EventBus())
    _, destroy = hint_commands(
        caught.value.hint,
        "Run `holdfast upgrade {}` to finish it, or run `holdfast destroy {} --data` to remove the gateway "
        "with its data.",
    )
    HoldfastCli(tmp_path)(*destroy.split()[1:], "--yes", context.name)
    assert context.parked_container() is None
