"""Kinds that are not built in are looked up in the server's list of resources."""

import pytest

from holdfast.errors import ApiRequestRejectedError

THING = {"apiVersion": "x.y/v1", "kind": "Thing", "metadata": {"name": "t"}}
THING_RESOURCES = {
    "kind": "APIResourceList",
    "resources": [{"name": "things", "kind": "Thing", "namespaced": True}, {"name": "things/status"}],
}


def test_unknown_kind_is_discovered(cluster, server, store, clock):
    server.answers.append((200, THING_RESOURCES))
    assert cluster.objects("ensure", THING, namespace="n").effect == "created"
    assert list(store.objects) == ["/apis/x.y/v1/namespaces/n/things/t"]


def test_kind_that_the_server_lists_late_is_found(cluster, server, store, responses, clock):
    """A server lists the kind of a new CustomResourceDefinition after it reports it as established."""
    empty = {**THING_RESOURCES, "resources": []}
    server.answers += [responses.status(404, "NotFound"), (200, empty), (200, THING_RESOURCES)]
    assert cluster.objects("ensure", THING, namespace="n").effect == "created"
    assert clock.sleeps == pytest.approx([0.1, 0.2])


def test_nonexistent_kind(cluster, server, responses, clock):
    server.answers += [responses.status(404, "NotFound")] * 5
    with pytest.raises(ApiRequestRejectedError, match=r"no such kind in x\.y/v1"):
        cluster.objects("ensure", THING)
    assert sum(clock.sleeps) == pytest.approx(1.5)
