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


def test_other_errors_are_not_touched():
    with pytest.raises(KeyError), translated("x", "y"):
        raise KeyError("a defect")
