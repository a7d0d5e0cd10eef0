"""What the shell completes: gateways and runs in files, sandboxes and images behind real sockets."""

from __future__ import annotations

import datetime as dt
import json
import os
import socketserver
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from holdfast.gateway import GatewayFiles
from holdfast.gateway.registry import GatewayMetadata, set_active_gateway, write_metadata
from holdfast.home import state_dir
from holdfast.pki import ClientCertificateStore, ClientIdentity, issue_bundle
from holdfast.workflow import SQLiteStore, Step, Workflow

GATEWAYS = ["alphagate", "betagate"]
SANDBOXES = ["redbox", "bluebox"]
TEMPLATES = ["pytemplate"]
POOLS = ["warmpool"]
IMAGES = ["example/app:1.0", "example/tool:2.0"]


class _JsonHandler(BaseHTTPRequestHandler):
    """Answers each path of the server's `answers`; other paths do not exist."""

    def do_GET(self):
        answer = self.server.answers.get(self.path.partition("?")[0])
        body = json.dumps(answer).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "client"  # the base class expects an address with a port

    def log_message(self, *_):
        pass


@contextmanager
def _serving(server, answers):
    server.answers = answers
    server.handle_error = lambda *_: None  # a client that stopped waiting
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def completion_world(folder):
    """Create it in `folder`, which HOLDFAST_HOME names; yield the environment variables for commands.

    The first gateway is active. The engine's socket is `folder/engine.sock`.
    """
    assert os.environ["HOLDFAST_HOME"] == str(folder)
    bundle = issue_bundle(["127.0.0.1"], at=dt.datetime.now(dt.UTC))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=bundle.ca.decode())
    pair = folder / "server.pem"
    pair.write_bytes(bundle.server.certificate + bundle.server.key)
    context.load_cert_chain(pair)
    context.verify_mode = ssl.CERT_REQUIRED
    api = HTTPServer(("127.0.0.1", 0), _JsonHandler)
    port = api.server_port
    api.socket = context.wrap_socket(api.socket, server_side=True)
    for name in GATEWAYS:
        ClientCertificateStore(GatewayFiles(name).mtls).write(ClientIdentity(bundle.ca, bundle.client))
        write_metadata(GatewayMetadata(name=name, image="x", port=1, gateway_port=port))
    set_active_gateway(GATEWAYS[0])
    views = [{"name": name, "phase": "Ready"} for name in SANDBOXES]
    images = [{"RepoTags": [name]} for name in IMAGES] + [{"RepoTags": ["<none>:<none>"]}, {"RepoTags": None}]
    engine = socketserver.UnixStreamServer(str(folder / "engine.sock"), _JsonHandler)
    answers = {
        "/v1/sandboxes": {"items": views},
        "/v1/templates": {"items": [{"name": name, "image": "example/app:1.0"} for name in TEMPLATES]},
        "/v1/pools": {"items": [{"name": name, "ready": 1, "size": 3} for name in POOLS]},
    }
    with _serving(api, answers), _serving(engine, {"/images/json": images}):
        yield {"HOLDFAST_HOME": str(folder), "DOCKER_HOST": f"unix://{folder}/engine.sock"}


def record_run(gateway):
    """Record a run of a gateway; return its id."""
    path = state_dir() / "gateways" / gateway / "state.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    workflow = Workflow("up", [Step("only", run=lambda _ctx: None, repeat="safe")])
    return workflow.run(store=SQLiteStore(path), command="up", subject=gateway).run
