"""Translate errors of the Docker SDK into holdfast's errors, and classify them as transient or permanent."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import (
    ContainerEngineError,
    ContainerEnginePermissionError,
    ContainerEngineUnreachableError,
    ContainerEngineUnsupportedError,
    DiskFullError,
    HoldfastError,
    HostUnreachableError,
)
from holdfast.retry import causes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.containers.client import ContainerEngine

T = TypeVar("T")

_TRANSIENT = re.compile(
    r"connection (refused|reset)|unexpected eof|tls handshake timeout|i/o timeout|toomanyrequests|"
    r"too many requests|status:? (429|500|502|503|504)\b|\b50[234] (bad gateway|service|gateway)|"
    r"timeout awaiting|"
    r"broken pipe|connection (aborted|broken)|read timed out|temporary failure in name resolution|"
    r"unexpected status[^\n]*\b(429|50[0234])\b|client\.timeout exceeded|context deadline exceeded|"
    r"connection timed out|: eof\b",
    re.IGNORECASE,
)
# The engine is restarting the container: it is neither running nor stopped.
_RESTARTING = re.compile(
    r"cannot \w+ a (stopped container|deleted process)|cannot update container \w+: task \w+ not found",
    re.IGNORECASE,
)
_PERMANENT = re.compile(
    r"manifest unknown|unauthorized|denied|no space left|not found|no such|invalid reference", re.IGNORECASE
)
_NO_GPU_DRIVER = re.compile(r"could not select device driver.*\bgpu\b", re.IGNORECASE | re.DOTALL)
# Responses of an overloaded or restarting engine. A 500 can mean anything: there the message decides.
_TRANSIENT_STATUS = frozenset({429, 502, 503, 504})


def is_disk_full(text: str) -> bool:
    """Whether an error message of the engine means that its disk is full."""
    return "no space left" in text.lower() or "disk quota exceeded" in text.lower()


def is_transient(error: BaseException) -> bool:
    """Whether a retry may succeed after this engine or registry error."""
    if isinstance(error, HostUnreachableError):
        return True
    chain = list(causes(error))
    text = " ".join(str(link) for link in chain)
    # Before the permanent errors, because "task … not found" also contains "not found".
    if _RESTARTING.search(text):
        return True
    if _PERMANENT.search(text):
        return False
    if any(getattr(link, "status_code", None) in _TRANSIENT_STATUS for link in chain):
        return True
    return bool(_TRANSIENT.search(text))


@contextmanager
def translate_errors(operation: str, address: str = "") -> Iterator[None]:
    """Translate errors of the Docker SDK in this block.

    Args:
        operation: what the block does, as in "starting container a"; part of the error message.
        address: the address of the engine; an engine that does not answer there is unreachable.
    """
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        translation = _translate(error, operation, address)
        if translation is None:
            raise
        raise translation from error


def call_if_found(engine: ContainerEngine, operation: str, call: Callable[[], T]) -> T | None:
    """Return the result of a call to the engine, or None if the object does not exist."""
    import docker.errors

    with translate_errors(operation, engine.address):
        try:
            return call()
        except docker.errors.NotFound:
            return None


def change_if_found(engine: ContainerEngine, operation: str, call: Callable[[], object]) -> bool:
    """Call the engine to stop or remove an object; return False if the object does not exist."""
    return call_if_found(engine, operation, lambda: (call(), True)) is not None


def _translate(error: Exception, operation: str, address: str) -> HoldfastError | None:
    import docker.errors
    import requests

    chain = list(causes(error))
    text = " ".join(str(link) for link in chain)
    # The engine has no status code for a full disk: it answers 500 with this text.
    if is_disk_full(text):
        return DiskFullError(f"container engine: no space left on its disk while {operation}")
    if _NO_GPU_DRIVER.search(text):
        return ContainerEngineUnsupportedError(
            f"{operation} failed: the container engine has no driver for GPUs",
            hint="Install the NVIDIA Container Toolkit on the engine's host and restart the engine, "
            "or pass --gpus none.",
        )
    if isinstance(error, docker.errors.APIError):
        return ContainerEngineError(f"{operation} failed: {error.explanation or error}")
    if not isinstance(error, docker.errors.DockerException | requests.exceptions.RequestException | OSError):
        return None
    return _translate_connection(error, text, chain, operation, address)


def _translate_connection(
    error: Exception, text: str, chain: list[BaseException], operation: str, address: str
) -> HoldfastError:
    from http.client import IncompleteRead

    import requests

    # Ambiguous: the engine may still carry out the request, so callers probe before they retry.
    if isinstance(error, requests.exceptions.ReadTimeout):
        return ContainerEngineError(f"{operation}: the container engine did not answer in time")
    if any(isinstance(link, PermissionError) for link in chain) or "permission denied" in text.lower():
        return ContainerEnginePermissionError(
            f"container engine at {address}: permission denied",
            hint="Run `sudo usermod -aG docker $USER` and log in again, or run the command as root.",
        )
    # A connection that breaks during a request does not mean that the engine is down; a refused one does.
    if any(isinstance(link, ConnectionResetError | BrokenPipeError | IncompleteRead) for link in chain):
        return ContainerEngineError(f"{operation}: the connection to the container engine was cut")
    if address:
        return ContainerEngineUnreachableError(
            f"container engine at {address}: no answer", hint=_start_hint(address)
        )
    return ContainerEngineError(f"{operation} failed: {error}")


def _start_hint(address: str) -> str:
    import os

    if address.startswith("ssh://"):
        return "Start Docker on that host (`sudo systemctl start docker`), then rerun the same command."
    if os.environ.get("DOCKER_HOST"):
        return f"Correct or unset DOCKER_HOST ({address}), or start the engine there."
    return (
        "Start Docker (`sudo systemctl start docker`, or `sudo dockerd` without a service manager), "
        "or install it (`sudo apt-get install docker.io`)."
    )
