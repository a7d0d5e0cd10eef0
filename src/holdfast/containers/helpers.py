"""Short-lived containers that work on a volume while its owner is stopped: no privileges, no network.

A helper has a fixed name: one that was left behind is found, ended and removed before the next begins.
Not here: what the commands do.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers.commands import read_file
from holdfast.containers.containers import (
    container_logs,
    create_container,
    ends_within,
    find_container,
    remove_container,
    start_container,
)
from holdfast.containers.labels import GATEWAY, HELPER
from holdfast.containers.translation import is_disk_full
from holdfast.errors import DiskFullError, EngineCallError, HoldfastError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.containers.containers import ContainerView
    from holdfast.containers.engine import Engine


class Helper(msgspec.Struct, frozen=True, kw_only=True):
    """Where a helper works: which image it is made from, which volume it sees, at which path, how long."""

    name: str
    gateway: str
    image: str
    volume: str
    path: str
    seconds: float

    def run(self, engine: Engine, script: str, *arguments: str) -> str:
        """Run a shell script in the volume to its end and return what it printed; a failure is an error."""
        self.clear(engine)
        try:
            self._create(engine, ["/bin/sh", "-c", script, "helper", *arguments])
            start_container(engine, self.name)
            code = self._end(engine)
            output = container_logs(engine, self.name).strip()
        finally:
            with suppress(HoldfastError):  # the first error counts, and the next helper clears it anyway
                self.clear(engine)
        if code != 0:
            self._refuse(code, output)
        return output

    def _end(self, engine: Engine) -> int:
        """Wait for its end; one that takes too long is not left at work on the volume."""
        if not ends_within(engine, self.name, within=self.seconds):
            raise WaitTimeoutError(
                f"working on the volume {self.volume} did not come to an end within {self.seconds:g} s"
            )
        return self._found(engine).exit_code

    def _found(self, engine: Engine) -> ContainerView:
        found = find_container(engine, self.name)
        if found is None:
            raise EngineCallError(f"{self.name} was removed while it worked on the volume {self.volume}")
        return found

    def read(self, engine: Engine, path: str) -> bytes | None:
        """One file of the volume, for when no other container has it; nothing is started."""
        self.clear(engine)
        self._create(engine, ["/bin/true"])
        try:
            content = read_file(engine, self.name, f"{self.path}/{path}")
            if content is None:  # a helper that is gone says nothing about the file
                self._found(engine)
            return content
        finally:
            self.clear(engine)

    def clear(self, engine: Engine) -> bool:
        """Remove what an earlier helper of this gateway left behind, running or not; nothing else."""
        found = find_container(engine, self.name)
        if found is None or HELPER not in found.labels or found.labels.get(GATEWAY) != self.gateway:
            return False
        return remove_container(engine, found.id)

    def _create(self, engine: Engine, argv: Sequence[str]) -> None:
        config: dict[str, Any] = {
            "Entrypoint": list(argv),
            "Cmd": [],
            "User": "0:0",
            "WorkingDir": self.path,
            "Healthcheck": {"Test": ["NONE"]},
            "Labels": {GATEWAY: self.gateway, HELPER: "volume"},
        }
        host: dict[str, Any] = {
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "NetworkMode": "none",
            "Mounts": [{"Type": "volume", "Source": self.volume, "Target": self.path}],
            "LogConfig": {"Type": "json-file", "Config": {}},
        }
        create_container(engine, self.name, image=self.image, config=config, host_config=host, networking={})

    def _refuse(self, code: int, output: str) -> None:
        if is_disk_full(output):
            raise DiskFullError(f"no space left on the volume {self.volume}")
        last = io.StringIO(output).readlines()[-3:]
        raise EngineCallError(
            f"working on the volume {self.volume} failed (exit code {code}): {''.join(last)}"
        )
