"""Servers that answer with rubbish: classified, no crash of another kind, no more memory than agreed."""

import asyncio
import gzip
import tracemalloc

import pytest
from kubernetes import client

from holdfast.errors import HoldfastError, OutcomeUnknownError
from holdfast.kube import FailureClass, Objects, classify, resilient

HTML = b"<html><body>hello</body></html>"


def cut(body, length):
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
        + str(length).encode()
        + b"\r\n\r\n"
        + body
    )


ANSWERS = {
    "html": (200, HTML, {"Content-Type": "text/html"}),
    "html that says json": (200, HTML),
    "empty": (200, b""),
    "truncated": cut(b'{"kind": "Conf', 5000),
    "half a document": (200, b'{"kind": "ConfigMap", "metadata": {'),
    "invalid utf-8": (200, b'{"kind": "\xff\xfe\xfa"}'),
    "wrong content type": (200, b"\x00\x01\x02", {"Content-Type": "application/vnd.kubernetes.protobuf"}),
    "an unknown charset": (200, b"{}", {"Content-Type": "application/json; charset=klingon"}),
    "a list": (200, b"[1, 2]"),
    "a number": (200, b"7"),
    "deep nesting": (200, b"[" * 200_000),
    "not http": b"SSH-2.0-OpenSSH_9\r\n",
    "a header without end": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,
    "html 503": (503, HTML, {"Content-Type": "text/html"}),
    "invalid utf-8 500": (500, b"\xff\xfe"),
    "empty 502": (502, b""),
    "404 of something else": (404, HTML, {"Content-Type": "text/html"}),
    "a broken gzip": (200, gzip.compress(b"{}")[:9], {"Content-Encoding": "gzip"}),
}


def script(told, answer):
    return told.raw(answer) if isinstance(answer, bytes) else answer


@pytest.mark.parametrize("name", ANSWERS)
def test_objects_turn_malformed_response_into_holdfast_error(cluster, server, responses, clock, name):
    server.answers += [script(responses, ANSWERS[name])] * 40
    body = {"kind": "ConfigMap", "metadata": {"name": "a"}}
    with pytest.raises(HoldfastError) as caught:
        cluster.objects("ensure", body)
    said = str(caught.value)
    assert "<html" not in said
    if name != "404 of something else":
        assert isinstance(caught.value, OutcomeUnknownError), type(caught.value)


@pytest.mark.parametrize("name", ANSWERS)
def test_client_call_classifies_malformed_response(cluster, server, responses, clock, name):
    """Whatever the official client makes of it, the call ends, and its outcome has a class."""
    server.answers += [script(responses, ANSWERS[name])] * 40
    outcome = None
    try:
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n")
    except Exception as error:  # noqa: BLE001
        outcome = classify(error)
    assert len(server.requests) == (1 if outcome in {None, FailureClass.DEFINITE} else 4)


def test_huge_response_is_not_read_completely(server, clock):
    enormous = b'{"data": "' + b"x" * 50_000_000
    configuration = client.Configuration()
    configuration.host = server.url
    server.reply = lambda *_: (200, enormous)
    with client.ApiClient(configuration) as made:
        core = resilient(client.CoreV1Api(made), max_response_bytes=1_000_000)
        tracemalloc.start()
        with pytest.raises(HoldfastError) as caught:
            core.read_namespaced_config_map("a", "n")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert "larger than 1000000 bytes" in str(caught.value)
    assert classify(caught.value) is FailureClass.AMBIGUOUS
    assert peak < 12_000_000


def test_gzip_bomb_is_not_unpacked(cluster, server, clock):
    bomb = gzip.compress(b"x" * 20_000_000)
    server.reply = lambda *_: (200, bomb, {"Content-Encoding": "gzip"})
    with pytest.raises(HoldfastError, match="larger than"):
        cluster.call(
            "CoreV1Api", "read_namespaced_config_map", "a", "n", options={"max_response_bytes": 1_000_000}
        )


def test_huge_error_is_truncated(cluster, server, clock, api_errors):
    server.reply = lambda *_: (404, b"y" * 5_000_000, {"Content-Type": "text/plain"})
    with pytest.raises(api_errors) as caught:
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n")
    assert len(caught.value.body) <= 70_000


def test_large_response_within_limit_is_read(cluster, server, clock):
    server.reply = lambda *_: (200, {"metadata": {"name": "a"}, "data": {"k": "v" * 5_000_000}})
    assert len(cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n").data["k"]) == 5_000_000


def test_wrong_client_type_is_rejected():
    from kubernetes.aio import client as aio

    from holdfast.errors import ArgumentTypeError
    from holdfast.kube import AsyncObjects

    with pytest.raises(ArgumentTypeError, match="api_client"):
        Objects("no client")

    async def use():
        async with aio.ApiClient() as made:
            with pytest.raises(ArgumentTypeError, match="api_client"):
                Objects(made)

    asyncio.run(use())
    with client.ApiClient() as made, pytest.raises(ArgumentTypeError, match="api_client"):
        AsyncObjects(made)
