"""Delete of an object as it was seen: what has changed since stays."""

import pytest

from holdfast.errors import ObjectConflictError

PODS = "/api/v1/namespaces/n/pods"


def pod():
    return {"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "x"}}


def test_delete_of_a_version_leaves_what_has_changed_since_alone(cluster, server, store, told, clock):
    store._keep(f"{PODS}/p", pod())
    server.answers.append(told.status(409, "Conflict", "the ResourceVersion in the precondition"))
    with pytest.raises(ObjectConflictError, match="precondition"):
        cluster.objects("delete", "Pod", "p", namespace="n", uid="uid-1", version="6")
    assert server.requests[-2][2]["preconditions"] == {"uid": "uid-1", "resourceVersion": "6"}
    assert f"{PODS}/p" in store.objects


def test_delete_of_a_version_knows_its_own_lost_delete(cluster, server, store, told, clock):
    """What waits for its finalizers has another version by our own doing."""
    store._keep(f"{PODS}/p", pod())

    def leave():
        store.objects[f"{PODS}/p"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    server.answers += [told.reset(leave), told.status(409, "Conflict", "another version")]
    found = cluster.objects("delete", "Pod", "p", namespace="n", uid="uid-1", version="6")
    assert found.did == "deleted"
