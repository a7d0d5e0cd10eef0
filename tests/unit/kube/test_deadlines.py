"""No wait and no last look lasts longer than the deadline, whatever the server does meanwhile."""

import json
import time

import pytest

from holdfast.errors import DeadlineError
from holdfast.kube import pod_ready
from holdfast.retry import Deadline, Policy

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
def test_a_wait_ends_at_its_deadline(cluster, server, told, data, every, first):
    drip = told.drip(data, every, first)
    server.reply = lambda verb, path, body: drip if "watch=" in path else (200, LIST)
    began = time.monotonic()
    with pytest.raises(DeadlineError, match="last seen"):
        cluster.objects("wait", "Pod", "p", pod_ready, namespace="n", deadline=1.0)
    assert 0.9 < time.monotonic() - began < 15


def test_an_event_late_in_the_wait_does_not_buy_time(cluster, server, told):
    drip = told.drip(EVENT, 0.8)
    server.reply = lambda verb, path, body: drip if "watch=" in path else (200, LIST)
    began = time.monotonic()
    with Deadline.after(1.0), pytest.raises(DeadlineError):
        cluster.objects("wait", "Pod", "p", pod_ready, namespace="n", deadline=60)
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("verb", ["create", "delete"])
def test_the_last_look_ends_with_the_deadline_around_the_call(cluster, server, told, verb):
    server.answers.append(told.reset())
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
