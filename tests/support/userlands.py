"""Containers with the userlands that images of sandboxes have: GNU coreutils with dash, and busybox."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.gateway.context import DEFAULT_IMAGE

if TYPE_CHECKING:
    from typing import Self

    from docker import APIClient

USERLANDS = {"gnu": "/usr/bin:/bin", "busybox": "/busybox"}
_LIST_PIDS = """
for process in /proc/[0-9]*; do
  [ "$(tr '\\0' ' ' <"$process/cmdline")" != "$0 " ] || echo "${process#/proc/}"
done 2>/dev/null
"""
_PREPARE = """
mkdir -p /busybox /sandbox && chmod 777 /sandbox && busybox --install -s /busybox && exec sleep infinity
"""


class Output(NamedTuple):
    exit_code: int
    stdout: bytes
    stderr: bytes


class UserlandContainer:
    """A container whose commands find only the programs of one userland."""

    def __init__(self, client: APIClient, userland: str) -> None:
        self.client = client
        self.path = USERLANDS[userland]
        self._environment = {"PATH": self.path}

    def __enter__(self) -> Self:
        self.id = self.client.create_container(
            DEFAULT_IMAGE, ["-c", _PREPARE], entrypoint="/bin/sh", host_config=self.client.create_host_config(
                init=True, tmpfs={"/small": "size=256k,mode=1777"}
            ),
        )["Id"]  # fmt: skip
        self.client.start(self.id)
        while self.run("test", "-e", "/busybox/sh").exit_code:
            pass
        return self

    def __exit__(self, *_: object) -> None:
        self.client.remove_container(self.id, force=True)

    def start(self, *argv: str) -> str:
        """Start a command like the container runtime starts one for `exec`; return the id of the exec."""
        exec_id = self.client.exec_create(self.id, list(argv), environment=self._environment)["Id"]
        self.client.exec_start(exec_id, detach=True)
        return str(exec_id)

    def is_running(self, exec_id: str) -> bool:
        return bool(self.client.exec_inspect(exec_id)["Running"])

    def run(self, *argv: str, stdin: bytes | None = None) -> Output:
        """Run a command to its end."""
        if stdin is not None:
            octal = "".join(f"\\{byte:03o}" for byte in stdin)
            argv = ("sh", "-c", 'printf "$0" | "$@"', octal, *argv)
        exec_id = self.client.exec_create(self.id, list(argv), environment=self._environment)["Id"]
        stdout, stderr = self.client.exec_start(exec_id, demux=True)
        code = self.client.exec_inspect(exec_id)["ExitCode"]
        return Output(code, stdout or b"", stderr or b"")

    def pids(self, command: str) -> list[str]:
        """The running processes with exactly this command line."""
        return self.run("sh", "-c", _LIST_PIDS, command).stdout.decode().split()
