"""A container that dies while it is fed, on a real engine: the feed ends with it, and its end is told."""

import threading
import uuid

import pytest

from holdfast.containers.containers import create_container, ends_within, remove_container, start_container
from holdfast.containers.engine import connect
from holdfast.containers.transfer import FedCommand
from holdfast.gateway.work import DEFAULT_IMAGE

pytestmark = pytest.mark.engine


@pytest.fixture
def engine():
    return connect()


@pytest.fixture
def sleeper(engine):
    """A running container that does nothing."""
    name = f"t-dying-{uuid.uuid4().hex[:6]}"
    create_container(
        engine,
        name,
        image=DEFAULT_IMAGE,
        config={"Entrypoint": ["/bin/sleep", "600"], "Cmd": [], "Healthcheck": {"Test": ["NONE"]}},
        host_config={"NetworkMode": "none"},
        networking={},
    )
    start_container(engine, name)
    yield name
    remove_container(engine, name)


def test_a_feed_that_nobody_reads_ends_when_the_container_does(engine, sleeper):
    command = FedCommand(engine, sleeper, ["/bin/sleep", "600"])
    ended = threading.Event()

    def feed():
        command.feed(iter([b"x" * (8 << 20)]))
        ended.set()

    threading.Thread(target=feed, daemon=True).start()
    assert not ended.wait(1)  # the buffers on the way are full, and it waits for room
    engine.client.kill(sleeper)
    assert ended.wait(4)
    assert command.outcome().exit_code == 137
    command.close()


def test_the_end_of_a_container_is_told_by_the_engine(engine, sleeper):
    assert not ends_within(engine, sleeper, within=0.5)
    threading.Timer(0.5, connect().client.kill, [sleeper]).start()
    assert ends_within(engine, sleeper, within=20)
    assert ends_within(engine, sleeper, within=0.5)
    remove_container(engine, sleeper)
    assert ends_within(engine, sleeper, within=0.5)
