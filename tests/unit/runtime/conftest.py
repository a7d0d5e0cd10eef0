"""The runtime's server as it runs in a sandbox, on a folder of a test's own."""

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import requests

from holdfast.runtime.server import Server


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
        serving(Server("127.0.0.1", 0, root, most_output=100_000)) as port,
        requests.Session() as session,
    ):
        yield SimpleNamespace(root=root, port=port, url=f"http://127.0.0.1:{port}", session=session)
