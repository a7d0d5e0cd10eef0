"""Delete of an object as it was seen: what has changed since stays."""

import pytest

from holdfast.errors import ObjectConflictError

PODS = "/api/v1/namespaces/n/pods"


def pod():
    return {"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "x"}}


def test_delete_with_version_skips_changed_object(cluster, server, store, responses, clock):
    store._keep(f"{PODS}/p", pod())
    server.answers.append(responses.status(409, "Conflict", "the ResourceVersion in the precondition"))
    with pytest.raises(ObjectConflictError, match="precondition"):
        cluster.objects("delete", "Pod", "p", namespace="n", uid="uid-1", resource_version="6")
    assert server.requests[-2][2]["preconditions"] == {"uid": "uid-1", "resourceVersion": "6"}
    assert f"{PODS}/p" in store.objects


def test_delete_with_version_recognizes_its_lost_response(cluster, server, store, responses, clock):
    """What waits for its finalizers has another version by our own doing."""
    store._keep(f"{PODS}/p", pod())

    def leave():
        store.objects[f"{PODS}/p"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    server.answers += [responses.reset(leave), responses.status(409, "Conflict", "another version")]
    found = cluster.objects("delete", "Pod", "p", namespace="n", uid="uid-1", resource_version="6")
    assert found.effect == "deleted"
