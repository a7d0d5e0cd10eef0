"""`resilient` against a real HTTP server on loopback, sync and aio by the same tests."""

import copy

import pytest

from holdfast.kube import Done, outcome_of
from holdfast.kube.stamp import OPERATION
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
def test_a_read_is_repeated_after_each_transient_status(cluster, server, store, told, clock, code):
    store._keep(f"{CM}/a", config_map())
    server.answers += [told.status(code, "InternalError")] * 3
    assert cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n").metadata.name == "a"
    assert len(server.requests) == 4
    assert len(clock.slept) == 3


def test_four_attempts_by_default_and_the_last_error_as_itself(cluster, server, told, clock, api_errors):
    server.answers += [told.status(503, "ServiceUnavailable")] * 9
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n")
    assert caught.value.status == 503
    assert len(server.requests) == 4
    assert "CoreV1Api.read_namespaced_config_map: gave up after 4 attempts" in caught.value.__notes__[0]
    assert "HTTP 503 ServiceUnavailable" in caught.value.__notes__[0]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 405, 409, 410, 422])
def test_refusals_are_not_repeated(cluster, server, told, clock, api_errors, code):
    server.answers.append(told.status(code, "Whatever"))
    with pytest.raises(api_errors):
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n")
    assert len(server.requests) == 1
    assert clock.slept == []


def test_a_cut_connection_is_survived(cluster, server, store, told, clock):
    store._keep(f"{CM}/a", config_map())
    server.answers += [told.reset(), told.reset()]
    assert cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n").metadata.name == "a"


def test_nobody_there_is_survived_until_the_attempts_are_used_up(cluster, server, clock):
    server.stop()
    with pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n")
    assert len(clock.slept) == 3
    assert outcome_of(caught.value) is Done.NO


@pytest.mark.parametrize("value", ["7", "Sun, 09 Sep 2001 01:46:47 GMT"])
def test_retry_after_is_honoured(cluster, server, store, told, clock, value):
    store._keep(f"{CM}/a", config_map())
    headers = {"Retry-After": value, "Date": "Sun, 09 Sep 2001 01:46:40 GMT"}
    server.answers.append((*told.status(429, "TooManyRequests"), headers))
    cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n")
    assert 7 <= sum(clock.slept) <= 9


def test_inner_retries_are_off(cluster, server, told, clock, api_errors):
    """Two attempts are two requests, not two times whatever the library below has in mind."""
    server.answers += [told.reset()] * 9
    with pytest.raises(Exception):  # noqa: B017
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n", policy=Policy(attempts=2))
    assert len(server.requests) == 2


def test_events_of_a_read(cluster, server, store, told, clock):
    events = []
    store._keep(f"{CM}/a", config_map())
    server.answers.append(told.status(500, "InternalError", "secret=hunter2"))
    cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n", policy=Policy(on_retry=events.append))
    (event,) = events
    assert event.operation == "CoreV1Api.read_namespaced_config_map"
    assert event.reason == "HTTP 500 InternalError"


# Creates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False], ids=["after commit", "before commit"])
def test_a_create_whose_answer_was_lost_makes_one_object(cluster, server, store, told, clock, commit):
    lost(store, server, told, commit)
    made = cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map(x="1"))
    assert made.data == {"x": "1"}
    assert list(store.objects) == [f"{CM}/a"]


def test_a_create_says_already_exists_of_somebody_elses(cluster, server, store, told, clock, api_errors):
    store._keep(f"{CM}/a", config_map(x="theirs"))
    lost(store, server, told, commit=False)
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map(x="ours"))
    assert caught.value.status == 409
    assert store.objects[f"{CM}/a"]["data"] == {"x": "theirs"}


def test_already_exists_and_then_gone_creates_again(cluster, server, store, told, clock):
    server.answers += [told.status(409, "AlreadyExists"), told.status(404, "NotFound")]
    made = cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map(x="1"))
    assert made.data == {"x": "1"}
    assert [verb for verb, _ in server.asked] == ["POST", "GET", "POST"]


def test_conflict_is_not_already_exists(cluster, server, told, clock, api_errors):
    server.answers.append(told.status(409, "Conflict"))
    with pytest.raises(api_errors):
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map())
    assert len(server.requests) == 1


def test_a_generated_name_is_picked_once(cluster, server, store, told, clock):
    body = {"metadata": {"generateName": "job-"}, "data": {"x": "1"}}
    lost(store, server, told, commit=True)
    made = cluster.call("CoreV1Api", "create_namespaced_config_map", "n", body)
    assert made.metadata.name.startswith("job-")
    assert len(store.objects) == 1


def test_a_generated_name_that_is_taken_is_picked_anew(cluster, server, store, told, clock):
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


def test_the_callers_body_is_left_as_it_was(cluster, server, store, clock):
    model = cluster.models.V1ConfigMap(metadata=cluster.models.V1ObjectMeta(name="m", annotations={"k": "v"}))
    plain = config_map()
    before = copy.deepcopy(plain)
    cluster.call("CoreV1Api", "create_namespaced_config_map", "n", body=plain)
    cluster.call("CoreV1Api", "create_namespaced_config_map", namespace="n", body=model)
    assert plain == before
    assert model.metadata.annotations == {"k": "v"}
    assert set(store.objects[f"{CM}/m"]["metadata"]["annotations"]) == {"k", OPERATION}


def test_an_operation_id_of_the_caller_survives_a_second_process(cluster, server, store, clock):
    body = config_map(x="1")
    body["metadata"]["annotations"] = {OPERATION: "mine"}
    first = cluster.call("CoreV1Api", "create_namespaced_config_map", "n", body)
    second = cluster.call("CoreV1Api", "create_namespaced_config_map", "n", body)
    assert first.metadata.uid == second.metadata.uid


def test_a_create_that_gives_up_looks_once_more(cluster, server, store, told, clock):
    """All answers lost, the first request carried out: the last look finds it."""
    lost(store, server, told, commit=True)
    made = cluster.call(
        "CoreV1Api", "create_namespaced_config_map", "n", config_map(x="1"), policy=Policy(attempts=1)
    )
    assert made.data == {"x": "1"}


def test_a_create_nobody_can_be_asked_about_is_unknown(cluster, server, store, told, clock):
    server.answers += [told.reset()] * 20
    with pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map())
    assert outcome_of(caught.value) is Done.UNKNOWN
    assert any("outcome: unknown" in note for note in caught.value.__notes__)


def test_unknown_stays_unknown_when_a_later_attempt_is_refused(cluster, server, told, clock, api_errors):
    server.answers += [told.reset(), told.status(403, "Forbidden"), told.status(403, "Forbidden")]
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map())
    assert caught.value.status == 403
    assert outcome_of(caught.value) is Done.UNKNOWN


def test_a_refused_create_is_not_done(cluster, server, told, clock, api_errors):
    server.answers.append(told.status(422, "Invalid"))
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", config_map())
    assert outcome_of(caught.value) is Done.NO


def test_custom_objects_are_created_once_too(cluster, server, store, told, clock):
    body = {"apiVersion": "x.y/v1", "kind": "Thing", "metadata": {"name": "t"}}
    lost(store, server, told, commit=True)
    made = cluster.call(
        "CustomObjectsApi", "create_namespaced_custom_object", "x.y", "v1", "n", "things", body
    )
    assert made["metadata"]["uid"] == "uid-1"


def test_a_review_is_asked_again_without_a_read_back(cluster, server, told, clock):
    answer = (201, {"spec": {}, "status": {"allowed": True}})
    server.answers += [told.reset(), told.status(500), answer]
    body = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    made = cluster.call("AuthorizationV1Api", "create_self_subject_access_review", body)
    assert made.status.allowed
    assert {verb for verb, _ in server.asked} == {"POST"}
    assert "metadata" not in server.requests[0][2]


def test_an_eviction_that_a_budget_forbids_is_not_repeated(cluster, server, told, clock, api_errors):
    server.answers.append(told.status(429, "TooManyRequests", "disruption budget", retryAfterSeconds=10))
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "create_namespaced_pod_eviction", "p", "n", {"metadata": {"name": "p"}})
    assert caught.value.status == 429
    assert len(server.requests) == 1


def test_an_eviction_whose_answer_was_lost_is_not_repeated(cluster, server, told, clock):
    server.answers.append(told.reset())
    with pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", "create_namespaced_pod_eviction", "p", "n", {"metadata": {"name": "p"}})
    assert len(server.requests) == 1
    assert outcome_of(caught.value) is Done.UNKNOWN


# Other writes ----------------------------------------------------------------------------------------------


def test_a_replace_whose_answer_was_lost_is_recognised(cluster, server, store, told, clock):
    store._keep(f"{CM}/a", config_map(x="1"))
    body = config_map(x="2")
    body["metadata"]["resourceVersion"] = "1"
    lost(store, server, told, commit=True)
    assert cluster.call("CoreV1Api", "replace_namespaced_config_map", "a", "n", body).data == {"x": "2"}


def test_a_replace_that_somebody_else_overtook_is_a_conflict(cluster, server, store, told, clock, api_errors):
    store._keep(f"{CM}/a", config_map(x="1"))
    body = config_map(x="2")
    body["metadata"]["resourceVersion"] = "1"
    store._keep(f"{CM}/a", config_map(x="theirs"))
    lost(store, server, told, commit=False)
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "replace_namespaced_config_map", "a", "n", body)
    assert caught.value.status == 409
    assert store.objects[f"{CM}/a"]["data"] == {"x": "theirs"}


def test_a_stale_replace_is_not_repeated(cluster, server, store, clock, api_errors):
    store._keep(f"{CM}/a", config_map(x="1"))
    body = config_map(x="2")
    body["metadata"]["resourceVersion"] = "0"
    with pytest.raises(api_errors):
        cluster.call("CoreV1Api", "replace_namespaced_config_map", "a", "n", body)
    assert len(server.requests) == 1


def test_a_replace_without_a_version_is_not_repeated_blindly(cluster, server, store, told, clock):
    store._keep(f"{CM}/a", config_map(x="1"))
    server.answers.append(told.reset())
    with pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", "replace_namespaced_config_map", "a", "n", config_map(x="2"))
    assert len(server.requests) == 1
    assert outcome_of(caught.value) is Done.UNKNOWN


def test_a_merge_patch_is_repeated_and_a_list_add_is_not(cluster, server, store, told, clock):
    store._keep(f"{CM}/a", config_map(x="1"))
    server.answers.append(told.reset())
    cluster.call("CoreV1Api", "patch_namespaced_config_map", "a", "n", {"data": {"x": "2"}})
    assert len(server.requests) == 2
    server.answers.append(told.reset())
    with pytest.raises(Exception):  # noqa: B017
        cluster.call(
            "CoreV1Api", "patch_namespaced_config_map", "a", "n", [{"op": "add", "path": "/l/-", "value": 1}]
        )
    assert len(server.requests) == 3


@pytest.mark.parametrize("commit", [True, False])
def test_a_delete_whose_answer_was_lost_is_done(cluster, server, store, told, clock, commit):
    store._keep(f"{CM}/a", config_map())
    lost(store, server, told, commit)
    cluster.call("CoreV1Api", "delete_namespaced_config_map", "a", "n")
    assert store.objects == {}


def test_a_delete_of_what_was_never_there_says_so(cluster, server, store, clock, api_errors):
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "delete_namespaced_config_map", "a", "n")
    assert caught.value.status == 404


def test_a_custom_object_that_is_gone_after_a_lost_delete(cluster, server, store, told, clock):
    store._keep("/apis/x.y/v1/namespaces/n/things/t", {"metadata": {"name": "t"}})
    lost(store, server, told, commit=True)
    done = cluster.call(
        "CustomObjectsApi", "delete_namespaced_custom_object", "x.y", "v1", "n", "things", "t"
    )
    assert done["status"] == "Success"
