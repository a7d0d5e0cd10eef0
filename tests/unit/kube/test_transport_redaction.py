"""Errors of calls that handle Secrets do not quote them, and other errors stay as they are."""

import traceback

import pytest
from kubernetes import client

from holdfast.errors import RedactedError
from holdfast.kube import Objects

SECRET = {"kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "data": {}}


def test_replaced_error_does_not_appear_in_traceback(server):
    def observe(verb, resource):
        raise ValueError("invalid: hunter2")

    configuration = client.Configuration(host=server.url)
    with client.ApiClient(configuration) as made, pytest.raises(RedactedError) as caught:
        Objects(made, observers=(observe,)).create(SECRET)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    # The frames of this test, which quote the message as well, are not part of the error's own text.
    assert "hunter2" not in "".join(traceback.format_exception_only(caught.value))


def test_error_that_caller_handles_is_not_redacted(cluster, server, responses, clock, api_errors):
    server.reply = lambda *_: responses.status(404, "NotFound", "hunter2")
    with pytest.raises(api_errors) as handled:
        cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n")
    try:
        raise handled.value
    except api_errors:
        with pytest.raises(api_errors) as caught:
            cluster.call("CoreV1Api", "read_namespaced_secret", "a", "n")
    assert "hunter2" in handled.value.body
    assert "hunter2" not in caught.value.body
