"""Translation of engine errors, and which of them are transient."""

import docker.errors
import pytest
import requests

from holdfast.containers.errors import is_transient, translate_errors
from holdfast.errors import (
    ContainerEngineError,
    ContainerEnginePermissionError,
    ContainerEngineUnsupportedError,
    DiskFullError,
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
def test_transient_errors_are_retried(text):
    assert is_transient(ContainerEngineError(text))


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
def test_permanent_errors_are_not_retried(text):
    assert not is_transient(ContainerEngineError(text))


def test_wrapped_cause_is_classified():
    error = ContainerEngineError("pulling failed")
    error.__cause__ = ConnectionResetError("Connection reset by peer")
    assert is_transient(error)


def test_cyclic_cause_chain_ends():
    first, second = ContainerEngineError("a"), ContainerEngineError("b")
    first.__cause__, second.__cause__ = second, first
    assert not is_transient(first)


def test_forbidden_socket_error_names_group():
    error = requests.exceptions.ConnectionError(
        "Connection aborted.", PermissionError(13, "Permission denied")
    )
    with (
        pytest.raises(ContainerEnginePermissionError) as raised,
        translate_errors("x", "unix:///var/run/docker.sock"),
    ):
        raise error
    assert "usermod -aG docker" in raised.value.hint


def test_full_disk_has_its_own_error():
    with pytest.raises(DiskFullError), translate_errors("creating a container", "unix:///x"):
        raise docker.errors.APIError("write: no space left on device")


@pytest.mark.parametrize("driver", ["", "nvidia"])
def test_missing_gpu_driver_is_permanent(driver):
    error = _api_error(
        500,
        "Internal Server Error",
        f'could not select device driver "{driver}" with capabilities: [[gpu]]',
    )
    with (
        pytest.raises(ContainerEngineUnsupportedError) as raised,
        translate_errors("starting container a", "unix:///x"),
    ):
        raise error
    assert raised.value.message == "starting container a failed: the container engine has no driver for GPUs"
    assert "NVIDIA Container Toolkit" in raised.value.hint
    assert "--gpus none" in raised.value.hint
    assert not is_transient(raised.value)


def test_other_missing_device_driver_keeps_engine_message():
    message = 'could not select device driver "" with capabilities: [[tpu]]'
    with (
        pytest.raises(ContainerEngineError, match="tpu"),
        translate_errors("starting container a", "unix:///x"),
    ):
        raise _api_error(500, "Internal Server Error", message)


def test_other_errors_are_unchanged():
    with pytest.raises(KeyError), translate_errors("x", "y"):
        raise KeyError("x")


def _api_error(status: int, reason: str, explanation: str) -> docker.errors.APIError:
    """An error as the Docker SDK creates it."""
    response = requests.Response()
    response.status_code, response.reason = status, reason
    response.url = "http+docker://localhost/v1.47/images/create"
    message = f"{status} Server Error for {response.url}: {reason}"
    return docker.errors.APIError(message, response=response, explanation=explanation)


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
def test_transient_engine_or_registry_failure_is_retried(status, reason, explanation):
    error = _api_error(status, reason, explanation)
    assert is_transient(error)
    with pytest.raises(ContainerEngineError) as raised, translate_errors("pulling an image"):
        raise error
    assert is_transient(raised.value)


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
def test_engine_or_registry_rejection_is_permanent(status, explanation):
    assert not is_transient(_api_error(status, "Server Error", explanation))
