"""Events, refused streams and limits on a real API server: nothing runs there, so nothing is executed."""

from __future__ import annotations

import asyncio
import datetime as dt
import http.client
import json
import ssl
import uuid
from contextlib import suppress

import pytest
from tests.integration.server.conftest import STREAMS
from tests.support.gateway_api_server import LOOPBACK, GatewayApiServer
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from holdfast.api import API_VERSION, SandboxEventType
from holdfast.pki import issue_bundle
from holdfast.retry import Policy, constant

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

ROOT = "/v1/sandboxes"
EVENTUALLY = Policy(attempts=None, deadline=20, backoff=constant(0.05), retry_on=AssertionError)


class EventStream:
    """The stream of a sandbox, or of another path, read event by event."""

    def __init__(self, server, name, path=None) -> None:
        self._connection = server.connect(server.bundle.client)
        self._connection.request("GET", path or f"{ROOT}/{name}/events")
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
def sandbox_name(server):
    name = f"s-{uuid.uuid4().hex[:8]}"
    assert server.request_json("POST", ROOT, {"name": name, "workspace": False})[0] == 201
    return name


def test_event_stream_sends_current_state_changes_and_deletion(server, reconciler, sandbox_name):
    stream = EventStream(server, sandbox_name)
    assert stream.answer.getheader("content-type").startswith("text/event-stream")
    event, first = stream.next()
    assert (event, first["phase"], first["conditions"]) == (SandboxEventType.STATE, "Pending", [])
    reconciler.reconcile(sandbox_name)
    event, second = stream.next()
    assert (event, second["message"]) == (SandboxEventType.STATE, "Pod exists with phase: Pending")
    server.request_json("POST", f"{ROOT}/{sandbox_name}/suspend")
    assert stream.next()[1]["message"] == "the controller has not seen the latest change yet"
    server.request_json("DELETE", f"{ROOT}/{sandbox_name}")
    event, last = stream.next()
    assert (event, last["phase"]) == (SandboxEventType.DELETED, "Deleting")
    assert stream.next() is None


def record_event(objects, namespace, pod, reason, message, count):
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    identity = {key: pod["metadata"][key] for key in ("name", "uid")}
    objects.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod['metadata']['name']}.{uuid.uuid4().hex[:8]}"},
            "involvedObject": {"kind": "Pod", "namespace": namespace, **identity},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "count": count,
            "firstTimestamp": now,
            "lastTimestamp": now,
        },
        namespace=namespace,
    )


def test_event_stream_reports_why_the_pod_cannot_start(server, objects, namespace, reconciler, sandbox_name):
    """The reason of the controller remains the general one: only events of the pod have the cause."""
    reconciler.reconcile(sandbox_name)
    reconciler.reconcile(sandbox_name)  # with the pod
    pod = objects.get("Pod", sandbox_name, namespace=namespace)
    message = 'MountVolume.SetUp failed for volume "s" : secret "none" not found'
    record_event(objects, namespace, pod, "FailedMount", message, 7)
    stream = EventStream(server, sandbox_name)
    assert stream.next()[1]["reason"] == "DependenciesNotReady"
    event, state = stream.next()
    assert (event, state["phase"]) == (SandboxEventType.STATE, "Pending")
    assert (state["reason"], state["message"]) == ("FailedMount", message)
    stream.close()


def test_event_stream_ends_with_deleted_when_sandbox_is_recreated(server, sandbox_name):
    stream = EventStream(server, sandbox_name)
    stream.next()
    server.request_json("DELETE", f"{ROOT}/{sandbox_name}")
    server.request_json("POST", ROOT, {"name": sandbox_name, "workspace": False})
    assert stream.next()[0] == SandboxEventType.DELETED


def next_of(stream, name):
    """The next event about a sandbox, without those of other tests."""
    while (event := stream.next()) is not None:
        if event[1].get("name") in (name, None):
            return event
    return None


def test_stream_of_all_sandboxes_sends_current_states_changes_and_deletions(server, reconciler, sandbox_name):
    stream = EventStream(server, None, path="/v1/watch/sandboxes")
    event, first = next_of(stream, sandbox_name)
    assert (event, first["phase"]) == (SandboxEventType.STATE, "Pending")
    assert next_of(stream, sandbox_name) == (SandboxEventType.SYNCED, {})
    reconciler.reconcile(sandbox_name)
    assert next_of(stream, sandbox_name)[1]["message"] == "Pod exists with phase: Pending"
    listed = server.request_json("GET", ROOT)[1]["items"]
    later = f"{sandbox_name}-later"
    server.request_json("POST", ROOT, {"name": later, "workspace": False})
    event, view = next_of(stream, later)
    assert (event, view["name"]) == (SandboxEventType.STATE, later)
    server.request_json("DELETE", f"{ROOT}/{sandbox_name}")
    event, last = next_of(stream, sandbox_name)
    assert (event, last["phase"]) == (SandboxEventType.DELETED, "Deleting")
    shown = next(view for view in listed if view["name"] == sandbox_name)
    assert {**last, "phase": shown["phase"]} == shown
    stream.close()


def test_stream_of_selected_sandboxes_reports_a_lost_label_as_deletion(server, objects, namespace):
    names = [f"s-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for name, tier in zip(names, ("web", "db"), strict=True):
        body = {"name": name, "workspace": False, "labels": {"tier": tier, "run": names[0]}}
        assert server.request_json("POST", ROOT, body)[0] == 201
    selector = f"run={names[0]},tier%20in%20(web,%20cache)"
    stream = EventStream(server, None, path=f"/v1/watch/sandboxes?selector={selector}")
    assert stream.next()[1]["name"] == names[0]
    assert stream.next()[0] == SandboxEventType.SYNCED
    patch = {"metadata": {"labels": {"tier": "db"}}}
    objects.patch("Sandbox", names[0], patch, namespace=namespace, api_version=API_VERSION)
    event, last = stream.next()
    assert (event, last["name"]) == (SandboxEventType.DELETED, names[0])
    stream.close()


def test_invalid_selector_is_rejected(server):
    for path in (ROOT, "/v1/watch/sandboxes"):
        for selector in ("a=b,", "a%20in%20()", "a=%1b", "x" * 3000):
            assert server.request_json("GET", f"{path}?selector={selector}")[0] == 400


def test_selectors_combine_as_in_kubectl(server):
    names = {}
    run = f"r-{uuid.uuid4().hex[:8]}"
    for tier in ("web", "db", ""):
        names[tier] = f"s-{uuid.uuid4().hex[:8]}"
        body = {
            "name": names[tier],
            "workspace": False,
            "labels": {"run": run} | ({"tier": tier} if tier else {}),
        }
        assert server.request_json("POST", ROOT, body)[0] == 201
    for selector, expected in {
        "tier=web": {"web"}, "tier==web": {"web"}, "tier!=web": {"db", ""}, "tier": {"web", "db"},
        "!tier": {""}, "tier%20in%20(web,db)": {"web", "db"}, "tier%20notin%20(web)": {"db", ""},
    }.items():  # fmt: skip
        found = server.request_json("GET", f"{ROOT}?selector=run={run},{selector}")[1]["items"]
        assert {view["name"] for view in found} == {names[tier] for tier in expected}, selector


def test_stream_limit_applies_and_closed_stream_frees_slot(server, sandbox_name):
    streams = [EventStream(server, sandbox_name) for _ in range(STREAMS)]
    for stream in streams:
        assert stream.next()
    refused = EventStream(server, sandbox_name)
    assert (refused.answer.status, refused.answer.getheader("Retry-After")) == (429, "1")
    assert json.loads(refused.answer.read())["code"] == "too-many-requests"
    for spelling in (f"{sandbox_name}/", f"/{sandbox_name}", f"{sandbox_name}%2F"):
        assert EventStream(server, spelling).answer.status == 429
    assert server.request_json("GET", f"{ROOT}/{sandbox_name}")[0] == 200
    streams.pop().close()

    def there_is_room():
        again = EventStream(server, sandbox_name)
        assert again.answer.status == 200
        streams.append(again)

    EVENTUALLY.call(there_is_room)
    for stream in streams:
        stream.close()


def test_ca_renewal_disconnects_clients_of_old_ca(kube_server, namespace, sandbox_name, tmp_path):
    old, new = (issue_bundle([LOOPBACK], at=dt.datetime.now(dt.UTC)) for _ in range(2))
    server = GatewayApiServer(tmp_path, old, kubeconfig=kube_server.kubeconfig, namespace=namespace)
    try:
        stream = EventStream(server.wait_ready(), sandbox_name)
        assert stream.next()
        server.install_bundle(new)
        # A stream that is not interrupted never ends: it sends keep-alive comments.
        with suppress(ConnectionError, ssl.SSLError, http.client.HTTPException):
            assert stream.next() is None
    finally:
        server.stop()


async def handshake(server, path):
    url = f"wss://{LOOPBACK}:{server.port}{path}"
    with pytest.raises(InvalidStatus) as refused:
        await connect(url, ssl=server.context(server.bundle.client))
    return refused.value.response.status_code, json.loads(refused.value.response.body)["code"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("exec?command=a", (409, "not-running")), ("exec", (400, "no-command")),
        ("exec?command=a&tty=maybe", (400, "bad-request")), ("forward?port=80", (409, "not-running")),
        ("forward?port=0", (400, "bad-port")), ("forward?port=x", (400, "bad-port")),
    ],
)  # fmt: skip
def test_exec_into_stopped_pod_is_rejected_with_reason(server, sandbox_name, path, expected):
    def it_is_refused():
        # The streams of the test before end when their connections do.
        found = asyncio.run(handshake(server, f"{ROOT}/{sandbox_name}/{path}"))
        assert found[0] != 429
        return found

    assert EVENTUALLY.call(it_is_refused) == expected


def test_stream_to_missing_sandbox_is_rejected(server):
    assert asyncio.run(handshake(server, f"{ROOT}/nobody/exec?command=a")) == (404, "sandbox-missing")


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/.."])
def test_paths_with_traversal_are_rejected(server, sandbox_name, path):
    for method in ("GET", "PUT"):
        status, problem = server.request_json(method, f"{ROOT}/{sandbox_name}/files?path={path}")
        assert (status, problem["code"]) == (400, "bad-path")


def test_foreign_pod_with_sandbox_name_is_not_reachable(server, objects, namespace, sandbox_name):
    """A client that may use sandboxes cannot reach other pods through them."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": sandbox_name},
        "spec": {"containers": [{"name": "x", "image": "y"}]},
    }
    objects.ensure(body, namespace=namespace)
    assert asyncio.run(handshake(server, f"{ROOT}/{sandbox_name}/exec?command=a")) == (409, "not-running")
    assert server.request_json("GET", f"{ROOT}/{sandbox_name}/logs")[1]["code"] == "not-running"
