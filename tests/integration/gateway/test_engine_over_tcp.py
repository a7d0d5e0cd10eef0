"""With a container engine over TCP, commands note that the lock does not exclude other machines."""

import socket
import threading

import pytest

from holdfast.containers import engine_address
from holdfast.events import EventBus, StepFinished
from holdfast.gateway import GatewayContext
from holdfast.gateway.node import CheckEngine
from holdfast.workflow import MemoryStore, Workflow

pytestmark = pytest.mark.engine


@pytest.fixture
def tcp_engine_port():
    """A local TCP port that forwards to the machine's container engine."""
    target = engine_address().removeprefix("unix://")
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server, target), daemon=True).start()
        yield server.getsockname()[1]


def serve(server, target):
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        engine = socket.socket(socket.AF_UNIX)
        engine.connect(target)
        for source, sink in ((client, engine), (engine, client)):
            threading.Thread(target=copy_stream, args=(source, sink), daemon=True).start()


def copy_stream(source, sink):
    while chunk := source.recv(65536):
        sink.sendall(chunk)
    sink.shutdown(socket.SHUT_WR)


def lock_note(monkeypatch, tmp_path, address):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", address)
    events = []
    Workflow("check", [CheckEngine(GatewayContext("t-tcp"))]).run(
        store=MemoryStore(), bus=EventBus(events.append)
    )
    return next(event.note for event in events if isinstance(event, StepFinished))


def test_local_lock_note_appears_only_for_tcp_engine(monkeypatch, tmp_path, tcp_engine_port):
    assert "does not exclude other machines" in lock_note(
        monkeypatch, tmp_path, f"tcp://127.0.0.1:{tcp_engine_port}"
    )
    monkeypatch.undo()
    assert "does not exclude other machines" not in lock_note(monkeypatch, tmp_path, engine_address())
