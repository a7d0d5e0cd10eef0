"""`resilient` against a real HTTP server on loopback, sync and aio by the same tests."""

import copy

import pytest

from holdfast.kube import WriteOutcome, write_outcome
from holdfast.kube.idempotency import OPERATION_ID_ANNOTATION
from holdfast.kube.retry_table import STREAM_SUFFIX
from holdfast.retry import Policy

CM = "/api/v1/namespaces/n/configmaps"


def config_map(name="a", **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def lost(store, server, told, commit):
    """The next request is carried out and its answer is lost."""

    def after():
        verb, path, body = server.requests[-1]
        if commit:
            store(verb, path, body)

    server.answers.append(told.reset(after))


# Reads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_read_is_retried_after_each_transient_status(cluster, server, store, responses, clock, code):
    store._keep(f"{CM}/a", config_map())
    server.answers += [responses.status(code, "InternalError")] * 3
    assert cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n").metadata.name == "a"
    assert len(server.requests) == 4
    assert len(clock.sleeps) == 3


def test_four_attempts_by_default_and_last_error_is_raised(cluster, server, responses, clock, api_errors):
    server.answers += [responses.status(503, "ServiceUnavailable")] * 9
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n")
    assert caught.value.status == 503
    assert len(server.requests) == 4
    assert "CoreV1Api.read_namespaced_config_map: gave up after 4 attempts" in caught.value.__notes__[0]
    assert "HTTP 503 ServiceUnavailable" in caught.value.__notes__[0]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 405, 409, 410, 422])
def test_rejections_are_not_retried(cluster, server, responses, clock, api_errors, code):
    server.answers.append(responses.status(code, "Whatever"))
    with pytest.raises(api_errors):
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n")
    assert len(server.requests) == 1
    assert clock.sleeps == []


def test_cut_connection_is_retried(cluster, server, store, responses, clock):
    store._keep(f"{CM}/a", config_map())
    server.answers += [responses.reset(), responses.reset()]
    assert cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n").metadata.name == "a"


def test_refused_connection_is_retried_until_attempts_are_used(cluster, server, clock):
    server.stop()
    with pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n")
    assert len(clock.sleeps) == 3
    assert write_outcome(caught.value) is WriteOutcome.NOT_DONE


@pytest.mark.parametrize("value", ["7", "Sun, 09 Sep 2001 01:46:47 GMT"])
def test_retry_after_is_honoured(cluster, server, store, responses, clock, value):
    store._keep(f"{CM}/a", config_map())
    headers = {"Retry-After": value, "Date": "Sun, 09 Sep 2001 01:46:40 GMT"}
    server.answers.append((*responses.status(429, "TooManyRequests"), headers))
    cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n")
    assert 7 <= sum(clock.sleeps) <= 9


def test_inner_retries_are_disabled(cluster, server, responses, clock, api_errors):
    """Two attempts are two requests, not two times whatever the library below has in mind."""
    server.answers += [responses.reset()] * 9
    with pytest.raises(Exception):  # noqa: B017
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n", policy=Policy(attempts=2))
    assert len(server.requests) == 2


def test_read_emits_events(cluster, server, store, responses, clock):
    events = []
    store._keep(f"{CM}/a", config_map())
    server.answers.append(responses.status(500, "InternalError", "secret=hunter2"))
    cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n", policy=Policy(on_retry=events.append))
    (event,) = events
    assert event.operation == "CoreV1Api.read_namespaced_config_map"
    assert event.reason == "HTTP 500 InternalError"


# Creates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False], ids=["after commit", "before commit"])
def test_create_with_lost_response_creates_one_object(cluster, server, store, responses, clock, commit):
    lost(store, server, responses, commit)
    made = cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map(x="1"))
    assert made.data == {"x": "1"}
    assert list(store.objects) == [f"{CM}/a"]


def test_create_of_foreign_object_raises_already_exists(cluster, server, store, responses, clock, api_errors):
    store._keep(f"{CM}/a", config_map(x="theirs"))
    lost(store, server, responses, commit=False)
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map(x="ours"))
    assert caught.value.status == 409
    assert store.objects[f"{CM}/a"]["data"] == {"x": "theirs"}


def test_already_exists_then_deleted_creates_again(cluster, server, store, responses, clock):
    server.answers += [responses.status(409, "AlreadyExists"), responses.status(404, "NotFound")]
    made = cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map(x="1"))
    assert made.data == {"x": "1"}
    assert [verb for verb, _ in server.asked] == ["POST", "GET", "POST"]


def test_conflict_is_not_already_exists(cluster, server, responses, clock, api_errors):
    server.answers.append(responses.status(409, "Conflict"))
    with pytest.raises(api_errors):
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map())
    assert len(server.requests) == 1


def test_generated_name_is_chosen_once(cluster, server, store, responses, clock):
    body = {"metadata": {"generateName": "job-"}, "data": {"x": "1"}}
    lost(store, server, responses, commit=True)
    made = cluster.call("CoreV1Api", "create_namespaced_config_map", "n", body)
    assert made.metadata.name.startswith("job-")
    assert len(store.objects) == 1


def test_taken_generated_name_is_chosen_again(cluster, server, store, responses, clock):
    def answer(verb, path, body):
        if verb == "POST" and len(server.requests) == 1:
            store._keep(f"{CM}/{body['metadata']['name']}", config_map(x="theirs"))
        return store(verb, path, body)

    server.reply = answer
    made = cluster.call(
        "CoreV1Api", "create_namespaced_config_map", "n", {"metadata": {"generateName": "job-"}}
    )
    assert len(store.objects) == 2
    assert made.data is None


def test_caller_body_is_not_modified(cluster, server, store, clock):
    model = cluster.models.V1ConfigMap(metadata=cluster.models.V1ObjectMeta(name="m", annotations={"k": "v"}))
    plain = config_map()
    before = copy.deepcopy(plain)
    cluster.call("CoreV1Api", "create_namespaced_config_map", "n", body=plain)
    cluster.call("CoreV1Api", "create_namespaced_config_map", namespace="n", body=model)
    assert plain == before
    assert model.metadata.annotations == {"k": "v"}
    assert set(store.objects[f"{CM}/m"]["metadata"]["annotations"]) == {"k", OPERATION_ID_ANNOTATION}


def test_caller_operation_id_works_across_processes(cluster, server, store, clock):
    body = config_map(x="1")
    body["metadata"]["annotations"] = {OPERATION_ID_ANNOTATION: "mine"}
    first = cluster.call("CoreV1Api", "create_namespaced_config_map", "n", body)
    second = cluster.call("CoreV1Api", "create_namespaced_config_map", "n", body)
    assert first.metadata.uid == second.metadata.uid


def test_final_create_failure_reads_once_more(cluster, server, store, responses, clock):
    """All answers lost, the first request carried out: the last look finds it."""
    lost(store, server, responses, commit=True)
    made = cluster.call(
        "CoreV1Api", "create_namespaced_config_map", "n", config_map(x="1"), policy=Policy(attempts=1)
    )
    assert made.data == {"x": "1"}


def test_unverifiable_create_is_unknown(cluster, server, store, responses, clock):
    server.answers += [responses.reset()] * 20
    with pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map())
    assert write_outcome(caught.value) is WriteOutcome.UNKNOWN
    assert any("outcome: unknown" in note for note in caught.value.__notes__)


def test_unknown_outcome_is_kept_after_later_rejection(cluster, server, responses, clock, api_errors):
    server.answers += [
        responses.reset(),
        responses.status(403, "Forbidden"),
        responses.status(403, "Forbidden"),
    ]
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map())
    assert caught.value.status == 403
    assert write_outcome(caught.value) is WriteOutcome.UNKNOWN


def test_rejected_create_is_not_done(cluster, server, responses, clock, api_errors):
    server.answers.append(responses.status(422, "Invalid"))
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map())
    assert write_outcome(caught.value) is WriteOutcome.NOT_DONE


def test_custom_objects_are_created_once(cluster, server, store, responses, clock):
    body = {"apiVersion": "x.y/v1", "kind": "Thing", "metadata": {"name": "t"}}
    lost(store, server, responses, commit=True)
    made = cluster.call(
        "CustomObjectsApi", "create_namespaced_custom_object", "x.y", "v1", "n", "things", body
    )
    assert made["metadata"]["uid"] == "uid-1"


def test_review_is_retried_without_read(cluster, server, responses, clock):
    answer = (201, {"spec": {}, "status": {"allowed": True}})
    server.answers += [responses.reset(), responses.status(500), answer]
    body = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    made = cluster.call("AuthorizationV1Api", "create_self_subject_access_review", body)
    assert made.status.allowed
    assert {verb for verb, _ in server.asked} == {"POST"}
    assert "metadata" not in server.requests[0][2]


def test_eviction_blocked_by_budget_is_not_retried(cluster, server, responses, clock, api_errors):
    server.answers.append(responses.status(429, "TooManyRequests", "disruption budget", retryAfterSeconds=10))
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "create_namespaced_pod_eviction", "p", "n", {"metadata": {"name": "p"}})
    assert caught.value.status == 429
    assert len(server.requests) == 1


def test_eviction_with_lost_response_is_not_retried(cluster, server, responses, clock):
    server.answers.append(responses.reset())
    with pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", "create_namespaced_pod_eviction", "p", "n", {"metadata": {"name": "p"}})
    assert len(server.requests) == 1
    assert write_outcome(caught.value) is WriteOutcome.UNKNOWN


# Other writes ----------------------------------------------------------------------------------------------


def test_replace_with_lost_response_is_recognized(cluster, server, store, responses, clock):
    store._keep(f"{CM}/a", config_map(x="1"))
    body = config_map(x="2")
    body["metadata"]["resourceVersion"] = "1"
    lost(store, server, responses, commit=True)
    assert cluster.call("CoreV1Api", "replace_namespaced_config_map", "a", "n", body).data == {"x": "2"}


def test_overwritten_replace_is_a_conflict(cluster, server, store, responses, clock, api_errors):
    store._keep(f"{CM}/a", config_map(x="1"))
    body = config_map(x="2")
    body["metadata"]["resourceVersion"] = "1"
    store._keep(f"{CM}/a", config_map(x="theirs"))
    lost(store, server, responses, commit=False)
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "replace_namespaced_config_map", "a", "n", body)
    assert caught.value.status == 409
    assert store.objects[f"{CM}/a"]["data"] == {"x": "theirs"}


def test_stale_replace_is_not_retried(cluster, server, store, clock, api_errors):
    store._keep(f"{CM}/a", config_map(x="1"))
    body = config_map(x="2")
    body["metadata"]["resourceVersion"] = "0"
    with pytest.raises(api_errors):
        cluster.call("CoreV1Api", "replace_namespaced_config_map", "a", "n", body)
    assert len(server.requests) == 1


def test_replace_without_version_is_not_retried(cluster, server, store, responses, clock):
    store._keep(f"{CM}/a", config_map(x="1"))
    server.answers.append(responses.reset())
    with pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", "replace_namespaced_config_map", "a", "n", config_map(x="2"))
    assert len(server.requests) == 1
    assert write_outcome(caught.value) is WriteOutcome.UNKNOWN


def test_merge_patch_is_retried_and_list_append_is_not(cluster, server, store, responses, clock):
    store._keep(f"{CM}/a", config_map(x="1"))
    server.answers.append(responses.reset())
    cluster.call("CoreV1Api", "patch_namespaced_config_map", "a", "n", {"data": {"x": "2"}})
    assert len(server.requests) == 2
    server.answers.append(responses.reset())
    with pytest.raises(Exception):  # noqa: B017
        cluster.call(
            "CoreV1Api", "patch_namespaced_config_map", "a", "n", [{"op": "add", "path": "/l/-", "value": 1}]
        )
    assert len(server.requests) == 3


@pytest.mark.parametrize("commit", [True, False])
def test_delete_with_lost_response_is_done(cluster, server, store, responses, clock, commit):
    store._keep(f"{CM}/a", config_map())
    lost(store, server, responses, commit)
    cluster.call("CoreV1Api", "delete_namespaced_config_map", "a", "n")
    assert store.objects == {}


def test_delete_of_missing_object_is_not_found(cluster, server, store, clock, api_errors):
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "delete_namespaced_config_map", "a", "n")
    assert caught.value.status == 404


def test_custom_object_missing_after_lost_delete(cluster, server, store, responses, clock):
    store._keep("/apis/x.y/v1/namespaces/n/things/t", {"metadata": {"name": "t"}})
    lost(store, server, responses, commit=True)
    done = cluster.call(
        "CustomObjectsApi", "delete_namespaced_custom_object", "x.y", "v1", "n", "things", "t"
    )
    assert done["status"] == "Success"


def test_already_exists_is_raised_if_client_may_not_read(cluster, server, responses, clock, api_errors):
    server.answers += [responses.status(409, "AlreadyExists"), responses.status(403, "Forbidden")]
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map(x="1"))
    assert caught.value.status == 409


@pytest.mark.parametrize("verb", ["create", "delete"])
def test_write_with_unread_response_is_not_repeated(cluster, server, store, responses, clock, verb):
    """The object that a repetition finds cannot replace the response."""
    lost(store, server, responses, commit=True)
    args = ("n", config_map(x="1")) if verb == "create" else ("a", "n")
    suffix, options = ("", {"_preload_content": False}) if cluster.name == "sync" else (STREAM_SUFFIX, {})
    with pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", f"{verb}_namespaced_config_map{suffix}", *args, **options)
    assert write_outcome(caught.value) is WriteOutcome.UNKNOWN
    assert len(server.asked) == 1
