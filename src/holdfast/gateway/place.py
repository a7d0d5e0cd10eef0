"""Where a gateway lives: on this machine's engine, or on another host's.

A place knows how to reach the engine, where the lock of a gateway is held, and under which address the ports
of that host are reached from here. Everything else about a gateway is the same everywhere.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from holdfast.gateway.spec import LOOPBACK

if TYPE_CHECKING:
    from holdfast.containers.engine import Engine
    from holdfast.engine import Lock

_LOCK_FOLDERS = ("/run/lock", "/tmp")  # noqa: S108 (the places that every user of a host shares)


class Place(Protocol):
    """The host of a gateway, as far as commands care."""

    remote: str
    """`user@host`, or nothing for this machine."""

    def engine(self) -> Engine:
        """Reach the container engine there."""

    def lock(self, name: str) -> Lock:
        """The lock of one gateway, held by the kernel of that host."""

    def address(self, port: int) -> tuple[str, int]:
        """Where a port of that host is reached from here."""


class Here:
    """This machine, with the engine that DOCKER_HOST or the Docker context names."""

    remote = ""

    def engine(self) -> Engine:
        from holdfast.containers.engine import connect

        return connect()

    def lock(self, name: str) -> Lock:
        from holdfast.engine import FileLock

        return FileLock(lock_folder() / lock_file(name))

    def address(self, port: int) -> tuple[str, int]:
        return LOOPBACK, port


def lock_folder() -> Path:
    """The folder where all users of this host meet; the same choice is made on another host."""
    return next(
        (Path(folder) for folder in _LOCK_FOLDERS if os.access(folder, os.W_OK | os.X_OK)),
        Path("/tmp"),  # noqa: S108
    )


def lock_file(name: str) -> str:
    """The lock of a gateway: by its name alone, for a host has one container of that name."""
    return f"holdfast-{name}.lock"


def place_of(remote: str) -> Place:
    """The place that `--remote` or the metadata names."""
    del remote
    return Here()
