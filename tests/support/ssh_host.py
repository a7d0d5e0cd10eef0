"""A remote host for tests, with its own network, sshd and container engine.

It is a network namespace with a veth pair to this machine, a Docker engine in it, and an sshd with its own
/run, so that the engine's socket and the locks of the host are not those of this machine. The test creates
and removes all of it: namespace, processes and folder. A `laptop` is a user of holdfast whose ssh
configuration knows the host as `far`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from tests.support.holdfast_cli import HoldfastCli
from tests.support.private_container_engine import PrivateContainerEngine

from holdfast.retry import Policy, constant

PORT = 2222
UNPRIVILEGED_USER = "guest"
"""A user of the host who may log in and may not use the engine."""


class SshHost(PrivateContainerEngine):
    """`with SshHost() as host:` starts a host at `host.address`."""

    sshd = "/usr/sbin/sshd"

    def __init__(self) -> None:
        super().__init__()
        subnet = f"10.203.{random.randrange(256)}.{random.randrange(64) * 4}"
        base, last = subnet.rsplit(".", 1)
        self._local_address, self.address = f"{base}.{int(last) + 1}", f"{base}.{int(last) + 2}"
        self.run_directory = self.folder / "run"
        self.socket = f"unix://{self.run_directory}/docker.sock"
        self._sshd: subprocess.Popen[bytes] | None = None

    def set_up(self) -> None:
        self._create_run_directory()
        self._create_keys()
        super().set_up()
        near, far = f"{self.namespace}n", f"{self.namespace}f"
        _run_checked("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", self.namespace)
        _run_checked("ip", "addr", "add", f"{self._local_address}/30", "dev", near)
        _run_checked("ip", "link", "set", near, "up")
        _run_checked(*self.prefix, "ip", "addr", "add", f"{self.address}/30", "dev", far)
        _run_checked(*self.prefix, "ip", "link", "set", far, "up")
        self.start_sshd()

    def __exit__(self, *_: object) -> None:
        self.stop_sshd()
        super().__exit__()

    def start_sshd(self) -> None:
        """Start the daemon in the host's network, with the host's own /run and users."""
        files = self.folder
        script = (
            f"mount --make-rprivate / && mount --bind {files}/passwd /etc/passwd && "
            f"mount --bind {files}/shadow /etc/shadow && mount --bind {self.run_directory} /run && "
            f"exec {self.sshd} -D -e -f {files}/sshd_config"
        )
        with (files / "sshd.log").open("ab") as log:
            self._sshd = subprocess.Popen(
                [*self.prefix, "unshare", "--mount", "sh", "-c", script],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        waiting = Policy(
            attempts=None, deadline=20.0, backoff=constant(0.1),
            retry_on=lambda error: isinstance(error, OSError) and self._has_sshd(),
        )  # fmt: skip
        waiting.call(self._check_sshd)

    def stop_sshd(self) -> None:
        """End the daemon and every session of it."""
        if self._sshd is not None:
            self.kill_ssh_sessions()
            self._sshd.terminate()
            self._sshd.wait(20)
            self._sshd = None

    def kill_ssh_sessions(self) -> int:
        """Kill every ssh connection to this host; return their number."""
        assert self._sshd is not None
        listed = subprocess.run(
            ["pgrep", "-P", str(self._sshd.pid)], capture_output=True, text=True, check=False
        )
        pids = [int(pid) for pid in listed.stdout.split()]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return len(pids)

    def replace_host_key(self) -> None:
        """Give the host another key, as after a new installation or in a man-in-the-middle attack."""
        self.stop_sshd()
        for path in self.folder.glob("host_key*"):
            path.unlink()
        _generate_key(self.folder / "host_key")
        self.start_sshd()

    def laptop(
        self, folder: Path, *, key: Path | None = None, user: str = "root", **environment: str
    ) -> HoldfastCli:
        """A user of holdfast on another machine; the host need not know `key`."""
        (folder / "bin").mkdir(parents=True)
        known = folder / "known_hosts"
        public = (self.folder / "host_key.pub").read_text().split()
        known.write_text(f"[{self.address}]:{PORT} {public[0]} {public[1]}\n")
        (folder / "config").write_text(
            f"Host far\n  HostName {self.address}\n  Port {PORT}\n  User {user}\n"
            f"Host *\n  IdentityFile {key or self.folder / 'user_key'}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n"
        )
        wrapper = folder / "bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
        wrapper.chmod(0o755)
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        return HoldfastCli(folder / "h", PATH=path, HOLDFAST_WORKLOADS="false", **environment)

    def _create_run_directory(self) -> None:
        for name, mode in (("sshd", 0o755), ("keys", 0o755), ("lock", 0o1777)):
            (self.run_directory / name).mkdir(parents=True)
            (self.run_directory / name).chmod(mode)
        self.run_directory.chmod(0o755)
        passwd, shadow = Path("/etc/passwd").read_text(), Path("/etc/shadow").read_text()
        (self.folder / "passwd").write_text(f"{passwd}{UNPRIVILEGED_USER}:x:5555:5555::/:/bin/sh\n")
        (self.folder / "shadow").write_text(f"{shadow}{UNPRIVILEGED_USER}:*:19000:0:99999:7:::\n")
        (self.folder / "shadow").chmod(0o600)

    def _create_keys(self) -> None:
        _generate_key(self.folder / "host_key")
        _generate_key(self.folder / "user_key")
        for user in ("root", UNPRIVILEGED_USER):
            shutil.copy(self.folder / "user_key.pub", self.run_directory / "keys" / user)
        (self.folder / "sshd_config").write_text(
            f"ListenAddress {self.address}\nPort {PORT}\nHostKey {self.folder}/host_key\n"
            "AuthorizedKeysFile /run/keys/%u\nUsePAM no\nStrictModes no\nPasswordAuthentication no\n"
            "PermitRootLogin prohibit-password\nPidFile none\nAcceptEnv LC_*\n"
        )

    def _has_sshd(self) -> bool:
        return self._sshd is not None and self._sshd.poll() is None

    def _check_sshd(self) -> None:
        with socket.create_connection((self.address, PORT), timeout=5) as found:
            assert found.recv(4) == b"SSH-"


def _generate_key(path: Path) -> None:
    _run_checked("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))


def _run_checked(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
