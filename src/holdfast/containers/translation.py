"""Errors of the Docker SDK and of the socket below it, said in holdfast's words.

Also the one place that says which engine errors may pass. Not here: trying again.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.errors import (
    DiskFullError,
    EngineCallError,
    EnginePermissionError,
    EngineUnfitError,
    EngineUnreachableError,
    HoldfastError,
    HostUnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_TRANSIENT = re.compile(
    r"connection (refused|reset)|unexpected eof|tls handshake timeout|i/o timeout|toomanyrequests|"
    r"too many requests|status:? (429|500|502|503|504)\b|\b50[234] (bad gateway|service|gateway)|"
    r"timeout awaiting|"
    r"broken pipe|connection (aborted|broken)|read timed out|temporary failure in name resolution|"
    r"unexpected status[^\n]*\b(429|50[0234])\b|client\.timeout exceeded|context deadline exceeded|"
    r"connection timed out|: eof\b",
    re.IGNORECASE,
)
_BEGINS_AGAIN = re.compile(
    r"cannot \w+ a (stopped container|deleted process)|cannot update container \w+: task \w+ not found",
    re.IGNORECASE,
)
"""A node that is just being started again by the engine: neither running nor stopped."""
_PERMANENT = re.compile(
    r"manifest unknown|unauthorized|denied|no space left|not found|no such|invalid reference", re.IGNORECASE
)
_NO_GPU_DRIVER = re.compile(r"could not select device driver.*\bgpu\b", re.IGNORECASE | re.DOTALL)
_PASSING_STATUS = frozenset({429, 502, 503, 504})
"""What an overloaded or restarting engine answers; its 500 may mean anything, so there the words decide."""


def is_disk_full(text: str) -> bool:
    """Whether an engine's words mean that its disk is full."""
    return "no space left" in text.lower() or "disk quota exceeded" in text.lower()


def is_transient(error: BaseException) -> bool:
    """Whether an engine or registry error may pass by itself."""
    if isinstance(error, HostUnreachableError):
        return True
    chain = list(_chain(error))
    text = " ".join(str(link) for link in chain)
    if _BEGINS_AGAIN.search(text):
        return True
    if _PERMANENT.search(text):
        return False
    if any(getattr(link, "status_code", None) in _PASSING_STATUS for link in chain):
        return True
    return bool(_TRANSIENT.search(text))


@contextmanager
def translated(doing: str, address: str = "") -> Iterator[None]:
    """Raise what the Docker SDK raises as one of holdfast's errors; `doing` says what was tried."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        translation = _translate(error, doing, address)
        if translation is None:
            raise
        raise translation from error


def _translate(error: Exception, doing: str, address: str) -> HoldfastError | None:
    import docker.errors
    import requests

    chain = list(_chain(error))
    text = " ".join(str(link) for link in chain)
    if is_disk_full(text):
        return DiskFullError(f"no space left on the container engine's disk while {doing}")
    if _NO_GPU_DRIVER.search(text):
        return EngineUnfitError(
            f"{doing} failed: the container engine has no driver for GPUs",
            hint="Install the NVIDIA Container Toolkit on the engine's host and restart the engine there,"
            " or do without: `holdfast up` with --gpus none.",
        )
    if isinstance(error, docker.errors.APIError):
        return EngineCallError(f"{doing} failed: {error.explanation or error}")
    if not isinstance(error, docker.errors.DockerException | requests.exceptions.RequestException | OSError):
        return None
    return _translate_connection(error, text, chain, doing, address)


def _translate_connection(
    error: Exception, text: str, chain: list[BaseException], doing: str, address: str
) -> HoldfastError:
    from http.client import IncompleteRead

    import requests

    if isinstance(error, requests.exceptions.ReadTimeout):
        return EngineCallError(f"{doing}: the container engine did not answer in time")
    if any(isinstance(link, PermissionError) for link in chain) or "permission denied" in text.lower():
        return EnginePermissionError(
            f"this user may not use the container engine at {address}",
            hint="Join its group (`sudo usermod -aG docker $USER`, then log in again), or run as root.",
        )
    # A connection that was there and ended is no sign that the engine is gone, as a refused one is.
    if any(isinstance(link, ConnectionResetError | BrokenPipeError | IncompleteRead) for link in chain):
        return EngineCallError(f"{doing}: the connection to the container engine was cut")
    if address:
        return EngineUnreachableError(f"no container engine answers at {address}", hint=_start_hint(address))
    return EngineCallError(f"{doing} failed: {error}")


def _start_hint(address: str) -> str:
    import os

    if address.startswith("ssh://"):
        return "Start Docker over there (`sudo systemctl start docker`), then run the same command again."
    if os.environ.get("DOCKER_HOST"):
        return f"DOCKER_HOST is set to {address}: correct it or unset it, or start the engine there."
    return (
        "Start Docker (`sudo systemctl start docker`, or `sudo dockerd` where there is no service manager), "
        "or install it (`sudo apt-get install docker.io`)."
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    stack: list[BaseException | None] = [error]
    while stack:
        link = stack.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        stack += [link.__cause__, link.__context__]
        stack += [part for part in link.args if isinstance(part, BaseException)]
