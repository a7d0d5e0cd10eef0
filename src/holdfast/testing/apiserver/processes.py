"""Child processes of the test API server: the node binary, command lines, and files.

Children cannot outlive the test: Linux sends them a signal when the forking *thread* ends. One thread that
lives as long as the interpreter forks all of them, so that a fixture may run in any thread.

The settings are for tests: no fsync, loopback only, no graceful shutdown.
"""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import TemporaryError, UsageError
from holdfast.testing.ephemeral_pki import EphemeralCA, write_key_pair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


NODE_BINARY_VARIABLE = "HOLDFAST_NODE_BINARY"


def node_binary() -> Path:
    """Return the binary that the environment names, or the one in the cache of `holdfast image build`."""
    named = os.environ.get(NODE_BINARY_VARIABLE)
    if not named:
        from holdfast.images import node_binary_path

        return node_binary_path()
    path = Path(named)
    if path.is_file() and os.access(path, os.X_OK):
        return path.resolve()
    raise UsageError(
        f"{NODE_BINARY_VARIABLE} names {path}, which is not an executable file.",
        hint=f"Run `holdfast image build` and unset {NODE_BINARY_VARIABLE}, or set it to the built binary.",
    )


# Runs between fork and exec in its own interpreter: `preexec_fn` is unsafe with threads. The comparison
# handles a parent that died before the signal was set up.
_LAUNCHER_SCRIPT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


# Cached by process ID: a forked process inherits the cache but not the thread.
@functools.cache
def _fork_thread(_pid: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-forker")


class ChildProcess:
    """A process in its own session, with its output in a file."""

    def __init__(
        self, name: str, argv: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER_SCRIPT, str(os.getpid())]
        command = [*launcher, *(str(word) for word in argv)]
        self._process = _fork_thread(os.getpid()).submit(self._spawn, command, env).result()

    def _spawn(self, argv: list[str], env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                # Ctrl-C in the terminal must not stop the servers before the tests have cleaned up.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process ID."""
        return self._process.pid

    def wait_for_exit(self, seconds: float) -> bool:
        """Wait up to `seconds` for the process to exit; returns whether it has."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill the process and its descendants; does nothing if it has exited."""
        # A process that was not reaped keeps its PID, so the signal cannot reach another process.
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def tail(self, lines: int = 15) -> str:
        """Return the last lines of the output."""
        content = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line[:500] for line in content[-lines:])

    def failure(self, problem: str) -> TemporaryError:
        """Return an error with a problem and the last lines of the output."""
        code = self._process.poll()
        state = "is still running" if code is None else f"ended with code {code}"
        return TemporaryError(f"{self.name} {problem} ({state}); its last lines:\n{self.tail()}")


LOOPBACK = "127.0.0.1"


class ServerFiles:
    """Directory of one server: CA, certificates, keys and kubeconfigs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ca = EphemeralCA()
        self.ca_file = root / "ca.crt"
        self.ca_file.write_bytes(self.ca.certificate)
        self.serving = write_key_pair(self.ca.issue("kube-apiserver", server=True), root, "serving")
        self.admin = self.ca.issue("admin", groups=("system:masters",))
        self.admin_files = write_key_pair(self.admin, root, "admin")
        self.token_signer = write_key_pair(self.ca.issue("service-account"), root, "service-account")
        self.kubeconfig = root / "kubeconfig"


def free_ports(count: int) -> list[int]:
    """Return different ports on loopback that are free at the moment."""
    with ExitStack() as stack:
        ports: list[int] = []
        for _ in range(count):
            listener = stack.enter_context(socket.socket())
            listener.bind((LOOPBACK, 0))
            ports.append(listener.getsockname()[1])
        return ports


def etcd_command(files: ServerFiles, *, client_port: int, peer_port: int) -> list[str]:
    """Return the command line of etcd, with TLS on both ports."""
    certificate, key = files.serving
    client, peer = f"https://{LOOPBACK}:{client_port}", f"https://{LOOPBACK}:{peer_port}"
    command = [
        "etcd",
        f"--data-dir={files.root / 'etcd'}",
        "--name=test",
        f"--initial-cluster=test={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--listen-peer-urls={peer}",
        f"--advertise-client-urls={client}",
        f"--listen-client-urls={client}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]
    for prefix in ("", "peer-"):
        command += [
            f"--{prefix}cert-file={certificate}",
            f"--{prefix}key-file={key}",
            f"--{prefix}trusted-ca-file={files.ca_file}",
            # Other users of the machine can connect to loopback ports.
            f"--{prefix}client-cert-auth",
        ]
    return command


def apiserver_command(files: ServerFiles, *, port: int, etcd_port: int, controllers: bool) -> list[str]:
    """Return the command line of the API server."""
    certificate, key = files.serving
    command = [
        "kube-apiserver",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={files.ca_file}",
        f"--cert-dir={files.root / 'apiserver'}",
        f"--etcd-servers=https://{LOOPBACK}:{etcd_port}",
        f"--etcd-cafile={files.ca_file}",
        f"--etcd-certfile={certificate}",
        f"--etcd-keyfile={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={files.token_signer[0]}",
        f"--service-account-signing-key-file={files.token_signer[1]}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        # The endpoints of the Service `kubernetes` must not be loopback addresses: the reconciler would fail.
        "--endpoint-reconciler-type=none",
        "--allow-privileged",
        "--profiling=false",
    ]
    if not controllers:
        # No controller creates default service accounts then, and pods would be rejected without one.
        command.append("--disable-admission-plugins=ServiceAccount")
    return command


def controller_manager_command(files: ServerFiles, *, port: int) -> list[str]:
    """Return the command line of the controller manager."""
    certificate, key = files.serving
    return [
        "kube-controller-manager",
        f"--kubeconfig={files.kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--service-account-private-key-file={files.token_signer[1]}",
        f"--root-ca-file={files.ca_file}",
        "--leader-elect=false",
        "--concurrent-namespace-syncs=10",
    ]
