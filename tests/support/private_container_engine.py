"""A container engine for one test, in its own network namespace: a test may kill and restart it.

The namespace, folders and processes are removed at the end, also after a failed set-up. The engine of the
machine and its network rules stay untouched.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Self

import pytest

from holdfast.containers import ContainerEngine, load_image
from holdfast.errors import ContainerEngineUnreachableError
from holdfast.images.build import LAYER_FILE, create_image_archive
from holdfast.images.build_cache import BuildCache
from holdfast.images.debian_rootfs import ROOTFS_FILE
from holdfast.images.recipe import Recipe
from holdfast.remote import connect
from holdfast.retry import Policy, constant


class PrivateContainerEngine:
    """`with PrivateContainerEngine() as engine:` starts an engine that no other test uses."""

    def __init__(self) -> None:
        self.namespace = f"hf{uuid.uuid4().hex[:8]}"
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-engine-"))
        self.socket = f"unix://{self.folder}/docker.sock"
        self.prefix = ("nsenter", f"--net=/run/netns/{self.namespace}")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.set_up()
        except BaseException:
            # `with` does not call __exit__ after a failed __enter__: the namespace would stay.
            self.__exit__()
            raise
        return self

    def set_up(self) -> None:
        """Create everything; a failure at any point is followed by `__exit__`."""
        subprocess.run(["ip", "netns", "add", self.namespace], check=True)
        subprocess.run([*self.prefix, "ip", "link", "set", "lo", "up"], check=True)
        self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        subprocess.run(["ip", "netns", "delete", self.namespace], check=False)
        # An engine mounts its data folder onto itself and leaves it so.
        subprocess.run(["umount", "--lazy", f"{self.folder}/data"], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start the daemon and wait until it answers; restart it if its predecessor was still ending."""
        patient = Policy(attempts=5, backoff=constant(1.0), retry_on=ContainerEngineUnreachableError)
        patient.call(self._start_once)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the daemon and, with it, its own containerd."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None
        self._end_containerd()

    @property
    def is_stopped(self) -> bool:
        return self._process is None

    @property
    def pid(self) -> int:
        """The daemon that runs now."""
        assert self._process is not None, "the engine is stopped"
        return self._process.pid

    def connect(self) -> ContainerEngine:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("DOCKER_HOST", self.socket)
            return connect()

    def inspect(self, container: str) -> dict:
        """A container as this engine shows it."""
        found: dict = self.connect().client.inspect_container(container)
        return found

    def wait_restarted(self, container: str, before: str) -> None:
        """Wait until the container runs and was started after `before`."""
        patient = Policy(attempts=None, deadline=60.0, backoff=constant(0.5), retry_on=AssertionError)
        patient.call(self._assert_started_again, container, before)

    def load_node_image(self) -> str:
        """Put the node image on this engine, straight from the build cache."""
        recipe, cache = Recipe("node"), BuildCache()
        rootfs = cache.find("build-rootfs-node", recipe.rootfs_key)
        layer = cache.find("build-layer-node", recipe.layer_key)
        load_image(
            self.connect(), create_image_archive(recipe, [rootfs / ROOTFS_FILE, layer / LAYER_FILE]).stream()
        )
        return recipe.reference

    def _start_once(self) -> None:
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [
                *self.prefix, "dockerd", f"--host={self.socket}", f"--data-root={self.folder}/data",
                f"--exec-root={self.folder}/exec", f"--pidfile={self.folder}/pid",
            ],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        waiting = Policy(
            attempts=None, deadline=30.0, backoff=constant(0.2),
            retry_on=lambda error: isinstance(error, ContainerEngineUnreachableError) and self._is_alive(),
        )  # fmt: skip
        waiting.call(self.connect)

    def _assert_started_again(self, container: str, before: str) -> None:
        state = self.inspect(container)["State"]
        assert state["Running"], state
        assert state["StartedAt"] > before

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _end_containerd(self) -> None:
        pid_file = self.folder / "exec" / "containerd" / "containerd.pid"
        try:
            pid = int(pid_file.read_text())
            os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError):
            return
        gone = Policy(attempts=None, deadline=20.0, backoff=constant(0.1), retry_on=AssertionError)
        gone.call(_assert_process_ended, pid)


def _assert_process_ended(pid: int) -> None:
    assert not Path(f"/proc/{pid}").exists(), f"process {pid} still runs"
