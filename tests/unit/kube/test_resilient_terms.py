"""`resilient` against a real HTTP server: credentials, secrets, and the terms it is given."""

import threading
import time
import traceback

import pytest
from kubernetes import client

from holdfast.errors import ArgumentError, ArgumentKindError
from holdfast.kube import resilient
from holdfast.retry import Budget, Policy, testing_mode

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


# 401, secrets, terms ---------------------------------------------------------------------------------------


def test_new_credentials_are_fetched_once(cluster, server, store, told, clock):
    fetched = []
    store._keep(f"{CM}/a", config_map())
    server.answers.append(told.status(401, "Unauthorized"))
    options = {"refresh_credentials": lambda: fetched.append(1)}
    cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n", options=options)
    assert fetched == [1]
    assert clock.slept == []


def test_a_second_401_is_final(cluster, server, told, clock, api_errors):
    fetched = []
    server.answers += [told.status(401, "Unauthorized")] * 5
    options = {"refresh_credentials": lambda: fetched.append(1)}
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n", options=options)
    assert caught.value.status == 401
    assert len(server.requests) == 2
    assert fetched == [1]


def test_many_threads_refused_at_once_fetch_credentials_once(server, store, told):
    good, fetched, barrier = threading.Event(), [], threading.Barrier(8, timeout=10)
    store._keep(f"{CM}/a", config_map())

    def answer(verb, path, body):
        if good.is_set():
            return store(verb, path, body)
        barrier.wait()
        return told.status(401, "Unauthorized")

    def refresh():
        fetched.append(1)
        good.set()

    server.reply = answer
    configuration = client.Configuration()
    configuration.host = server.url
    with client.ApiClient(configuration) as made:
        core = resilient(client.CoreV1Api(made), refresh_credentials=refresh)
        results = []
        threads = [
            threading.Thread(target=lambda: results.append(core.read_namespaced_config_map("a", "n")))
            for _ in range(8)
        ]
        [thread.start() for thread in threads]
        [thread.join(20) for thread in threads]
    assert len(results) == 8
    assert fetched == [1]


def test_nothing_of_a_secret_is_in_any_text(cluster, server, told, clock, api_errors):
    events = []
    message = "Secret is invalid: data[password]: aHVudGVyMg=="
    server.answers += [told.status(500, "InternalError", message)] * 3 + [
        told.status(422, "Invalid", message)
    ]
    body = {"metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="}}
    with pytest.raises(api_errors) as caught:
        cluster.call(
            "CoreV1Api", "create_namespaced_secret", "n", body, policy=Policy(on_retry=events.append)
        )
    text = str(caught.value) + "".join(caught.value.__notes__) + repr(events) + repr(caught.value.__dict__)
    assert "aHVudGVyMg" not in text
    assert "hunter2" not in text
    assert "Invalid" in caught.value.body


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/json; charset=klingon"])
def test_an_answer_about_a_secret_that_cannot_be_read_is_not_quoted(cluster, server, clock, kind):
    server.reply = lambda *_: (200, b'{"data": {"password": "aHVudGVyMg=="', {"Content-Type": kind})
    with pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", "read_namespaced_secret", "s", "n")
    assert "aHVudGVyMg" not in "".join(traceback.format_exception(caught.value))
    assert "aHVudGVyMg" not in repr(vars(caught.value))


def test_an_echoed_token_is_taken_out(server, told, clock):
    configuration = client.Configuration()
    configuration.host = server.url
    configuration.api_key["BearerToken"] = "Bearer tok-hunter2"
    server.answers.append((418, b"you sent Bearer tok-hunter2", {"X-Echo": "tok-hunter2"}))
    with client.ApiClient(configuration) as made, pytest.raises(client.ApiException) as caught:
        resilient(client.CoreV1Api(made)).read_namespaced_config_map("a", "n")
    assert "hunter2" not in str(caught.value)


def test_the_deadline_cuts_the_request_timeout(server):
    server.reply = lambda *_: server.stopped.wait(40) or (200, {})
    configuration = client.Configuration()
    configuration.host = server.url
    with client.ApiClient(configuration) as made:
        core, began = resilient(client.CoreV1Api(made), Policy(deadline=0.4)), time.monotonic()
        with pytest.raises(Exception) as caught:
            core.read_namespaced_config_map("a", "n")
    assert time.monotonic() - began < 20
    assert "timed out" in str(caught.value)


def test_the_type_stays_and_the_rest_is_passed_through(server):
    configuration = client.Configuration()
    configuration.host = server.url
    with client.ApiClient(configuration) as made:
        core = resilient(client.CoreV1Api(made))
        assert isinstance(core, client.CoreV1Api)
        assert core.api_client is made
        assert core.connect_get_namespaced_pod_exec.__self__.api_client is made
        assert "read_namespace" in dir(core)
        assert core.read_namespace.__name__ == "read_namespace"
        assert core.read_namespace is core.read_namespace
        assert repr(core).startswith("resilient(")
        with pytest.raises(AttributeError):
            core.no_such_method  # noqa: B018


def test_wrapping_twice_does_not_retry_twice(server, told, clock):
    configuration = client.Configuration()
    configuration.host = server.url
    server.answers += [told.status(503, "ServiceUnavailable")] * 30
    with client.ApiClient(configuration) as made:
        core = resilient(resilient(client.CoreV1Api(made)))
        with pytest.raises(client.ApiException):
            core.read_namespaced_config_map("a", "n")
    assert len(server.requests) == 4


def test_async_req_is_retried_too(server, store, told):
    store._keep(f"{CM}/a", config_map())
    server.answers.append(told.status(503, "ServiceUnavailable"))
    configuration = client.Configuration()
    configuration.host = server.url
    with testing_mode(), client.ApiClient(configuration) as made:
        core = resilient(client.CoreV1Api(made))
        assert core.read_namespaced_config_map("a", "n", async_req=True).get(10).metadata.name == "a"


def test_with_http_info_is_resolved_too(server, store, told, clock):
    configuration = client.Configuration()
    configuration.host = server.url
    lost(store, server, told, commit=True)
    with client.ApiClient(configuration) as made:
        core = resilient(client.CoreV1Api(made))
        made_object, code, _ = core.create_namespaced_config_map_with_http_info("n", config_map(x="1"))
    assert made_object.data == {"x": "1"}
    assert code == 200


def test_all_clients_of_one_server_share_a_budget(server):
    configuration = client.Configuration()
    configuration.host = server.url
    with client.ApiClient(configuration) as one, client.ApiClient(configuration) as two:
        first, second = resilient(client.CoreV1Api(one)), resilient(client.BatchV1Api(two))
        own = resilient(client.CoreV1Api(one), Policy(budget=Budget(1)))
        assert first._terms.policy.budget is second._terms.policy.budget
        assert own._terms.policy.budget is not first._terms.policy.budget


@pytest.mark.parametrize("api", [None, "CoreV1Api", client.CoreV1Api, object(), client.V1Pod()])
def test_what_is_no_api_object_is_refused(api):
    with pytest.raises(ArgumentKindError, match="api"):
        resilient(api)


@pytest.mark.parametrize(
    ("values", "argument"),
    [
        ({"policy": 5}, "policy"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"largest_answer": 0}, "largest_answer"),
    ],
)
def test_terms_that_cannot_be_meant_are_refused(server, values, argument):
    configuration = client.Configuration()
    configuration.host = server.url
    with client.ApiClient(configuration) as made, pytest.raises(ArgumentError) as caught:
        resilient(client.CoreV1Api(made), **values)
    assert caught.value.argument == argument
