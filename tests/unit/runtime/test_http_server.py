"""The runtime's server: its settings, the limit of connections, and errors in the log."""

import threading
from pathlib import Path

import pytest

from holdfast.runtime.http_server import RuntimeServer, RuntimeSettings


@pytest.fixture
def server(tmp_path):
    with RuntimeServer("127.0.0.1", 0, RuntimeSettings(tmp_path)) as started:
        yield started


def test_settings_of_published_runtime():
    assert RuntimeSettings.from_environment({}) == RuntimeSettings(Path("/sandbox"), 300.0, None)
    environment = {
        "SANDBOX_BASE_DIR": "/app",
        "SANDBOX_EXEC_TIMEOUT_SECONDS": "2.5",
        "HOLDFAST_RUNTIME_SHELL": "/bin/sh",
    }
    assert RuntimeSettings.from_environment(environment) == RuntimeSettings(Path("/app"), 2.5, "/bin/sh")


@pytest.mark.parametrize("text", ["many", "0", "-1", "inf", "nan"])
def test_invalid_command_timeout_is_reported(text):
    with pytest.raises(SystemExit, match="SANDBOX_EXEC_TIMEOUT_SECONDS is not a number of seconds"):
        RuntimeSettings.from_environment({"SANDBOX_EXEC_TIMEOUT_SECONDS": text})


def test_connection_without_thread_occupies_no_slot(server, monkeypatch):
    def fail(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match="new thread"):
        server.process_request(None, None)
    with pytest.raises(ValueError, match="released too many times"):
        server._connection_slots.release()


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [(ValueError("bug"), True), (ConnectionResetError(), False), (TimeoutError(), False)],
)
def test_errors_are_logged_except_lost_connections(server, capsys, error, is_logged):
    try:
        raise error
    except type(error):
        server.handle_error(None, ("192.0.2.1", 1))
    assert (type(error).__name__ in capsys.readouterr().err) is is_logged
