"""A real HTTP server on loopback with scripted responses, and clients of it."""

import asyncio
import contextlib
import copy
import json
import socket
import ssl
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kubernetes import client
from kubernetes.aio import client as aio

from holdfast.kube import AsyncObjects, Objects, resilient
from holdfast.kube.retry_table import _budgets
from holdfast.retry import testing_mode


def status(code, reason="", message="", **details):
    """A failure as the API server words it."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message}
    return code, {**body, "code": code, "details": details}


class Store:
    """Answers like an API server would, for one collection at a time."""

    def __init__(self):
        self.objects = {}
        self.version = 0
        self.lock = threading.Lock()

    def __call__(self, verb, path, body):
        path = path.partition("?")[0]
        with self.lock:
            return getattr(self, verb.lower())(path, body)

    def _keep(self, path, body):
        self.version += 1
        obj = copy.deepcopy(body)
        obj.setdefault("metadata", {})
        obj["metadata"]["resourceVersion"] = str(self.version)
        obj["metadata"].setdefault("uid", f"uid-{self.version}")
        self.objects[path] = obj
        return obj

    def post(self, path, body):
        where = f"{path}/{body['metadata']['name']}"
        if where in self.objects:
            return status(409, "AlreadyExists", f"{where} already exists")
        return 201, self._keep(where, body)

    def get(self, path, body):
        if path in self.objects:
            return 200, self.objects[path]
        return status(404, "NotFound", f"{path} not found")

    def put(self, path, body):
        live = self.objects.get(path)
        if live is None:
            return status(404, "NotFound")
        sent = body["metadata"].get("resourceVersion")
        if sent and sent != live["metadata"]["resourceVersion"]:
            return status(409, "Conflict", "the object has been modified")
        return 200, self._keep(path, body)

    def patch(self, path, body):
        live = self.objects.get(path)
        if live is None and "fieldManager" not in path:
            return 201, self._keep(path, body)
        merged = {**live, **body, "metadata": {**live["metadata"], **body.get("metadata", {})}}
        return 200, self._keep(path, merged)

    def delete(self, path, body):
        live = self.objects.get(path)
        if live is None:
            return status(404, "NotFound")
        wanted = ((body or {}).get("preconditions") or {}).get("uid")
        if wanted and wanted != live["metadata"]["uid"]:
            return status(409, "Conflict", "uid mismatch")
        del self.objects[path]
        return 200, {"kind": "Status", "status": "Success"}


class Reset:
    """Cut the connection with a TCP reset instead of answering; `after` runs first, as a commit would."""

    def __init__(self, after=None):
        self.after = after

    def send(self, handler):
        if self.after:
            self.after()
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
        handler.close_connection = True


class Raw:
    """Bytes put on the wire as they are."""

    def __init__(self, data):
        self.data = data

    def send(self, handler):
        handler.wfile.write(self.data)
        handler.wfile.flush()
        handler.close_connection = True


class Drip:
    """A stream that sends the same bytes time and again, until its reader leaves or the test has ended."""

    def __init__(self, data, every, first=b"", header=b""):
        self.data, self.every, self.first, self.header = data, every, first, header

    def send(self, handler):
        handler.close_connection = True
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + self.header + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            chunk = self.first
            while True:
                if chunk:
                    handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                if handler.server.owner.stopped.wait(self.every):
                    return
                chunk = self.data


class Handler(BaseHTTPRequestHandler):
    """Takes each request to the script of its server."""

    protocol_version = "HTTP/1.1"
    # Else header and body go out as two packets, and each answer waits for an acknowledgement.
    disable_nagle_algorithm = True

    def handle_any(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        answer = self.server.owner.answer(self.command, self.path, body)
        if hasattr(answer, "send"):
            answer.send(self)
        else:
            self.give(*answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

    def give(self, code, payload, headers=None):
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.send_response_only(code)
        for key, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def finish(self):
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, *args):
        pass


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


class Server:
    """Answers from a list of scripts, or a function of the request; keeps what it was asked."""

    def __init__(self):
        self.requests = []
        self.answers = []
        self.reply = None
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self._http = Quiet(("127.0.0.1", 0), Handler)
        self._http.owner = self
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def answer(self, verb, path, body):
        with self.lock:
            self.requests.append((verb, path, body))
            if self.answers:
                return self.answers.pop(0)
        return self.reply(verb, path, body) if self.reply else (200, {})

    def stop(self):
        self.stopped.set()
        self._http.shutdown()
        self._http.server_close()

    @property
    def asked(self):
        return [(verb, path.partition("?")[0]) for verb, path, _ in self.requests]


@pytest.fixture(scope="module", autouse=True)
def one_tls_context():
    """Loading the trusted roots takes longer than all else here, and nothing here uses them."""
    context = ssl.create_default_context()
    patch = pytest.MonkeyPatch()
    patch.setattr(ssl, "create_default_context", lambda *args, **kwargs: context)
    yield
    patch.undo()


@pytest.fixture
def server():
    _budgets.clear()
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def clock():
    with testing_mode() as virtual:
        yield virtual


def configuration(kind, server, token=None):
    made = kind.Configuration()
    made.host = server.url
    if token:
        made.api_key["BearerToken"] = token
        made.api_key_prefix["BearerToken"] = "Bearer"
    return made


class SyncClient:
    """Calls `api.method(...)` of the official client in this thread."""

    name, models = "sync", client

    def __init__(self, server, token=None):
        self._configuration = configuration(client, server, token)

    def call(self, api, method, *args, policy=None, options=None, **kwargs):
        with client.ApiClient(self._configuration) as made:
            wrapped = resilient(getattr(client, api)(made), policy, **(options or {}))
            return getattr(wrapped, method)(*args, **kwargs)

    def objects(self, method, *args, policy=None, **kwargs):
        with client.ApiClient(self._configuration) as made:
            return getattr(Objects(made, policy), method)(*args, **kwargs)


class AsyncClient:
    """The same with `kubernetes.aio`, in a new event loop."""

    name, models = "aio", aio

    def __init__(self, server, token=None):
        self._configuration = configuration(aio, server, token)

    def call(self, api, method, *args, policy=None, options=None, **kwargs):
        async def run():
            async with aio.ApiClient(self._configuration) as made:
                wrapped = resilient(getattr(aio, api)(made), policy, **(options or {}))
                return await getattr(wrapped, method)(*args, **kwargs)

        return asyncio.run(run())

    def objects(self, method, *args, policy=None, **kwargs):
        async def run():
            async with aio.ApiClient(self._configuration) as made:
                return await getattr(AsyncObjects(made, policy), method)(*args, **kwargs)

        return asyncio.run(run())


@pytest.fixture(params=[SyncClient, AsyncClient], ids=lambda kind: kind.name)
def cluster(request, server):
    return request.param(server)


@pytest.fixture
def api_errors():
    """What the two clients raise for an HTTP failure."""
    return client.ApiException, aio.ApiException


@pytest.fixture
def store(server):
    """The server keeps objects, until a script says otherwise."""
    server.reply = Store()
    return server.reply


@pytest.fixture
def responses():
    """Responses that a test can script."""

    class Responses:
        status = staticmethod(status)
        reset = Reset
        raw = Raw
        drip = Drip

    return Responses
