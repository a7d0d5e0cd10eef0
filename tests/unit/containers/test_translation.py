"""Engine errors in holdfast's words, and which of them may pass."""

import docker.errors
import pytest
import requests

from holdfast.containers.engine import Endpoint, connect
from holdfast.containers.translation import is_transient, translated
from holdfast.errors import (
    DiskFullError,
    EngineCallError,
    EnginePermissionError,
    EngineUnfitError,
    EngineUnreachableError,
)


@pytest.mark.parametrize(
    "text",
    [
        "dial tcp: connection refused",
        "read: connection reset by peer",
        "unexpected EOF",
        "net/http: TLS handshake timeout",
        "i/o timeout",
        "toomanyrequests: slow down",
        "received unexpected HTTP status: 503 Service Unavailable",
        "received unexpected HTTP status: 500 Internal Server Error",
        "502 Bad Gateway",
        "Cannot update container 23dc: cannot update a stopped container: unknown",
        "Cannot update container 23dc: cannot update a deleted process: unknown",
        "Cannot update container 23dc: task 23dc not found: not found",
    ],
)
def test_what_may_pass_is_tried_again(text):
    assert is_transient(EngineCallError(text))


@pytest.mark.parametrize(
    "text",
    [
        "manifest unknown",
        "unauthorized: authentication required",
        "denied: requested access",
        "write /x: no space left on device",
        "pull access denied, connection reset",
        "invalid reference format",
        "something else",
    ],
)
def test_what_cannot_pass_is_not(text):
    assert not is_transient(EngineCallError(text))


def test_a_wrapped_cause_counts():
    error = EngineCallError("pulling failed")
    error.__cause__ = ConnectionResetError("Connection reset by peer")
    assert is_transient(error)


def test_a_cycle_of_causes_ends():
    first, second = EngineCallError("a"), EngineCallError("b")
    first.__cause__, second.__cause__ = second, first
    assert not is_transient(first)


def test_no_socket_says_how_to_start_an_engine(monkeypatch, tmp_path):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    nowhere = Endpoint(address=f"unix://{tmp_path}/none.sock")
    monkeypatch.setattr("holdfast.containers.engine.engine_endpoint", lambda: nowhere)
    with pytest.raises(EngineUnreachableError) as caught:
        connect()
    assert "none.sock" in caught.value.message
    assert "dockerd" in caught.value.hint
    assert caught.value.exit_code == 3


def test_a_wrong_docker_host_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineUnreachableError) as caught:
        connect()
    assert "DOCKER_HOST" in caught.value.hint


def test_a_rubbish_docker_host_is_no_traceback(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "carrier-pigeon://loft")
    with pytest.raises(EngineUnreachableError):
        connect()


def test_a_forbidden_socket_says_which_group_to_join():
    error = requests.exceptions.ConnectionError(
        "Connection aborted.", PermissionError(13, "Permission denied")
    )
    with pytest.raises(EnginePermissionError) as caught, translated("x", "unix:///var/run/docker.sock"):
        raise error
    assert "usermod -aG docker" in caught.value.hint


def test_a_full_disk_is_its_own_error():
    with pytest.raises(DiskFullError), translated("making a container", "unix:///x"):
        raise docker.errors.APIError("write: no space left on device")


@pytest.mark.parametrize("driver", ["", "nvidia"])
def test_an_engine_without_a_driver_for_gpus_says_so_at_once_and_for_good(driver):
    refusal = _api_error(
        500,
        "Internal Server Error",
        f'could not select device driver "{driver}" with capabilities: [[gpu]]',
    )
    with pytest.raises(EngineUnfitError) as caught, translated("starting container a", "unix:///x"):
        raise refusal
    assert caught.value.message == "starting container a failed: the container engine has no driver for GPUs"
    assert "NVIDIA Container Toolkit" in caught.value.hint
    assert "--gpus none" in caught.value.hint
    assert not is_transient(caught.value)


def test_a_missing_driver_for_another_device_is_told_in_the_engines_words():
    said = 'could not select device driver "" with capabilities: [[tpu]]'
    with pytest.raises(EngineCallError, match="tpu"), translated("starting container a", "unix:///x"):
        raise _api_error(500, "Internal Server Error", said)


def test_other_errors_are_not_touched():
    with pytest.raises(KeyError), translated("x", "y"):
        raise KeyError("a defect")


def _api_error(status: int, reason: str, explanation: str) -> docker.errors.APIError:
    """The SDK's own error, made as the SDK makes it."""
    answer = requests.Response()
    answer.status_code, answer.reason = status, reason
    answer.url = "http+docker://localhost/v1.47/images/create"
    said = f"{status} Server Error for {answer.url}: {reason}"
    return docker.errors.APIError(said, response=answer, explanation=explanation)


@pytest.mark.parametrize(
    ("status", "reason", "explanation"),
    [
        (429, "Too Many Requests", ""),
        (502, "Bad Gateway", ""),
        (503, "Service Unavailable", ""),
        (504, "Gateway Timeout", ""),
        (503, "Service Unavailable", "the engine is starting"),
        (500, "Internal Server Error", 'Get "https://registry.example/v2/": EOF'),
        (500, "Internal Server Error", 'Get "https://registry.example/v2/": context deadline exceeded'),
        (
            500,
            "Internal Server Error",
            'Get "https://r.example/v2/": request canceled (Client.Timeout exceeded while awaiting headers)',
        ),
        (500, "Internal Server Error", "dial tcp 192.0.2.1:443: connect: connection timed out"),
        (
            500,
            "Internal Server Error",
            "unexpected status from HEAD request to https://r.example/v2/a: 500 Internal Server Error",
        ),
        (500, "Internal Server Error", "unexpected status code 500"),
    ],
)
def test_a_bad_minute_of_engine_or_registry_is_tried_again(status, reason, explanation):
    error = _api_error(status, reason, explanation)
    assert is_transient(error)
    with pytest.raises(EngineCallError) as told, translated("pulling an image"):
        raise error
    assert is_transient(told.value)


@pytest.mark.parametrize(
    ("status", "explanation"),
    [
        (404, "manifest for a:b not found: manifest unknown: manifest unknown"),
        (500, "unauthorized: authentication required"),
        (503, "denied: requested access to the resource is denied"),
        (500, "write /var/lib/docker/x: no space left on device"),
        (500, "unexpected status from GET request to https://registry.example/v2/: 401 Unauthorized"),
        (500, "unexpected status code 418"),
        (500, "something else"),
        (409, "conflict"),
    ],
)
def test_a_refusal_of_engine_or_registry_is_final(status, explanation):
    assert not is_transient(_api_error(status, "Server Error", explanation))
