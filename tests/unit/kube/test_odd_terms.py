"""What cannot be meant is refused by name before any request; an answer that cannot is told apart."""

import contextlib
import json

import pytest
from kubernetes import client

from holdfast.errors import ArgumentError, ClusterRefusedError, HoldfastError
from holdfast.kube import Objects, api_client, pod_ready, resilient
from holdfast.retry import Policy

POD = {"kind": "Pod", "metadata": {"name": "a"}}
POD_LIST = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "6"}, "items": []}


@pytest.mark.parametrize("namespace", ["a b", 5, "a/configmaps?", "a\r\nX: y", "A", "", "-a"])
def test_a_namespace_that_is_none_is_refused(cluster, server, namespace):
    for method, args in (("get", ("Pod", "a")), ("delete", ("Pod", "a")), ("ensure", (POD,))):
        with pytest.raises(ArgumentError, match="namespace"):
            cluster.objects(method, *args, namespace=namespace)
    assert server.requests == []


def test_a_delete_that_is_to_wait_no_time_deletes_nothing(cluster, server):
    with pytest.raises(ArgumentError, match="wait"):
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
def test_terms_that_cannot_be_meant_are_refused(server, terms, argument):
    with client.ApiClient(client.Configuration(host=server.url)) as made:
        for make in (Objects, lambda made, **terms: resilient(client.CoreV1Api(made), **terms)):
            with pytest.raises(ArgumentError) as caught:
                make(made, **terms)
            assert caught.value.argument == argument


def test_a_refusal_in_the_stream_is_no_timeout(cluster, server, told, clock):
    refused = {"type": "ERROR", "object": told.status(403, "Forbidden")[1]}
    drip = told.drip(b"", 30, json.dumps(refused).encode() + b"\n")
    server.reply = lambda verb, path, body: drip if "watch=" in path else (200, POD_LIST)
    with pytest.raises(ClusterRefusedError, match="403 Forbidden"):
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
def test_an_odd_yes_is_one_of_our_own_errors(cluster, server, clock, method, answer):
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
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path, text):
    path = tmp_path / "config"
    path.write_bytes(text)
    with pytest.raises(ArgumentError, match="no kubeconfig that can be used"):
        api_client(path)


def test_a_home_directory_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ArgumentError, match=str(tmp_path)):
        api_client("~/.kube/config")
