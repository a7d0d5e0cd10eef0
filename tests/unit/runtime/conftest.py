"""The runtime server as it runs in a sandbox, on a temporary directory."""

import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests

from holdfast.runtime.http_server import RuntimeServer


@contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def sandbox(tmp_path):
    """A served folder: its root, its port, and a session to ask it."""
    root = tmp_path / "root"
    root.mkdir()
    with (
        serving(RuntimeServer("127.0.0.1", 0, root, max_output=100_000)) as port,
        requests.Session() as session,
    ):
        yield SimpleNamespace(root=root, port=port, url=f"http://127.0.0.1:{port}", session=session)


def is_running(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
