"""Volumes of a container engine, and short-lived containers that work on one while its node is stopped."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.containers import (
    container_logs,
    create_container,
    find_container,
    remove_container,
    start_container,
    wait_for_exit,
)
from holdfast.containers.errors import change_if_found, is_disk_full, translate_errors
from holdfast.containers.exec import read_file
from holdfast.containers.labels import GATEWAY, HELPER
from holdfast.errors import ContainerEngineError, DiskFullError, HoldfastError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.containers.client import ContainerEngine
    from holdfast.containers.containers import ContainerView


class VolumeView(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a volume that holdfast reads."""

    name: str
    labels: dict[str, str]


def find_volume(engine: ContainerEngine, name: str) -> VolumeView | None:
    """Return the volume with exactly this name, or None."""
    with translate_errors(f"inspecting volume {name}", engine.address):
        volumes = engine.client.volumes(filters={"name": name})["Volumes"] or []
    for volume in volumes:
        if volume["Name"] == name:
            return VolumeView(name=name, labels=volume.get("Labels") or {})
    return None


def create_volume(engine: ContainerEngine, name: str, *, gateway: str) -> None:
    """Create a volume of a gateway; an existing one stays unchanged."""
    with translate_errors(f"creating volume {name}", engine.address):
        engine.client.create_volume(name, labels={GATEWAY: gateway})


def remove_volume(engine: ContainerEngine, name: str) -> bool:
    """Remove a volume and all data on it; return False if it does not exist."""
    return change_if_found(engine, f"removing volume {name}", lambda: engine.client.remove_volume(name))


class VolumeJob(msgspec.Struct, frozen=True, kw_only=True):
    """A container without privileges and network that works on a volume.

    Its name is fixed, so the next job finds and removes the container of a job that was interrupted.
    """

    name: str
    gateway: str
    image: str
    volume: str
    mount_path: str
    timeout: float

    def run(self, engine: ContainerEngine, script: str, *arguments: str) -> str:
        """Run a shell script in the directory of the volume and return its output.

        Raises:
            WaitTimeoutError: the script did not end in time; its container is removed.
            DiskFullError: the volume is full.
            ContainerEngineError: the script failed.
        """
        self.remove_leftover(engine)
        try:
            self._create_container(engine, ["/bin/sh", "-c", script, "helper", *arguments])
            start_container(engine, self.name)
            if not wait_for_exit(engine, self.name, timeout=self.timeout):
                raise WaitTimeoutError(f"volume {self.volume}: a job did not end within {self.timeout:g} s")
            code = self._get_container(engine).exit_code
            output = container_logs(engine, self.name).strip()
        finally:
            with suppress(HoldfastError):  # keep the first error; the next job removes the container
                self.remove_leftover(engine)
        if code == 0:
            return output
        if is_disk_full(output):
            raise DiskFullError(f"volume {self.volume}: no space left")
        last_lines = "\n".join(output.splitlines()[-3:])
        raise ContainerEngineError(f"volume {self.volume}: a job failed (exit code {code}): {last_lines}")

    def read_file(self, engine: ContainerEngine, path: str) -> bytes | None:
        """Read one file of the volume through a container that is created but not started."""
        self.remove_leftover(engine)
        self._create_container(engine, ["/bin/true"])
        try:
            content = read_file(engine, self.name, f"{self.mount_path}/{path}")
            if content is None:  # is the file missing, or the container?
                self._get_container(engine)
            return content
        finally:
            with suppress(HoldfastError):  # keep the content or the first error, as in `run`
                self.remove_leftover(engine)

    def remove_leftover(self, engine: ContainerEngine) -> bool:
        """Remove the container of an earlier job of this gateway, and no other container."""
        container = find_container(engine, self.name)
        if container is None or HELPER not in container.labels:
            return False
        # By ID: another container may have taken the name since the labels were read.
        return container.labels.get(GATEWAY) == self.gateway and remove_container(engine, container.id)

    def _get_container(self, engine: ContainerEngine) -> ContainerView:
        container = find_container(engine, self.name)
        if container is None:
            raise ContainerEngineError(f"volume {self.volume}: {self.name} was removed while it was in use")
        return container

    def _create_container(self, engine: ContainerEngine, argv: Sequence[str]) -> None:
        create_container(
            engine,
            self.name,
            image=self.image,
            config={
                "Entrypoint": list(argv),
                "Cmd": [],
                "User": "0:0",
                "WorkingDir": self.mount_path,
                "Healthcheck": {"Test": ["NONE"]},
                "Labels": {GATEWAY: self.gateway, HELPER: "volume"},
            },
            host_config={
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "ReadonlyRootfs": True,
                "NetworkMode": "none",
                "Mounts": [{"Type": "volume", "Source": self.volume, "Target": self.mount_path}],
                # `run` reads the log; the default driver of the engine may not support that.
                "LogConfig": {"Type": "json-file", "Config": {}},
            },
            networking_config={},
        )
