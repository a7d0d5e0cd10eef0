"""The exit of a container ends its input stream and is reported, on a real engine."""

import threading
import uuid

import pytest

from holdfast.containers import create_container, remove_container, start_container, wait_for_exit
from holdfast.containers.image_transfer import CommandWithInput
from holdfast.gateway.context import DEFAULT_IMAGE
from holdfast.remote import connect

pytestmark = pytest.mark.engine


@pytest.fixture
def engine():
    return connect()


@pytest.fixture
def sleeping_container(engine):
    """A running container that does nothing."""
    name = f"t-dying-{uuid.uuid4().hex[:6]}"
    create_container(
        engine,
        name,
        image=DEFAULT_IMAGE,
        config={"Entrypoint": ["/bin/sleep", "600"], "Cmd": [], "Healthcheck": {"Test": ["NONE"]}},
        host_config={"NetworkMode": "none"},
        networking_config={},
    )
    start_container(engine, name)
    yield name
    remove_container(engine, name)


def test_stdin_stream_ends_when_container_exits(engine, sleeping_container):
    command = CommandWithInput(engine, sleeping_container, ["/bin/sleep", "600"])
    finished = threading.Event()

    def send():
        command.send_input(iter([b"x" * (8 << 20)]))
        finished.set()

    threading.Thread(target=send, daemon=True).start()
    assert not finished.wait(1)  # all buffers are full
    engine.client.kill(sleeping_container)
    assert finished.wait(4)
    assert command.wait().exit_code == 137
    command.close()


def test_container_exit_is_reported_by_engine(engine, sleeping_container):
    assert not wait_for_exit(engine, sleeping_container, timeout=0.5)
    threading.Timer(0.5, connect().client.kill, [sleeping_container]).start()
    assert wait_for_exit(engine, sleeping_container, timeout=20)
    assert wait_for_exit(engine, sleeping_container, timeout=0.5)
    remove_container(engine, sleeping_container)
    assert wait_for_exit(engine, sleeping_container, timeout=0.5)
