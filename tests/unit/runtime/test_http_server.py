"""What the runtime's server and the router share: a limit of connections, and errors in the log."""

import threading

import pytest

from holdfast.runtime.http_server import RuntimeServer
from holdfast.runtime.sandbox_router import Router


@pytest.fixture(params=["runtime", "router"])
def server(request, tmp_path):
    with (
        RuntimeServer("127.0.0.1", 0, tmp_path) if request.param == "runtime" else Router("127.0.0.1", 0)
    ) as made:
        yield made


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
