"""No wait and no last look lasts longer than the deadline, whatever the server does meanwhile."""

import json
import threading
import time

import pytest
from kubernetes import client

from holdfast.errors import DeadlineExceededError, OperationCancelledError, TemporaryError
from holdfast.kube import pod_ready, resilient
from holdfast.retry import Deadline, Policy, constant

PENDING = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "resourceVersion": "7"},
    "status": {"phase": "Pending"},
}
EVENT = json.dumps({"type": "MODIFIED", "object": PENDING}).encode() + b"\n"
LIST = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "6"}, "items": []}


@pytest.mark.parametrize(
    ("data", "every", "first"),
    [(EVENT, 0.2, b""), (b"{", 0.2, b""), (EVENT, 30, EVENT), (EVENT, 30, b"")],
    ids=["an event now and then", "an event without an end", "one event and silence", "silence"],
)
def test_wait_ends_at_deadline(cluster, server, responses, data, every, first):
    drip = responses.drip(data, every, first)
    server.reply = lambda verb, path, body: drip if "watch=" in path else (200, LIST)
    began = time.monotonic()
    with pytest.raises(DeadlineExceededError, match="last seen"):
        cluster.objects("wait", "Pod", "p", pod_ready, namespace="n", deadline=1.0)
    assert 0.9 < time.monotonic() - began < 15


def test_late_event_does_not_extend_wait(cluster, server, responses):
    drip = responses.drip(EVENT, 0.8)
    server.reply = lambda verb, path, body: drip if "watch=" in path else (200, LIST)
    began = time.monotonic()
    with Deadline.after(1.0), pytest.raises(DeadlineExceededError):
        cluster.objects("wait", "Pod", "p", pod_ready, namespace="n", deadline=60)
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("verb", ["create", "delete"])
def test_final_read_respects_surrounding_deadline(cluster, server, responses, verb):
    server.answers.append(responses.reset())
    server.reply = lambda *_: server.stopped.wait(40) or (200, {})
    body = {"metadata": {"name": "a"}}
    args = ("n", body) if verb == "create" else ("a", "n")
    cluster.models.CoreV1Api()  # loads the models, which no deadline should have to pay for
    began = time.monotonic()
    with Deadline.after(2.0), pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", f"{verb}_namespaced_config_map", *args, policy=Policy(attempts=1))
    assert time.monotonic() - began < 25
    assert [asked for asked, _ in server.asked] == ["POST" if verb == "create" else "DELETE", "GET"], (
        caught.value
    )


@pytest.mark.parametrize(
    "terms",
    [
        {"_request_timeout": 60},
        {"_request_timeout": (60, 60)},
        {"_request_timeout": None},
        {"watch": True},
        {"_preload_content": False},
    ],
    ids=["one timeout", "two timeouts", "no timeout", "watch", "without preload"],
)
def test_every_call_form_respects_deadline(cluster, server, terms):
    if isinstance(terms.get("_request_timeout"), tuple) and cluster.name == "aio":
        pytest.skip("that client takes one number")
    server.reply = lambda *_: server.stopped.wait(40) or (200, LIST)
    began = time.monotonic()
    with pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", "list_namespaced_pod", "n", policy=Policy(attempts=1, deadline=1), **terms)
    assert time.monotonic() - began < 15, caught.value


def test_async_req_call_inherits_caller_deadline(server):
    server.reply = lambda *_: server.stopped.wait(40) or (200, LIST)
    began = time.monotonic()
    configuration = client.Configuration(host=server.url)
    with client.ApiClient(configuration) as made, Deadline.after(1.0):
        pending = resilient(client.CoreV1Api(made)).list_namespaced_pod("n", async_req=True)
        with pytest.raises(Exception) as caught:
            pending.get()
        assert time.monotonic() - began < 15, caught.value


def test_requests_of_one_call_share_deadline(cluster, server, responses):
    """Each of them answers in time, all together do not."""
    server.reply = lambda verb, *_: (
        server.stopped.wait(1.6)
        or (
            responses.status(404, "NotFound")
            if verb == "GET"
            else (200, {"kind": "ConfigMap", "metadata": {"uid": "1"}})
        )
    )
    began = time.monotonic()
    with pytest.raises(TemporaryError):
        cluster.objects(
            "apply", {"kind": "ConfigMap", "metadata": {"name": "a"}}, policy=Policy(attempts=2, deadline=2.4)
        )
    assert len(server.asked) == 2
    assert time.monotonic() - began < 15


def test_stop_ends_call_without_final_read(cluster, server, responses):
    stop = threading.Event()
    server.answers.append(responses.reset())
    policy = Policy(attempts=4, stop=stop, backoff=constant(30), on_retry=lambda _: stop.set())
    with pytest.raises(OperationCancelledError):
        cluster.call(
            "CoreV1Api", "create_namespaced_config_map", "n", {"metadata": {"name": "a"}}, policy=policy
        )
    assert [verb for verb, _ in server.asked] == ["POST"]


def test_stop_ends_wait_on_single_use_connection(cluster, server, responses):
    stop = threading.Event()
    drip = responses.drip(EVENT, 40, EVENT, header=b"Connection: close\r\n")
    server.reply = lambda verb, path, body: drip if "watch=" in path else (200, LIST)
    threading.Timer(1.0, stop.set).start()
    began = time.monotonic()
    with pytest.raises(OperationCancelledError):
        cluster.objects(
            "wait", "Pod", "p", pod_ready, namespace="n", policy=Policy(attempts=None, stop=stop), deadline=60
        )
    assert time.monotonic() - began < 15


def test_stop_ends_watch(cluster, server, responses):
    stop = threading.Event()
    server.reply = lambda *_: threading.Timer(0.1, stop.set).start() or responses.drip(EVENT, 40)
    with pytest.raises(OperationCancelledError):
        cluster.objects(
            "watch", "Pod", print, resource_version="6", namespace="n", policy=Policy(attempts=4, stop=stop)
        )
