"""The runtime server as it runs in a sandbox, on a temporary directory."""

import json
import shlex
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests

from holdfast.runtime.http_server import RuntimeServer, RuntimeSettings


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


@contextmanager
def running_sandbox(root, **settings):
    """A served directory: its root, its port, and a session to ask it."""
    root.mkdir()
    with (
        serving(RuntimeServer("127.0.0.1", 0, RuntimeSettings(root, max_output=100_000, **settings))) as port,
        requests.Session() as session,
    ):
        yield SimpleNamespace(root=root, port=port, url=f"http://127.0.0.1:{port}", session=session)


@pytest.fixture
def sandbox(tmp_path):
    with running_sandbox(tmp_path / "root") as started:
        yield started


def script_request(script):
    """The body of a request that runs a shell script."""
    return json.dumps({"command": f"sh -c {shlex.quote(script)}"}).encode()


def is_running(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
