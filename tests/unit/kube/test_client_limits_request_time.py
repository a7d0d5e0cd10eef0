"""A whole request ends within its timeout, and a stop event ends a watch immediately."""

from __future__ import annotations

import contextlib
import http.server
import os
import threading
import time

import aiohttp
import pytest
import urllib3
from kubernetes import client
from kubernetes.aio import client as aio

from holdfast.errors import OperationCancelledError
from holdfast.kube import (
    Objects,
    WriteOutcome,
    client_limits,
    pod_ready,
    resilient,
    resilient_api,
    write_outcome,
)
from holdfast.retry import Budget, Deadline, Policy

LIST = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "6"}, "items": []}
ONCE = Policy(attempts=1, budget=Budget(100))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Trickle:
    """One byte now and then: no single wait is long, all of them together are."""

    def __init__(self, data, every=0.05):
        self.data, self.every = data, every

    def send(self, handler):
        handler.close_connection = True
        with contextlib.suppress(OSError):
            for n in range(len(self.data)):
                handler.wfile.write(self.data[n : n + 1])
                if handler.server.owner.stopped.wait(self.every):
                    return


SLOW = {
    "head": HEAD + b"X-Long: " + b"x" * 2000 + b"\r\nContent-Length: 2\r\n\r\n{}",
    "body": b"\r\n".join([HEAD.rstrip(), b"Content-Length: 2000", b"", b" " * 2000]),
    "chunks": b"\r\n".join([HEAD.rstrip(), b"Transfer-Encoding: chunked", b"", b"7d0", b" " * 2000]),
}


@pytest.fixture
def api(server):
    configuration = client.Configuration()
    configuration.host = server.url
    with client.ApiClient(configuration) as made:
        yield made


@pytest.mark.parametrize("part", SLOW)
@pytest.mark.parametrize("verb", ["read", "create"])
def test_trickling_response_ends_at_timeout(api, server, part, verb):
    server.reply = lambda *_: Trickle(SLOW[part])
    core = resilient(client.CoreV1Api(api), ONCE, timeout=0.5)
    args = ("a", "n") if verb == "read" else ("n", {"metadata": {"name": "a"}})
    began = time.monotonic()
    with pytest.raises(urllib3.exceptions.ReadTimeoutError) as caught:
        getattr(core, f"{verb}_namespaced_config_map")(*args)
    # A create looks once more after it was given up.
    assert 0.4 < time.monotonic() - began < 15
    assert write_outcome(caught.value) is WriteOutcome.UNKNOWN


def test_trickling_response_ends_at_surrounding_deadline(api, server):
    server.reply = lambda *_: Trickle(SLOW["body"])
    core = resilient(client.CoreV1Api(api), Policy(attempts=5, budget=Budget(100)), timeout=60)
    began = time.monotonic()
    with Deadline.after(0.7), pytest.raises(urllib3.exceptions.ReadTimeoutError):
        core.read_namespaced_config_map("a", "n")
    assert 0.5 < time.monotonic() - began < 15


def test_trickling_response_ends_objects_call(api, server):
    server.reply = lambda *_: Trickle(SLOW["body"])
    began = time.monotonic()
    with pytest.raises(Exception, match="ReadTimeoutError"):
        Objects(api, ONCE, timeout=0.5).get("Pod", "p", namespace="n", api_version="v1")
    assert 0.4 < time.monotonic() - began < 15


def test_connection_after_timeout_works(api, server):
    server.answers.append(Trickle(SLOW["body"]))
    server.reply = lambda *_: (200, {"metadata": {"name": "a"}})
    core = resilient(client.CoreV1Api(api), Policy(attempts=2, budget=Budget(100)), timeout=0.5)
    assert core.read_namespaced_config_map("a", "n").metadata.name == "a"


@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_stop_ends_silent_watch(cluster, server, responses, delay):
    stop = threading.Event()

    def reply(_verb, path, _body):
        if "watch=" not in path:
            return (200, LIST)
        threading.Timer(delay, say_stop).start()
        return responses.drip(b"", 60)

    def say_stop():
        said.append(time.monotonic())
        stop.set()

    server.reply, said = reply, []
    policy = Policy(attempts=4, budget=Budget(100), stop=stop)
    with pytest.raises(OperationCancelledError):
        cluster.objects("wait", "Pod", "p", pod_ready, namespace="n", deadline=60, policy=policy)
    assert time.monotonic() - said[0] < 5


def test_unsent_request_reports_not_sent(api):
    api.configuration.host = "http://192.0.2.1:81"  # reserved for documentation: nothing answers
    core = resilient(client.CoreV1Api(api), ONCE, timeout=0.2)
    with pytest.raises(urllib3.exceptions.HTTPError) as caught:
        core.create_namespaced_config_map("n", {"metadata": {"name": "a"}})
    assert write_outcome(caught.value) is WriteOutcome.NOT_DONE


def test_nested_limit_restores_outer_one():
    outer, inner, seen = client_limits.TimeLimit(30), client_limits.TimeLimit(10), []

    def record_limit():
        seen.append(client_limits._thread_state.limit)

    def nest():
        client_limits.call_within(inner, record_limit, (), {})
        record_limit()

    client_limits.call_within(outer, nest, (), {})
    record_limit()
    assert seen == [inner, outer, None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="requires fork")
def test_forked_child_opens_its_own_connection(api, server):
    server.reply = lambda *_: (200, {"metadata": {"name": "a"}})
    core = resilient(client.CoreV1Api(api), ONCE)
    core.read_namespaced_config_map("a", "n")
    parent_pool = api.rest_client.pool_manager.connection_from_url(server.url)
    child = os.fork()
    if child == 0:
        try:
            core.read_namespaced_config_map("a", "n")
            is_new = api.rest_client.pool_manager.connection_from_url(server.url) is not parent_pool
            os._exit(0 if is_new else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_private_attributes_of_libraries_exist():
    """`client_limits` skips an attribute that a new version lacks; the limit is then weaker."""
    rest = aio.rest.RESTClientObject(aio.Configuration())
    assert hasattr(rest, "_effective_retry_options")
    assert hasattr(rest, "_create_pool_manager")
    assert "_retry_connection" in aiohttp.ClientSession.ATTRS
    assert hasattr(urllib3.connection.HTTPSConnection, "_new_conn")


class Slow(http.server.BaseHTTPRequestHandler):
    """Responds immediately, or sends the head and never the body."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        if self.path == "/silent":
            self.wfile.flush()
            self.server.released.wait(20)
        elif self.path == "/later":
            self.server.released.wait(20)
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.fixture
def slow_server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.released = threading.Event()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def manager():
    manager = urllib3.PoolManager(maxsize=1, retries=False)
    client_limits._limit_pool_manager(manager)
    return manager


def test_expired_limit_does_not_affect_next_request_on_connection(slow_server, manager):
    url = f"http://127.0.0.1:{slow_server.server_port}"
    slow_server.released.set()
    first = client_limits.TimeLimit(20)
    quick = client_limits.call_within(first, manager.urlopen, ("GET", f"{url}/quick"), {})
    assert quick.data == b"{}"
    first.expires = time.monotonic() - 1
    second = client_limits.TimeLimit(20)
    later = client_limits.call_within(second, manager.urlopen, ("GET", f"{url}/later"), {})
    assert later.data == b"{}"
    assert manager.connection_from_url(url).num_connections == 1


def test_streamed_response_keeps_read_timeout(slow_server, manager):
    url = f"http://127.0.0.1:{slow_server.server_port}/silent"

    def read(**options):
        timeout = urllib3.Timeout(options["_request_timeout"])
        return manager.urlopen("GET", url, preload_content=False, timeout=timeout)

    stream = resilient_api._call_sync(read, (), {"_preload_content": False}, 0.3)
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        stream.read()


def test_pool_is_found_by_all_of_its_settings(manager):
    first = manager.connection_from_host("127.0.0.1", 1)
    assert manager.connection_from_host("127.0.0.1", 1) is first
    assert manager.connection_from_host("127.0.0.1", 2) is not first
    assert manager.connection_from_host("127.0.0.1", 1, pool_kwargs={"block": True}) is not first
    assert manager.connection_from_host("127.0.0.1", 1) is first
    # A rotated certificate: the client changes the settings of the manager in place.
    manager.connection_pool_kw["cert_file"] = "rotated.pem"
    assert manager.connection_from_host("127.0.0.1", 1, "https").cert_file == "rotated.pem"
    manager.clear()
    assert manager.connection_from_host("127.0.0.1", 1) is not first
