"""Whole requests end in time however a server spreads its bytes, and a stop ends a watch at once."""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import threading
import time

import pytest
import urllib3
from kubernetes import client

from holdfast.errors import CancelledError
from holdfast.kube import Objects, curfew, outcome_of, pod_ready, resilient
from holdfast.kube.outcome import Done
from holdfast.kube.straight import go_straight
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
def test_a_trickle_does_not_hold_a_call(api, server, part, verb):
    server.reply = lambda *_: Trickle(SLOW[part])
    core = resilient(client.CoreV1Api(api), ONCE, timeout=0.5)
    args = ("a", "n") if verb == "read" else ("n", {"metadata": {"name": "a"}})
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"not over after 0\.5 s") as caught:
        getattr(core, f"{verb}_namespaced_config_map")(*args)
    # A create looks once more after it was given up.
    assert 0.4 < time.monotonic() - began < 15
    assert outcome_of(caught.value) is Done.UNKNOWN


def test_nor_beyond_the_deadline_around_it(api, server):
    server.reply = lambda *_: Trickle(SLOW["body"])
    core = resilient(client.CoreV1Api(api), Policy(attempts=5, budget=Budget(100)), timeout=60)
    began = time.monotonic()
    with Deadline.after(0.7), pytest.raises(TimeoutError):
        core.read_namespaced_config_map("a", "n")
    assert 0.5 < time.monotonic() - began < 15


def test_a_trickle_does_not_hold_a_helper(api, server):
    server.reply = lambda *_: Trickle(SLOW["body"])
    began = time.monotonic()
    with pytest.raises(Exception, match="TimeoutError"):
        Objects(api, ONCE, timeout=0.5).get("Pod", "p", namespace="n", api_version="v1")
    assert 0.4 < time.monotonic() - began < 15


def test_the_connection_after_it_is_a_good_one(api, server):
    server.answers.append(Trickle(SLOW["body"]))
    server.reply = lambda *_: (200, {"metadata": {"name": "a"}})
    core = resilient(client.CoreV1Api(api), Policy(attempts=2, budget=Budget(100)), timeout=0.5)
    assert core.read_namespaced_config_map("a", "n").metadata.name == "a"


@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_a_stop_ends_a_silent_watch(cluster, server, told, delay):
    stop, opened = threading.Event(), threading.Event()

    def reply(_verb, path, _body):
        if "watch=" not in path:
            return (200, LIST)
        opened.set()
        return told.drip(b"", 60)

    def say_stop():
        opened.wait(30)
        threading.Event().wait(delay)
        said.append(time.monotonic())
        stop.set()

    server.reply, said = reply, []
    thread = threading.Thread(target=say_stop)
    thread.start()
    policy = Policy(attempts=4, budget=Budget(100), stop=stop)
    with pytest.raises(CancelledError):
        cluster.objects("wait", "Pod", "p", pod_ready, namespace="n", deadline=60, policy=policy)
    ended = time.monotonic()
    thread.join()
    assert ended - said[0] < 5


def test_the_watchman_leaves_when_there_is_nothing_to_watch():
    one, other = socket.socketpair()
    with one, other:
        kept = curfew.Curfew(0.05, sock=one)
        assert other.recv(1) == b""  # shut down from the other side
        assert kept.ended
        kept.end()
    watchman = curfew._WATCH._thread
    if watchman is not None:
        watchman.join(10)
        assert not watchman.is_alive()


def test_what_has_ended_is_left_alone():
    one, other = socket.socketpair()
    with one, other:
        kept = curfew.Curfew(0.1, sock=one)
        kept.end()
        other.settimeout(0.3)
        with pytest.raises(TimeoutError):
            other.recv(1)
        assert not kept.ended


def test_a_shorter_one_does_not_wait_for_a_longer_one():
    pairs = [socket.socketpair() for _ in range(2)]
    (long, _), (short, peer) = pairs
    first = curfew.Curfew(60, sock=long)
    second = curfew.Curfew(0.05, sock=short)
    peer.settimeout(10)
    assert peer.recv(1) == b""
    assert second.ended
    assert not first.ended
    for kept in (first, second):
        kept.end()
    for each in (*pairs[0], *pairs[1]):
        each.close()


def test_a_socket_that_comes_too_late_is_shut_at_once():
    one, other = socket.socketpair()

    def late():
        with curfew.within(0.01):
            threading.Event().wait(0.3)
            curfew.uses(one)
            assert one.recv(1) == b""
            raise ConnectionResetError

    with one, other, pytest.raises(TimeoutError):
        late()


def test_what_was_never_sent_says_so_itself():
    def slow():
        with curfew.within(0.01):
            threading.Event().wait(0.3)
            raise urllib3.exceptions.ConnectTimeoutError

    with pytest.raises(urllib3.exceptions.ConnectTimeoutError) as caught:
        slow()
    assert outcome_of(caught.value) is Done.NO


def test_one_inside_another_gives_it_back():
    with curfew.within(30):
        outer = curfew._here.curfew
        with curfew.within(10):
            assert curfew._here.curfew is not outer
        assert curfew._here.curfew is outer
    assert curfew._here.curfew is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_watches_over_nothing_of_its_parent():
    one, other = socket.socketpair()
    with one, other:
        kept = curfew.Curfew(60, sock=one)
        child = os.fork()
        if child == 0:
            os._exit(len(curfew._WATCH._kept))
        _, status = os.waitpid(child, 0)
        kept.end()
    assert os.waitstatus_to_exitcode(status) == 0


class Slow(http.server.BaseHTTPRequestHandler):
    """Answers at once, or says that it will and then says nothing."""

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
def slow():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.released = threading.Event()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def straight_manager():
    manager = urllib3.PoolManager(maxsize=1, retries=False)
    go_straight(manager)
    return manager


def test_a_connection_that_went_back_is_nobodys_business_any_more(slow, straight_manager):
    url = f"http://127.0.0.1:{slow.server_port}"
    with curfew.within(0.2):
        assert straight_manager.urlopen("GET", f"{url}/quick").data == b"{}"
        slow.released.set()
        # The same connection serves this one, which has a time of its own, while the first one's runs out.
        with curfew.within(20):
            threading.Event().wait(0.5)
            assert straight_manager.urlopen("GET", f"{url}/later").data == b"{}"
    assert next(iter(straight_manager.pools._container.values())).num_connections == 1


def test_an_answer_that_is_read_later_keeps_the_timeout_of_its_reads(slow, straight_manager):
    url = f"http://127.0.0.1:{slow.server_port}/silent"

    def opened(**terms):
        timeout = terms.pop("_request_timeout")
        return straight_manager.urlopen("GET", url, preload_content=False, timeout=urllib3.Timeout(timeout))

    stream = curfew.bounded(opened)(_request_timeout=0.3, _preload_content=False)
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        stream.read()
