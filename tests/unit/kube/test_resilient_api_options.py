"""`resilient` against a real HTTP server: credentials, secrets, and the terms it is given."""

import threading
import time
import traceback

import pytest
from kubernetes import client

from holdfast.errors import ArgumentTypeError, InvalidArgumentError
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


def test_credentials_are_refreshed_once(cluster, server, store, responses, clock):
    fetched = []
    store._keep(f"{CM}/a", config_map())
    server.answers.append(responses.status(401, "Unauthorized"))
    options = {"refresh_credentials": lambda: fetched.append(1)}
    cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n", options=options)
    assert fetched == [1]
    assert clock.sleeps == []


def test_second_unauthorized_is_final(cluster, server, responses, clock, api_errors):
    fetched = []
    server.answers += [responses.status(401, "Unauthorized")] * 5
    options = {"refresh_credentials": lambda: fetched.append(1)}
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n", options=options)
    assert caught.value.status == 401
    assert len(server.requests) == 2
    assert fetched == [1]


def test_coroutine_function_cannot_refresh_a_sync_client():
    async def refresh():
        pass

    with (
        client.ApiClient(client.Configuration()) as made,
        pytest.raises(ArgumentTypeError, match="plain function"),
    ):
        resilient(client.CoreV1Api(made), refresh_credentials=refresh)


def test_unauthorized_threads_refresh_once(server, store, responses):
    good, fetched, barrier = threading.Event(), [], threading.Barrier(8, timeout=10)
    store._keep(f"{CM}/a", config_map())

    def answer(verb, path, body):
        if good.is_set():
            return store(verb, path, body)
        barrier.wait()
        return responses.status(401, "Unauthorized")

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


def test_no_secret_in_any_text(cluster, server, responses, clock, api_errors):
    events = []
    message = "Secret is invalid: data[password]: aHVudGVyMg=="
    server.answers += [responses.status(500, "InternalError", message)] * 3 + [
        responses.status(422, "Invalid", message)
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
def test_unreadable_secret_response_is_not_quoted(cluster, server, clock, kind):
    server.reply = lambda *_: (200, b'{"data": {"password": "aHVudGVyMg=="', {"Content-Type": kind})
    with pytest.raises(Exception) as caught:
        cluster.call("CoreV1Api", "read_namespaced_secret", "s", "n")
    assert "aHVudGVyMg" not in "".join(traceback.format_exception(caught.value))
    assert "aHVudGVyMg" not in repr(vars(caught.value))


def test_echoed_token_is_redacted(server, responses, clock):
    configuration = client.Configuration()
    configuration.host = server.url
    configuration.api_key["BearerToken"] = "Bearer tok-hunter2"
    server.answers.append((418, b"you sent Bearer tok-hunter2", {"X-Echo": "tok-hunter2"}))
    with client.ApiClient(configuration) as made, pytest.raises(client.ApiException) as caught:
        resilient(client.CoreV1Api(made)).read_namespaced_config_map("a", "n")
    assert "hunter2" not in str(caught.value)


def test_deadline_shortens_request_timeout(server):
    server.reply = lambda *_: server.stopped.wait(40) or (200, {})
    configuration = client.Configuration()
    configuration.host = server.url
    with client.ApiClient(configuration) as made:
        core, began = resilient(client.CoreV1Api(made), Policy(deadline=0.4)), time.monotonic()
        with pytest.raises(Exception) as caught:
            core.read_namespaced_config_map("a", "n")
    assert time.monotonic() - began < 20
    assert "timed out" in str(caught.value)


def test_type_and_attributes_are_preserved(server):
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


def test_double_wrapping_does_not_retry_twice(server, responses, clock):
    configuration = client.Configuration()
    configuration.host = server.url
    server.answers += [responses.status(503, "ServiceUnavailable")] * 30
    with client.ApiClient(configuration) as made:
        core = resilient(resilient(client.CoreV1Api(made)))
        with pytest.raises(client.ApiException):
            core.read_namespaced_config_map("a", "n")
    assert len(server.requests) == 4


def test_async_req_is_retried(server, store, responses):
    store._keep(f"{CM}/a", config_map())
    server.answers.append(responses.status(503, "ServiceUnavailable"))
    configuration = client.Configuration()
    configuration.host = server.url
    with testing_mode(), client.ApiClient(configuration) as made:
        core = resilient(client.CoreV1Api(made))
        assert core.read_namespaced_config_map("a", "n", async_req=True).get(10).metadata.name == "a"


def test_with_http_info_is_resolved(server, store, responses, clock):
    configuration = client.Configuration()
    configuration.host = server.url
    lost(store, server, responses, commit=True)
    with client.ApiClient(configuration) as made:
        core = resilient(client.CoreV1Api(made))
        made_object, code, _ = core.create_namespaced_config_map_with_http_info("n", config_map(x="1"))
    assert made_object.data == {"x": "1"}
    assert code == 200


def test_clients_of_one_server_share_budget(server):
    configuration = client.Configuration()
    configuration.host = server.url
    with client.ApiClient(configuration) as one, client.ApiClient(configuration) as two:
        first, second = resilient(client.CoreV1Api(one)), resilient(client.BatchV1Api(two))
        own = resilient(client.CoreV1Api(one), Policy(budget=Budget(1)))
        assert first._session.policy.budget is second._session.policy.budget
        assert own._session.policy.budget is not first._session.policy.budget


@pytest.mark.parametrize("api", [None, "CoreV1Api", client.CoreV1Api, object(), client.V1Pod()])
def test_non_api_object_is_rejected(api):
    with pytest.raises(ArgumentTypeError, match="api"):
        resilient(api)


@pytest.mark.parametrize(
    ("values", "argument"),
    [
        ({"policy": 5}, "policy"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"max_response_bytes": 0}, "max_response_bytes"),
    ],
)
def test_invalid_arguments_are_rejected(server, values, argument):
    configuration = client.Configuration()
    configuration.host = server.url
    with client.ApiClient(configuration) as made, pytest.raises(InvalidArgumentError) as caught:
        resilient(client.CoreV1Api(made), **values)
    assert caught.value.argument == argument
