"""`Objects` and `AsyncObjects` have the same methods, parameters and docstrings."""

import inspect
import threading

import pytest

from holdfast.kube import AsyncObjects, Objects, WaitResult

POD = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "uid": "1", "resourceVersion": "7"}}
PODS = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "6"}, "items": [POD]}


def public_methods(cls):
    return {name: member for name, member in vars(cls).items() if not name.startswith("_")}


def test_public_methods_are_the_same():
    assert public_methods(Objects).keys() == public_methods(AsyncObjects).keys()
    assert {"wait_many", "watch"} <= public_methods(Objects).keys()


@pytest.mark.parametrize("name", sorted(public_methods(Objects)))
def test_parameters_and_docstrings_are_the_same(name):
    sync, coroutine = getattr(Objects, name), getattr(AsyncObjects, name)
    assert inspect.signature(sync).parameters == inspect.signature(coroutine).parameters
    assert sync.__doc__ == coroutine.__doc__
    assert sync.__doc__
    assert inspect.iscoroutinefunction(coroutine)
    assert not inspect.iscoroutinefunction(sync)


def test_constructor_parameters_are_the_same():
    assert inspect.signature(Objects).parameters == inspect.signature(AsyncObjects).parameters


def test_wait_many_receives_all_objects(cluster, server):
    server.reply = lambda *_: (200, PODS)
    seen = []

    def until(pods):
        seen.extend(pods)
        return WaitResult(done=True)

    cluster.objects("wait_many", "Pod", until, label_selector="app=a", namespace="n", deadline=5)
    assert [pod["metadata"]["name"] for pod in seen] == ["p"]
    assert "labelSelector=app%3Da" in server.requests[0][1]


def test_watch_reports_events_and_gone_version(cluster, server, responses):
    event = b'{"type": "ADDED", "object": {"metadata": {"name": "p", "resourceVersion": "8"}}}\n'
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(event), event)
    response = responses.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    gone = responses.status(410, "Expired", "too old resource version")
    server.answers += [response, gone]
    events = []
    ended = threading.Event()

    def on_event(kind, obj):
        events.append((kind, obj["metadata"]["name"]))
        ended.set()

    with pytest.raises(Exception, match="watch"):  # a stream that ends immediately was rejected
        cluster.objects("watch", "Pod", on_event, resource_version="6", namespace="n")
    assert events == [("ADDED", "p")]
    assert cluster.objects("watch", "Pod", on_event, resource_version="6", namespace="n") is False
