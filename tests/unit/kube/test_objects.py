"""Ensure, apply, delete and wait against a scripted server, in threads and in tasks."""

import json

import pytest

from holdfast.errors import (
    ArgumentError,
    ClusterRefusedError,
    DeadlineError,
    ObjectConflictError,
    OutcomeUnknownError,
    TemporaryError,
    WaitFailedError,
)
from holdfast.kube import Sight, condition, deleted, job_done, pod_ready
from holdfast.kube.stamp import OPERATION, OWNER

PODS = "/api/v1/namespaces/n/pods"


def pod(name="p", **spec):
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "n"}, "spec": {"nodeName": "x", **spec}}


# Ensure ----------------------------------------------------------------------------------------------------


def test_created_then_unchanged(cluster, server, store, clock):
    assert cluster.objects("ensure", pod(), owner="me").did == "created"
    assert cluster.objects("ensure", pod(), owner="me").did == "unchanged"
    live = store.objects[f"{PODS}/p"]
    assert live["apiVersion"] == "v1"
    assert live["metadata"]["annotations"][OWNER] == "me"
    assert len(live["metadata"]["annotations"][OPERATION]) == 32


def test_alike_and_nobodys_is_adopted(cluster, server, store, clock):
    store._keep(f"{PODS}/p", {**pod(extra="the server's default"), "apiVersion": "v1"})
    result = cluster.objects("ensure", pod(), owner="me")
    assert result.did == "adopted"
    assert result.uid == "uid-1"


def test_somebody_elses_is_a_conflict(cluster, server, store, clock):
    cluster.objects("ensure", pod(), owner="them")
    with pytest.raises(ObjectConflictError, match="belongs to 'them'"):
        cluster.objects("ensure", pod(), owner="me")


def test_unlike_is_a_conflict_that_names_the_fields_and_no_value(cluster, server, store, clock):
    cluster.objects("ensure", pod(hostname="hunter2"), owner="me")
    with pytest.raises(ObjectConflictError, match=r"spec\.hostname") as caught:
        cluster.objects("ensure", pod(hostname="other"), owner="me")
    assert "hunter2" not in str(caught.value)
    assert "other" not in str(caught.value)


def test_what_is_being_deleted_is_in_the_way(cluster, server, store, clock):
    going = pod()
    going["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    store._keep(f"{PODS}/p", going)
    with pytest.raises(ObjectConflictError, match="being deleted"):
        cluster.objects("ensure", pod())


@pytest.mark.parametrize("commit", [True, False])
def test_a_lost_answer_makes_one_object_and_says_created(cluster, server, store, told, clock, commit):
    server.answers.append(told.reset(lambda: commit and store(*server.requests[-1])))
    assert cluster.objects("ensure", pod()).did == "created"
    assert len(store.objects) == 1


def test_nobody_to_ask_is_unknown(cluster, server, told, clock):
    server.answers += [told.reset()] * 20
    with pytest.raises(OutcomeUnknownError, match="create Pod n/p"):
        cluster.objects("ensure", pod())


def test_turned_away_is_temporary_and_refused_is_permanent(cluster, server, told, clock):
    server.answers += [told.status(503, "ServiceUnavailable")] * 4
    with pytest.raises(TemporaryError, match="HTTP 503"):
        cluster.objects("ensure", pod())
    server.answers.append(told.status(403, "Forbidden", "pods is forbidden: no"))
    with pytest.raises(ClusterRefusedError, match="pods is forbidden") as caught:
        cluster.objects("ensure", pod())
    assert caught.value.exit_code == 3


def test_nothing_of_a_secret_is_said(cluster, server, told, clock):
    server.answers.append(told.status(422, "Invalid", "data[k]: aHVudGVyMg=="))
    body = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "aHVudGVyMg=="}}
    with pytest.raises(ClusterRefusedError) as caught:
        cluster.objects("ensure", body)
    assert "aHVudGVyMg" not in str(caught.value) + str(caught.value.cause)


def test_a_model_is_as_good_as_a_dict(cluster, server, store, clock):
    models = cluster.models
    body = models.V1ConfigMap(metadata=models.V1ObjectMeta(name="m"), data={"k": "v"})
    assert cluster.objects("ensure", body, namespace="n").did == "created"
    assert store.objects["/api/v1/namespaces/n/configmaps/m"]["kind"] == "ConfigMap"


def test_a_kind_that_is_not_known_is_looked_up(cluster, server, store, clock):
    resources = {
        "kind": "APIResourceList",
        "resources": [{"name": "things", "kind": "Thing", "namespaced": True}, {"name": "things/status"}],
    }
    server.answers.append((200, resources))
    body = {"apiVersion": "x.y/v1", "kind": "Thing", "metadata": {"name": "t"}}
    assert cluster.objects("ensure", body, namespace="n").did == "created"
    assert list(store.objects) == ["/apis/x.y/v1/namespaces/n/things/t"]


def test_a_kind_that_nobody_knows(cluster, server, told, clock):
    server.answers.append(told.status(404, "NotFound"))
    with pytest.raises(ClusterRefusedError, match=r"no kind Thing in x\.y/v1"):
        cluster.objects("ensure", {"apiVersion": "x.y/v1", "kind": "Thing", "metadata": {"name": "t"}})


# Apply, get, delete ----------------------------------------------------------------------------------------


def test_apply_is_server_side_and_survives_a_lost_answer(cluster, server, store, told, clock):
    assert cluster.objects("apply", pod()).did == "created"
    verb, path, _ = server.requests[-1]
    assert verb == "PATCH"
    assert "fieldManager=holdfast" in path
    assert "force" not in path
    server.answers += [(200, store.objects[f"{PODS}/p"]), told.reset()]
    assert cluster.objects("apply", pod(hostname="h"), force=True).did == "changed"
    assert "force=true" in server.requests[-1][1]


def test_a_field_of_another_manager_is_a_conflict_that_names_it(cluster, server, told, clock):
    cause = {"reason": "FieldManagerConflict", "field": ".spec.hostname", "message": "x"}
    server.answers += [(200, pod()), told.status(409, "Conflict", "conflict", causes=[cause])]
    with pytest.raises(ObjectConflictError, match=r"\.spec\.hostname"):
        cluster.objects("apply", pod())


def test_get(cluster, server, store, clock):
    assert cluster.objects("get", "Pod", "p", namespace="n") is None
    store._keep(f"{PODS}/p", pod())
    assert cluster.objects("get", "Pod", "p", namespace="n")["metadata"]["name"] == "p"


def test_delete_sends_the_uid_and_takes_gone_for_done(cluster, server, store, told, clock):
    store._keep(f"{PODS}/p", pod())
    assert cluster.objects("delete", "Pod", "p", namespace="n").did == "deleted"
    assert server.requests[-1][2]["preconditions"] == {"uid": "uid-1"}
    assert cluster.objects("delete", "Pod", "p", namespace="n").did == "absent"


def test_delete_leaves_a_later_object_of_the_same_name_alone(cluster, server, store, told, clock):
    store._keep(f"{PODS}/p", pod())
    assert cluster.objects("delete", "Pod", "p", namespace="n", uid="an-older-one").did == "absent"
    assert len(store.objects) == 1


def test_delete_whose_answer_was_lost(cluster, server, store, told, clock):
    store._keep(f"{PODS}/p", pod())
    server.answers += [(200, store.objects[f"{PODS}/p"]), told.reset(store.objects.clear)]
    assert cluster.objects("delete", "Pod", "p", namespace="n").did == "deleted"


def test_a_conflict_on_delete_is_looked_into(cluster, server, store, told, clock):
    store._keep(f"{PODS}/p", pod())
    server.answers += [(200, store.objects[f"{PODS}/p"]), told.status(409, "Conflict", "held by a webhook")]
    with pytest.raises(ObjectConflictError, match="held by a webhook"):
        cluster.objects("delete", "Pod", "p", namespace="n")
    assert f"{PODS}/p" in store.objects
    assert cluster.objects("delete", "Pod", "p", namespace="n", uid="an older one").did == "absent"


# Waits -----------------------------------------------------------------------------------------------------


def listing(*items, version="5"):
    return 200, {"kind": "PodList", "metadata": {"resourceVersion": version}, "items": list(items)}


def events(*rows):
    lines = b"".join(json.dumps({"type": kind, "object": obj}).encode() + b"\n" for kind, obj in rows)
    return 200, lines


def ready(version="6"):
    return {
        "metadata": {"name": "p", "resourceVersion": version},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pending(version="6"):
    return {"metadata": {"name": "p", "resourceVersion": version}, "status": {"phase": "Pending"}}


def wait(cluster, until=pod_ready, deadline=60):
    return cluster.objects("wait", "Pod", "p", until, namespace="n", deadline=deadline)


def test_what_is_so_already_needs_no_watch(cluster, server, clock):
    server.answers.append(listing(ready()))
    assert wait(cluster)["status"]["phase"] == "Running"
    assert len(server.requests) == 1


def test_a_wait_watches_from_the_listed_version(cluster, server, clock):
    server.answers += [listing(pending()), events(("MODIFIED", ready()))]
    wait(cluster)
    assert "fieldSelector=metadata.name%3Dp" in server.requests[0][1]
    assert "resourceVersion=5" in server.requests[1][1]
    assert "watch=true" in server.requests[1][1]


def test_a_dropped_watch_is_resumed_where_it_was(cluster, server, told, clock):
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "42"}}
    server.answers += [
        listing(),
        events(("BOOKMARK", bookmark)),
        told.reset(),
        events(("ADDED", ready("43"))),
    ]
    wait(cluster)
    assert [verb for verb, _ in server.asked] == ["GET"] * 4
    assert "resourceVersion=42" in server.requests[2][1]
    assert "resourceVersion=42" in server.requests[3][1]


@pytest.mark.parametrize("where", ["in the stream", "as a status"])
def test_too_old_lists_again_after_a_backoff(cluster, server, told, clock, where):
    gone = told.status(410, "Expired")[1]
    storm = [events(("ERROR", gone)) if where == "in the stream" else (410, gone) for _ in range(5)]
    for each in storm:
        server.answers += [listing(pending()), each]
    server.answers.append(listing(ready()))
    wait(cluster)
    assert len(clock.slept) == 5
    assert sum("watch=" not in path for _, path, _ in server.requests) == 6


def test_an_error_in_the_stream_that_asks_for_a_pause(cluster, server, told, clock):
    slow = told.status(429, "TooManyRequests", retryAfterSeconds=9)[1]
    server.answers += [listing(pending()), events(("ERROR", slow)), events(("MODIFIED", ready()))]
    wait(cluster)
    assert clock.slept[0] >= 9


def test_rubbish_in_the_stream_is_survived(cluster, server, told, clock):
    server.answers += [
        listing(pending()),
        (200, b"\xff\xfe\n"),
        (200, b'{"type": "ADDED"}\n'),
        (200, b"[]\n"),
        events(("MODIFIED", ready())),
    ]
    wait(cluster)


def test_one_deadline_for_all_of_it(cluster, server, clock):
    server.reply = lambda verb, path, body: events() if "watch=" in path else listing(pending())
    with pytest.raises(DeadlineError, match=r"not as awaited within 20 s; last seen: Pending"):
        wait(cluster, deadline=20)
    assert sum(clock.slept) < 20


def test_a_watch_that_is_forbidden_ends_the_wait(cluster, server, told, clock):
    server.answers.append(told.status(403, "Forbidden"))
    with pytest.raises(ClusterRefusedError):
        wait(cluster)


def test_what_can_no_longer_come_true_ends_the_wait(cluster, server, clock):
    failed = {"metadata": {"name": "j"}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    server.answers.append(listing(failed))
    with pytest.raises(WaitFailedError, match="the job failed"):
        wait(cluster, job_done)


def test_gone_is_seen(cluster, server, clock):
    server.answers += [listing(pending()), events(("DELETED", pending("9")))]
    assert wait(cluster, deleted()) is None


def test_another_object_of_the_same_name_means_gone(cluster, server, clock):
    later = {"metadata": {"name": "p", "uid": "new"}}
    server.answers.append(listing(later))
    wait(cluster, deleted("old"))


def test_a_condition_of_the_callers_own(cluster, server, clock):
    server.answers += [listing(pending()), events(("MODIFIED", ready()))]
    wait(cluster, lambda obj: Sight(done=obj["status"]["phase"] == "Running"))
    server.answers.append(listing(ready()))
    wait(cluster, lambda obj: obj is not None)


def test_a_condition_that_raises_is_one_clear_error(cluster, server, clock):
    server.answers.append(listing(pending()))
    with pytest.raises(ArgumentError, match=r"until: raised KeyError"):
        wait(cluster, lambda obj: obj["no such key"])


def test_delete_can_wait(cluster, server, store, told, clock):
    store._keep(f"{PODS}/p", pod())
    going = {"metadata": {"name": "p", "uid": "uid-1", "finalizers": ["x/y"]}}
    server.answers += [
        (200, store.objects[f"{PODS}/p"]),
        (200, {"kind": "Status"}),
        listing(going),
        events(("DELETED", going)),
    ]
    assert cluster.objects("delete", "Pod", "p", namespace="n", wait=30).did == "deleted"


def test_what_holds_a_deletion_is_named(cluster, server, clock):
    going = {"metadata": {"name": "p", "deletionTimestamp": "x", "finalizers": ["x/y"]}}
    server.reply = lambda verb, path, body: events() if "watch=" in path else listing(going)
    with pytest.raises(DeadlineError, match="held by x/y"):
        wait(cluster, deleted(), deadline=5)


def test_any_condition(cluster, server, clock):
    row = {"type": "Established", "status": "True"}
    server.answers.append(listing({"metadata": {"name": "c"}, "status": {"conditions": [row]}}))
    wait(cluster, condition("Established"))


# What cannot be meant --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "argument"),
    [
        ({"metadata": {"name": "a"}}, "manifest.kind"),
        ({"kind": "Pod"}, "manifest.metadata"),
        ({"kind": "Pod", "metadata": {}}, "manifest.metadata.name"),
        ({"kind": "Pod", "metadata": {"name": ""}}, "manifest.metadata.name"),
        ({"kind": "Pod", "metadata": {"name": "No_Such Name"}}, "manifest.metadata.name"),
        ({"kind": "Pod", "metadata": {"name": 7}}, "manifest.metadata.name"),
        ({"kind": "Pod", "metadata": {"name": "a", "generateName": "b-"}}, "manifest.metadata"),
        ({"kind": "Pod", "metadata": {"name": "a", "namespace": "other"}}, "namespace"),
        ({"kind": "Strange", "metadata": {"name": "a"}}, "manifest.apiVersion"),
        ("kind: Pod", "manifest"),
        (None, "manifest"),
        ({"kind": "Pod", "metadata": {"name": "a"}, "spec": {"set": {1}}}, "manifest"),
        ({"kind": "Pod", "metadata": {"name": "a", "annotations": ["x"]}}, "manifest.metadata.annotations"),
        (
            {"kind": "Pod", "metadata": {"name": "a", "resourceVersion": "5"}},
            "manifest.metadata.resourceVersion",
        ),
        ({"kind": "Secret", "metadata": {"name": "a"}, "data": 5}, "manifest.data"),
        (
            {
                "kind": "Secret",
                "metadata": {"name": "s"},
                "data": {"k": "YQ=="},
                "stringData": {"k": "hunter2"},
            },
            "manifest.stringData",
        ),
    ],
    ids=repr,
)
def test_an_object_that_cannot_be_meant_is_refused_by_name_before_anything_is_sent(
    cluster, server, body, argument
):
    with pytest.raises(ArgumentError) as caught:
        cluster.objects("ensure", body, namespace="n")
    assert caught.value.argument == argument
    assert "hunter2" not in str(caught.value)
    assert server.requests == []


@pytest.mark.parametrize("deadline", [0, -1, float("nan"), "soon"])
def test_a_wait_without_time_is_refused(cluster, server, deadline):
    with pytest.raises(ArgumentError, match="deadline"):
        wait(cluster, deadline=deadline)
    assert server.requests == []


def test_a_kind_without_a_version_is_refused(cluster, server):
    with pytest.raises(ArgumentError, match="api_version"):
        cluster.objects("get", "Strange", "x")
    with pytest.raises(ArgumentError, match="name"):
        cluster.objects("get", "Pod", "")
