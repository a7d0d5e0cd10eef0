"""The example of an existing tool with safe retries, against a server that loses a response."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from examples.cleanup_pods import delete_finished_pods
from kubernetes import client

from holdfast import resilient
from holdfast.retry import testing_mode

PHASES = {"done": "Succeeded", "broken": "Failed", "web": "Running"}


class Handler(BaseHTTPRequestHandler):
    """Lists and deletes pods; executes the first deletion and closes the connection without a response."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def do_GET(self):
        items = [
            {"metadata": {"name": name, "uid": name}, "status": {"phase": PHASES[name]}}
            for name in self.server.pods
        ]
        self.reply(200, {"kind": "PodList", "apiVersion": "v1", "items": items})

    def do_DELETE(self):
        name = self.path.rpartition("/")[2]
        if name not in self.server.pods:
            self.reply(404, {"kind": "Status", "reason": "NotFound", "code": 404, "details": {"name": name}})
            return
        self.server.pods.remove(name)
        self.server.deletions += 1
        if self.server.deletions == 1:
            self.close_connection = True
        else:
            self.reply(200, {"kind": "Status", "status": "Success"})

    def reply(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.pods, server.deletions = list(PHASES), 0
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def core(server):
    configuration = client.Configuration(host=f"http://127.0.0.1:{server.server_port}")
    configuration.retries = False
    with client.ApiClient(configuration) as api:
        yield client.CoreV1Api(api)


def test_tool_fails_without_retries(server, core):
    with pytest.raises(Exception, match="Connection aborted"):
        delete_finished_pods(core, "default")
    assert server.pods == ["broken", "web"]


def test_tool_continues_after_a_lost_response(server, core):
    with testing_mode():
        assert delete_finished_pods(resilient(core), "default") == ["done", "broken"]
    assert server.pods == ["web"]
    assert server.deletions == 2
