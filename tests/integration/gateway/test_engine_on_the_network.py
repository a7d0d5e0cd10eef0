"""The machine's engine behind a TCP port: commands say that their lock does not reach other machines."""

import socket
import threading

import pytest

from holdfast.containers.engine import engine_address
from holdfast.engine import MemoryStore, Workflow
from holdfast.events import Bus, StepFinished
from holdfast.gateway.steps.engine import CheckEngine
from holdfast.gateway.work import Work

pytestmark = pytest.mark.engine


@pytest.fixture
def port():
    """A port of this machine that leads to its engine, as long as the test runs."""
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
            threading.Thread(target=pump, args=(source, sink), daemon=True).start()


def pump(source, sink):
    while chunk := source.recv(65536):
        sink.sendall(chunk)
    sink.shutdown(socket.SHUT_WR)


def note_of(monkeypatch, tmp_path, address):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", address)
    events = []
    Workflow("look", [CheckEngine(Work("t-tcp"))]).run(store=MemoryStore(), bus=Bus(events.append))
    return next(event.note for event in events if isinstance(event, StepFinished))


def test_only_there_the_lock_is_said_to_be_this_machines(monkeypatch, tmp_path, port):
    assert "this machine only" in note_of(monkeypatch, tmp_path, f"tcp://127.0.0.1:{port}")
    monkeypatch.undo()
    assert "this machine only" not in note_of(monkeypatch, tmp_path, engine_address())
