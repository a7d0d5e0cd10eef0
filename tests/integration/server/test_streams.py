"""Events, refused streams and limits on a real API server: nothing runs there, so nothing is executed."""

from __future__ import annotations

import asyncio
import datetime as dt
import http.client
import json
import ssl
import uuid
from contextlib import suppress

import aiohttp
import pytest
from tests.integration.server.conftest import STREAMS
from tests.support.api_servers import LOOPBACK, ApiServer

from holdfast.pki import issue
from holdfast.retry import Policy, constant
from holdfast.sandbox.wire import Event

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

ROOT = "/v1/sandboxes"
SOON = Policy(attempts=None, deadline=20, backoff=constant(0.05), retry_on=AssertionError)


class Events:
    """A sandbox's stream, read event by event."""

    def __init__(self, server, name) -> None:
        self._connection = server.connect(server.bundle.client)
        self._connection.request("GET", f"{ROOT}/{name}/events")
        self.answer = self._connection.getresponse()

    def next(self):
        """The next event: its name and its data; None at the end."""
        event = None
        while line := self.answer.readline():
            if line.startswith(b"event: "):
                event = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                return event, json.loads(line[6:])
        return None

    def close(self):
        self._connection.close()


@pytest.fixture
def made(server):
    name = f"s-{uuid.uuid4().hex[:8]}"
    assert server.call("POST", ROOT, {"name": name, "workspace": False})[0] == 201
    return name


def test_events_tell_the_state_now_each_change_and_the_end(server, hand, made):
    stream = Events(server, made)
    assert stream.answer.getheader("content-type").startswith("text/event-stream")
    event, first = stream.next()
    assert (event, first["phase"], first["conditions"]) == (Event.STATE, "Pending", [])
    hand.look(made)
    event, second = stream.next()
    assert (event, second["message"]) == (Event.STATE, "the pod is being made")
    server.call("POST", f"{ROOT}/{made}/suspend")
    assert stream.next()[1]["message"] == "what was asked for last is being taken up"
    server.call("DELETE", f"{ROOT}/{made}")
    event, last = stream.next()
    assert (event, last["phase"]) == (Event.DELETED, "Deleting")
    assert stream.next() is None


def test_another_one_of_the_same_name_is_another_stream(server, made):
    stream = Events(server, made)
    stream.next()
    server.call("DELETE", f"{ROOT}/{made}")
    server.call("POST", ROOT, {"name": made, "workspace": False})
    assert stream.next()[0] == Event.DELETED


def test_only_so_many_streams_at_once_and_one_that_ends_makes_room(server, made):
    streams = [Events(server, made) for _ in range(STREAMS)]
    for stream in streams:
        assert stream.next()
    refused = Events(server, made)
    assert (refused.answer.status, refused.answer.getheader("Retry-After")) == (429, "1")
    assert json.loads(refused.answer.read())["code"] == "too-many-requests"
    for spelling in (f"{made}/", f"/{made}", f"{made}%2F"):
        assert Events(server, spelling).answer.status == 429
    assert server.call("GET", f"{ROOT}/{made}")[0] == 200
    streams.pop().close()

    def there_is_room():
        again = Events(server, made)
        assert again.answer.status == 200
        streams.append(again)

    SOON.call(there_is_room)
    for stream in streams:
        stream.close()


def test_a_renewed_ca_cuts_the_streams_of_who_came_in_before(kube_server, namespace, made, tmp_path):
    old, new = (issue([LOOPBACK], at=dt.datetime.now(dt.UTC)) for _ in range(2))
    server = ApiServer(tmp_path, old, kubeconfig=kube_server.kubeconfig, namespace=namespace)
    try:
        stream = Events(server.wait(), made)
        assert stream.next()
        server.use(new)
        # One that is not cut goes on for ever: it says that it is alive.
        with suppress(ConnectionError, ssl.SSLError, http.client.HTTPException):
            assert stream.next() is None
    finally:
        server.stop()


async def handshake(server, path):
    tls = server.context(server.bundle.client)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{server.url}{path}")
    return refused.value.status, json.loads(refused.value.headers["holdfast-problem"])["code"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("exec?command=a", (409, "not-running")), ("exec", (400, "no-command")),
        ("exec?command=a&tty=maybe", (400, "bad-request")), ("forward?port=80", (409, "not-running")),
        ("forward?port=0", (400, "bad-port")), ("forward?port=x", (400, "bad-port")),
    ],
)  # fmt: skip
def test_a_stream_into_a_pod_that_does_not_run_is_refused_with_the_reason(server, made, path, expected):
    def it_is_refused():
        # The streams of the test before end when their connections do.
        found = asyncio.run(handshake(server, f"{ROOT}/{made}/{path}"))
        assert found[0] != 429
        return found

    assert SOON.call(it_is_refused) == expected


def test_a_stream_to_nobody_is_refused(server):
    assert asyncio.run(handshake(server, f"{ROOT}/nobody/exec?command=a")) == (404, "sandbox-missing")


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/.."])
def test_paths_with_detours_are_refused(server, made, path):
    for method in ("GET", "PUT"):
        status, problem = server.call(method, f"{ROOT}/{made}/files?path={path}")
        assert (status, problem["code"]) == (400, "bad-path")


def test_a_pod_of_that_name_that_is_not_the_sandboxs_is_not_reached(server, objects, namespace, made):
    """Whoever may use sandboxes may not use them to get into other people's pods."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": made},
        "spec": {"containers": [{"name": "x", "image": "y"}]},
    }
    objects.ensure(body, namespace=namespace)
    assert asyncio.run(handshake(server, f"{ROOT}/{made}/exec?command=a")) == (409, "not-running")
    assert server.call("GET", f"{ROOT}/{made}/logs")[1]["code"] == "not-running"
