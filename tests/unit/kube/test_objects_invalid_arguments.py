"""Invalid arguments are rejected by name before any request; invalid responses have another error."""

import contextlib
import json

import pytest
from kubernetes import client

from holdfast.errors import ApiRequestRejectedError, HoldfastError, InvalidArgumentError
from holdfast.kube import Objects, api_client, pod_ready, resilient
from holdfast.retry import Policy

POD = {"kind": "Pod", "metadata": {"name": "a"}}
POD_LIST = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "6"}, "items": []}


@pytest.mark.parametrize("namespace", ["a b", 5, "a/configmaps?", "a\r\nX: y", "A", "", "-a"])
def test_invalid_namespace_is_rejected(cluster, server, namespace):
    for method, args in (("get", ("Pod", "a")), ("delete", ("Pod", "a")), ("ensure", (POD,))):
        with pytest.raises(InvalidArgumentError, match="namespace"):
            cluster.objects(method, *args, namespace=namespace)
    assert server.requests == []


def test_delete_with_zero_wait_deletes_nothing(cluster, server):
    with pytest.raises(InvalidArgumentError, match="wait"):
        cluster.objects("delete", "Pod", "a", namespace="n", wait=-1)
    assert server.requests == []


@pytest.mark.parametrize(
    ("terms", "argument"),
    [
        ({"policy": "x"}, "policy"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": "x"}, "timeout"),
        ({"observers": print}, "observers"),
        ({"observers": (5,)}, "observers"),
    ],
)
def test_invalid_arguments_are_rejected(server, terms, argument):
    with client.ApiClient(client.Configuration(host=server.url)) as made:
        for make in (Objects, lambda made, **terms: resilient(client.CoreV1Api(made), **terms)):
            with pytest.raises(InvalidArgumentError) as caught:
                make(made, **terms)
            assert caught.value.argument == argument


def test_rejection_in_stream_is_not_a_timeout(cluster, server, responses, clock):
    refused = {"type": "ERROR", "object": responses.status(403, "Forbidden")[1]}
    drip = responses.drip(b"", 30, json.dumps(refused).encode() + b"\n")
    server.reply = lambda verb, path, body: drip if "watch=" in path else (200, POD_LIST)
    with pytest.raises(ApiRequestRejectedError, match="403 Forbidden"):
        cluster.objects("wait", "Pod", "p", pod_ready, namespace="n", deadline=60)


@pytest.mark.parametrize(
    "answer",
    [
        {"kind": "Pod", "metadata": None},
        {"kind": "Pod", "metadata": []},
        {"kind": "Pod", "metadata": {}},
        {"kind": "Pod"},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["delete", "apply", "wait", "look up"])
def test_unexpected_success_status_is_a_holdfast_error(cluster, server, clock, method, answer):
    server.reply = lambda *_: (200, answer)
    made = {**POD, "apiVersion": "v1"}
    calls = {
        "delete": ("delete", "Pod", "a"),
        "apply": ("apply", made),
        "wait": ("wait", "Pod", "a", lambda obj: obj is not None and "status" in obj),
        "look up": ("get", "Strange", "a"),
    }
    more = {"deadline": 2} if method == "wait" else {}
    more |= {"api_version": "odd.dev/v1"} if method == "look up" else {}
    with contextlib.suppress(HoldfastError):  # some of them are good enough for some calls
        cluster.objects(*calls[method], namespace="n", policy=Policy(attempts=2), **more)


@pytest.mark.parametrize(
    "text",
    [b"a: [", b"- a", b"\xff\xfe", b"", b"apiVersion: v1\nkind: Config\ncurrent-context: no\n"],
    ids=["no YAML", "a list", "binary", "empty", "an unknown context"],
)
def test_invalid_kubeconfig_is_rejected(tmp_path, text):
    path = tmp_path / "config"
    path.write_bytes(text)
    with pytest.raises(InvalidArgumentError, match="not a valid kubeconfig"):
        api_client(path)


def test_home_directory_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InvalidArgumentError, match=str(tmp_path)):
        api_client("~/.kube/config")
