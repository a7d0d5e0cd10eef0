"""Ensure, apply, delete and wait against a scripted server, in threads and in tasks."""

import json

import pytest

from holdfast.errors import (
    ApiRequestRejectedError,
    DeadlineExceededError,
    InvalidArgumentError,
    ObjectConflictError,
    OutcomeUnknownError,
    TemporaryError,
    WaitFailedError,
)
from holdfast.kube import WaitResult, condition, job_complete, object_deleted, pod_ready
from holdfast.kube.idempotency import OPERATION_ID_ANNOTATION, OWNER_ANNOTATION

PODS = "/api/v1/namespaces/n/pods"


def pod(name="p", **spec):
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "n"}, "spec": {"nodeName": "x", **spec}}


# Ensure ----------------------------------------------------------------------------------------------------


def test_created_then_unchanged(cluster, server, store, clock):
    assert cluster.objects("ensure", pod(), owner="me").effect == "created"
    assert cluster.objects("ensure", pod(), owner="me").effect == "unchanged"
    live = store.objects[f"{PODS}/p"]
    assert live["apiVersion"] == "v1"
    assert live["metadata"]["annotations"][OWNER_ANNOTATION] == "me"
    assert len(live["metadata"]["annotations"][OPERATION_ID_ANNOTATION]) == 32


def test_equal_unowned_object_is_adopted(cluster, server, store, clock):
    store._keep(f"{PODS}/p", {**pod(extra="the server's default"), "apiVersion": "v1"})
    result = cluster.objects("ensure", pod(), owner="me")
    assert result.effect == "adopted"
    assert result.uid == "uid-1"


def test_foreign_object_is_a_conflict(cluster, server, store, clock):
    cluster.objects("ensure", pod(), owner="them")
    with pytest.raises(ObjectConflictError, match="belongs to 'them'"):
        cluster.objects("ensure", pod(), owner="me")


def test_conflict_names_different_fields_without_values(cluster, server, store, clock):
    cluster.objects("ensure", pod(hostname="hunter2"), owner="me")
    with pytest.raises(ObjectConflictError, match=r"spec\.hostname") as caught:
        cluster.objects("ensure", pod(hostname="other"), owner="me")
    assert "hunter2" not in str(caught.value)
    assert "other" not in str(caught.value)


def test_terminating_object_is_a_conflict(cluster, server, store, clock):
    going = pod()
    going["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    store._keep(f"{PODS}/p", going)
    with pytest.raises(ObjectConflictError, match="being deleted"):
        cluster.objects("ensure", pod())


@pytest.mark.parametrize("commit", [True, False])
def test_lost_response_creates_one_object_and_reports_created(
    cluster, server, store, responses, clock, commit
):
    server.answers.append(responses.reset(lambda: commit and store(*server.requests[-1])))
    assert cluster.objects("ensure", pod()).effect == "created"
    assert len(store.objects) == 1


def test_unreachable_server_is_unknown(cluster, server, responses, clock):
    server.answers += [responses.reset()] * 20
    with pytest.raises(OutcomeUnknownError, match="create Pod n/p"):
        cluster.objects("ensure", pod())


def test_throttled_is_temporary_and_rejected_is_permanent(cluster, server, responses, clock):
    server.answers += [responses.status(503, "ServiceUnavailable")] * 4
    with pytest.raises(TemporaryError, match="HTTP 503"):
        cluster.objects("ensure", pod())
    server.answers.append(responses.status(403, "Forbidden", "pods is forbidden: no"))
    with pytest.raises(ApiRequestRejectedError, match="pods is forbidden") as caught:
        cluster.objects("ensure", pod())
    assert caught.value.exit_code == 3


def test_errors_contain_no_secret_data(cluster, server, responses, clock):
    server.answers.append(responses.status(422, "Invalid", "data[k]: aHVudGVyMg=="))
    body = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "aHVudGVyMg=="}}
    with pytest.raises(ApiRequestRejectedError) as caught:
        cluster.objects("ensure", body)
    assert "aHVudGVyMg" not in str(caught.value) + str(caught.value.cause)


def test_model_and_dict_are_equivalent(cluster, server, store, clock):
    models = cluster.models
    body = models.V1ConfigMap(metadata=models.V1ObjectMeta(name="m"), data={"k": "v"})
    assert cluster.objects("ensure", body, namespace="n").effect == "created"
    assert store.objects["/api/v1/namespaces/n/configmaps/m"]["kind"] == "ConfigMap"


# Apply, get, delete ----------------------------------------------------------------------------------------


def test_apply_is_server_side_and_survives_lost_response(cluster, server, store, responses, clock):
    assert cluster.objects("apply", pod()).effect == "created"
    verb, path, _ = server.requests[-1]
    assert verb == "PATCH"
    assert "fieldManager=holdfast" in path
    assert "force" not in path
    server.answers += [(200, store.objects[f"{PODS}/p"]), responses.reset()]
    assert cluster.objects("apply", pod(hostname="h"), force=True).effect == "changed"
    assert "force=true" in server.requests[-1][1]


def test_field_of_other_manager_is_a_named_conflict(cluster, server, responses, clock):
    cause = {"reason": "FieldManagerConflict", "field": ".spec.hostname", "message": "x"}
    server.answers += [(200, pod()), responses.status(409, "Conflict", "conflict", causes=[cause])]
    with pytest.raises(ObjectConflictError, match=r"\.spec\.hostname"):
        cluster.objects("apply", pod())


def test_get(cluster, server, store, clock):
    assert cluster.objects("get", "Pod", "p", namespace="n") is None
    store._keep(f"{PODS}/p", pod())
    assert cluster.objects("get", "Pod", "p", namespace="n")["metadata"]["name"] == "p"


def test_delete_sends_uid_and_treats_not_found_as_done(cluster, server, store, responses, clock):
    store._keep(f"{PODS}/p", pod())
    assert cluster.objects("delete", "Pod", "p", namespace="n").effect == "deleted"
    assert server.requests[-1][2]["preconditions"] == {"uid": "uid-1"}
    assert cluster.objects("delete", "Pod", "p", namespace="n").effect == "absent"


def test_delete_skips_recreated_object(cluster, server, store, responses, clock):
    store._keep(f"{PODS}/p", pod())
    assert cluster.objects("delete", "Pod", "p", namespace="n", uid="an-older-one").effect == "absent"
    assert len(store.objects) == 1


def test_delete_with_lost_response(cluster, server, store, responses, clock):
    store._keep(f"{PODS}/p", pod())
    server.answers += [(200, store.objects[f"{PODS}/p"]), responses.reset(store.objects.clear)]
    assert cluster.objects("delete", "Pod", "p", namespace="n").effect == "deleted"


def test_delete_conflict_is_investigated(cluster, server, store, responses, clock):
    store._keep(f"{PODS}/p", pod())
    server.answers += [
        (200, store.objects[f"{PODS}/p"]),
        responses.status(409, "Conflict", "finalizers: a webhook"),
    ]
    with pytest.raises(ObjectConflictError, match="finalizers: a webhook"):
        cluster.objects("delete", "Pod", "p", namespace="n")
    assert f"{PODS}/p" in store.objects
    assert cluster.objects("delete", "Pod", "p", namespace="n", uid="an older one").effect == "absent"


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


def test_satisfied_condition_needs_no_watch(cluster, server, clock):
    server.answers.append(listing(ready()))
    assert wait(cluster)["status"]["phase"] == "Running"
    assert len(server.requests) == 1


def test_wait_watches_from_listed_version(cluster, server, clock):
    server.answers += [listing(pending()), events(("MODIFIED", ready()))]
    wait(cluster)
    assert "fieldSelector=metadata.name%3Dp" in server.requests[0][1]
    assert "resourceVersion=5" in server.requests[1][1]
    assert "watch=true" in server.requests[1][1]


def test_dropped_watch_resumes_at_last_version(cluster, server, responses, clock):
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "42"}}
    server.answers += [
        listing(),
        events(("BOOKMARK", bookmark)),
        responses.reset(),
        events(("ADDED", ready("43"))),
    ]
    wait(cluster)
    assert [verb for verb, _ in server.asked] == ["GET"] * 4
    assert "resourceVersion=42" in server.requests[2][1]
    assert "resourceVersion=42" in server.requests[3][1]


@pytest.mark.parametrize("where", ["in the stream", "as a status"])
def test_expired_version_relists_after_backoff(cluster, server, responses, clock, where):
    gone = responses.status(410, "Expired")[1]
    storm = [events(("ERROR", gone)) if where == "in the stream" else (410, gone) for _ in range(5)]
    for each in storm:
        server.answers += [listing(pending()), each]
    server.answers.append(listing(ready()))
    wait(cluster)
    assert len(clock.sleeps) == 5
    assert sum("watch=" not in path for _, path, _ in server.requests) == 6


def test_retry_after_in_stream_is_honoured(cluster, server, responses, clock):
    slow = responses.status(429, "TooManyRequests", retryAfterSeconds=9)[1]
    server.answers += [listing(pending()), events(("ERROR", slow)), events(("MODIFIED", ready()))]
    wait(cluster)
    assert clock.sleeps[0] >= 9


def test_malformed_stream_data_is_handled(cluster, server, responses, clock):
    server.answers += [
        listing(pending()),
        (200, b"\xff\xfe\n"),
        (200, b'{"type": "ADDED"}\n'),
        (200, b"[]\n"),
        events(("MODIFIED", ready())),
    ]
    wait(cluster)


def test_wait_has_one_deadline(cluster, server, clock):
    server.reply = lambda verb, path, body: events() if "watch=" in path else listing(pending())
    with pytest.raises(DeadlineExceededError, match=r"not met within 20 s; last seen: Pending"):
        wait(cluster, deadline=20)
    assert sum(clock.sleeps) < 20


def test_forbidden_watch_ends_wait(cluster, server, responses, clock):
    server.answers.append(responses.status(403, "Forbidden"))
    with pytest.raises(ApiRequestRejectedError):
        wait(cluster)


def test_impossible_condition_ends_wait(cluster, server, clock):
    failed = {"metadata": {"name": "j"}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    server.answers.append(listing(failed))
    with pytest.raises(WaitFailedError, match="the job failed"):
        wait(cluster, job_complete)


def test_wait_sees_deletion(cluster, server, clock):
    server.answers += [listing(pending()), events(("DELETED", pending("9")))]
    assert wait(cluster, object_deleted()) is None


def test_recreated_object_counts_as_deleted(cluster, server, clock):
    later = {"metadata": {"name": "p", "uid": "new"}}
    server.answers.append(listing(later))
    wait(cluster, object_deleted("old"))


def test_custom_condition(cluster, server, clock):
    server.answers += [listing(pending()), events(("MODIFIED", ready()))]
    wait(cluster, lambda obj: WaitResult(done=obj["status"]["phase"] == "Running"))
    server.answers.append(listing(ready()))
    wait(cluster, lambda obj: obj is not None)


def test_raising_condition_is_one_clear_error(cluster, server, clock):
    server.answers.append(listing(pending()))
    with pytest.raises(InvalidArgumentError, match=r"until: raised KeyError"):
        wait(cluster, lambda obj: obj["no such key"])


def test_delete_can_wait(cluster, server, store, responses, clock):
    store._keep(f"{PODS}/p", pod())
    going = {"metadata": {"name": "p", "uid": "uid-1", "finalizers": ["x/y"]}}
    server.answers += [
        (200, store.objects[f"{PODS}/p"]),
        (200, {"kind": "Status"}),
        listing(going),
        events(("DELETED", going)),
    ]
    assert cluster.objects("delete", "Pod", "p", namespace="n", wait=30).effect == "deleted"


def test_blocking_finalizer_is_named(cluster, server, clock):
    going = {"metadata": {"name": "p", "deletionTimestamp": "x", "finalizers": ["x/y"]}}
    server.reply = lambda verb, path, body: events() if "watch=" in path else listing(going)
    with pytest.raises(DeadlineExceededError, match="finalizers: x/y"):
        wait(cluster, object_deleted(), deadline=5)


def test_arbitrary_condition_type(cluster, server, clock):
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
def test_invalid_object_is_rejected_before_sending(cluster, server, body, argument):
    with pytest.raises(InvalidArgumentError) as caught:
        cluster.objects("ensure", body, namespace="n")
    assert caught.value.argument == argument
    assert "hunter2" not in str(caught.value)
    assert server.requests == []


@pytest.mark.parametrize("deadline", [0, -1, float("nan"), "soon"])
def test_wait_without_timeout_is_rejected(cluster, server, deadline):
    with pytest.raises(InvalidArgumentError, match="deadline"):
        wait(cluster, deadline=deadline)
    assert server.requests == []


def test_kind_without_version_is_rejected(cluster, server):
    with pytest.raises(InvalidArgumentError, match="api_version"):
        cluster.objects("get", "Strange", "x")
    with pytest.raises(InvalidArgumentError, match="name"):
        cluster.objects("get", "Pod", "")


def test_expired_list_is_requested_again_without_pages(cluster, server, responses, clock):
    page = {"kind": "PodList", "metadata": {"continue": "token"}, "items": [pod("a")]}
    whole = {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [pod("a"), pod("b")]}
    server.answers += [(200, page), responses.status(410, "Expired"), (200, whole)]
    found = cluster.objects("list", "Pod", namespace="n", chunk_size=1)
    assert ([each["metadata"]["name"] for each in found.items], found.resource_version) == (["a", "b"], "7")
    assert [("limit=" in path, "continue=" in path) for _, path, _ in server.requests] == [
        (True, False),
        (True, True),
        (False, False),
    ]


def test_failed_list_names_kind_and_namespace(cluster, server, responses, clock):
    server.reply = lambda *_: responses.status(403, "Forbidden")
    with pytest.raises(ApiRequestRejectedError, match=r"^list Pod in n: HTTP 403"):
        cluster.objects("list", "Pod", namespace="n")


def test_apply_of_version_is_not_repeated(cluster, server, store, responses, clock):
    body = pod()
    body["metadata"]["resourceVersion"] = "1"
    server.answers += [responses.status(404, "NotFound"), responses.reset()]
    with pytest.raises(OutcomeUnknownError):
        cluster.objects("apply", body)
    assert [verb for verb, _ in server.asked] == ["GET", "PATCH"]


def test_apply_of_stale_version_is_not_a_field_conflict(cluster, server, store, responses, clock):
    server.answers += [responses.status(404, "NotFound"), responses.status(409, "Conflict", "modified")]
    with pytest.raises(ObjectConflictError, match="409 Conflict: modified"):
        cluster.objects("apply", pod())


def test_status_patch_tests_uid(cluster, server, responses, clock):
    server.answers += [(200, pod()), responses.status(422, "Invalid")]
    patch = ("Pod", "p", {"status": {"phase": "Running"}})
    options = {"namespace": "n", "uid": "u", "subresource": "status"}
    cluster.objects("patch", *patch, **options)
    assert server.requests[0][2] == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "add", "path": "/status", "value": {"phase": "Running"}},
    ]
    with pytest.raises(ObjectConflictError, match="the uid has changed"):
        cluster.objects("patch", *patch, **options)


def test_status_patch_of_a_version_tests_it(cluster, server, responses, clock):
    server.answers += [(200, pod()), responses.status(422, "Invalid")]
    patch = {"metadata": {"resourceVersion": "7"}, "status": {"phase": "Running"}}
    options = {"namespace": "n", "uid": "u", "subresource": "status"}
    cluster.objects("patch", "Pod", "p", patch, **options)
    assert server.requests[0][2] == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/status", "value": {"phase": "Running"}},
    ]
    with pytest.raises(ObjectConflictError, match="the uid or version has changed"):
        cluster.objects("patch", "Pod", "p", patch, **options)
