"""Connect to a container engine, local or on another host through a forwarded socket; copy images to it.

The other host needs sshd and the engine's socket. The next call reopens a connection that was cut.
"""

from __future__ import annotations

import math
import shlex
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.containers import (
    ContainerEngine,
    TransferProgress,
    engine_endpoint,
    find_image,
    load_image,
    parse_listeners,
    translate_errors,
)
from holdfast.errors import (
    ContainerEngineError,
    ContainerEnginePermissionError,
    ContainerEngineUnreachableError,
    HoldfastError,
    HostAccessError,
)
from holdfast.remote.control_master import DEFAULT_SSH_TIMEOUTS, ControlMaster, SshTimeouts
from holdfast.remote.ssh_target import SSH_SCHEME, SshTarget, parse_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.containers import ImageView, ListeningSocket

# How long the connection outlives a command, so that the next command can reuse it.
_CONTROL_PERSIST_SECONDS = "60"

_LINE_MARKER = "holdfast:"
# The lock directory follows the rule of `gateway.hosts.lock_directory`: all users must lock the same file.
_HOST_FACTS_SCRIPT = f"""
d=${{DOCKER_HOST:-unix:///var/run/docker.sock}}; s=${{d#unix://}}; e=ok
[ -w "$s" ] || e=denied; [ -S "$s" ] || e=missing
l=/tmp; case $(ls -ld /run/lock/ 2>/dev/null) in d???????w[tT]*) l=/run/lock;; esac
printf '{_LINE_MARKER}%s\\n' "$d" "$e" "$l" "$(id -un)"
"""


class HostFacts(msgspec.Struct, frozen=True):
    """The output of the facts script: engine address and access, directory of the locks, and the user."""

    engine_address: str
    engine_state: str
    lock_directory: str
    user: str


class SshHost:
    """A host with a container engine, reached by ssh; connects on first use."""

    def __init__(self, target: SshTarget, timeouts: SshTimeouts = DEFAULT_SSH_TIMEOUTS) -> None:
        self.target = target
        self.control_master = ControlMaster(
            target, "engine", persist=_CONTROL_PERSIST_SECONDS, timeouts=timeouts
        )
        self.local_socket = self.control_master.directory / "engine.sock"
        self._facts: HostFacts | None = None

    def facts(self) -> HostFacts:
        """Connect if necessary and return the host's facts; they are read once per connection."""
        if self._facts is None or not self.control_master.is_process_alive():
            self.control_master.ensure_connected()
            self._facts = _parse_host_facts(
                self.target, self.control_master.run_script(f"sh -c {shlex.quote(_HOST_FACTS_SCRIPT)}")
            )
        return self._facts

    def forward_engine_socket(self) -> str:
        """Forward the engine's socket and return its address on this machine."""
        facts = self.facts()
        path = facts.engine_address.removeprefix("unix://")
        self._check_engine_access(facts, path)
        if not self.control_master.forward(str(self.local_socket), path):
            log = self.control_master.read_log().strip()
            raise HostAccessError(f"{self.target}: the engine's socket cannot be forwarded: {log}")
        return f"unix://{self.local_socket}"

    def listeners(self) -> list[ListeningSocket]:
        """Return the listening TCP sockets of the host."""
        self.facts()
        table = self.control_master.run_script("cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; exit 0")
        return list(parse_listeners(table).values())

    def _check_engine_access(self, facts: HostFacts, path: str) -> None:
        if not facts.engine_address.startswith("unix://"):
            raise HostAccessError(
                f"{self.target}: DOCKER_HOST is {facts.engine_address}, but only a socket can be forwarded",
                hint="Unset it on that host, or set it to unix:///path/of/the/docker.sock.",
            )
        if facts.engine_state == "missing":
            raise ContainerEngineUnreachableError(
                f"{self.target}: container engine not found: {path} does not exist",
                hint="Install or start Docker on that host (`sudo systemctl start docker`).",
            )
        if facts.engine_state == "denied":
            raise ContainerEnginePermissionError(
                f"{self.target}: permission denied to user {facts.user} for the container engine",
                hint=f"Run `sudo usermod -aG docker {facts.user}` on that host.",
            )


class SshContainerEngine(ContainerEngine):
    """An engine behind an ssh connection that may be cut at any time.

    Args:
        host: the host of the engine.
        timeout: limit in seconds for one call.
        before_call: raises if no call is allowed. A lock can be lost together with a connection; without this
            check the caller would continue over a new connection without its lock.
    """

    def __init__(
        self, host: SshHost, *, timeout: float, before_call: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(None, f"{SSH_SCHEME}{host.target}")
        self.host = host
        self._timeout = timeout
        self._before_call = before_call

    @property
    def client(self) -> Any:
        """The client of the Docker SDK; reopens the connection first if it was cut."""
        self._before_call()
        sdk = self._docker_client
        if not self.host.control_master.is_process_alive():
            self.host.forward_engine_socket()
            # Again: the lock's session may have ended with the old connection, and reconnecting takes time.
            self._before_call()
        return sdk

    @cached_property
    def _docker_client(self) -> Any:
        socket_address, master = self.host.forward_engine_socket(), self.host.control_master
        earlier_log = master.read_log()
        try:
            return _docker_api_client(self.address, socket_address, self._timeout)
        except (ContainerEngineError, ContainerEngineUnreachableError):
            # ssh accepts each local connection, and closes it when the host refuses to open the other end.
            # Only its log says so, in the same words for sshd's configuration and for a dead engine.
            if "open failed" not in master.read_log().removeprefix(earlier_log):
                raise
        # sshd reads its configuration for new connections only. Other commands may hold locks on a shared
        # connection.
        if master.is_own:
            master.close()
        raise HostAccessError(
            f"{self.host.target}: the engine's socket cannot be opened: no engine listens on it, or sshd "
            "does not allow to forward it",
            hint="On that host, start Docker (`sudo systemctl start docker`), and enable "
            "AllowStreamLocalForwarding and AllowTcpForwarding in its sshd_config.",
        )


def connect_over_ssh(
    host: SshHost, *, timeout: float, before_call: Callable[[], None] = lambda: None
) -> SshContainerEngine:
    """Connect to the engine of a host; raises if it does not answer."""
    engine = SshContainerEngine(host, timeout=timeout, before_call=before_call)
    _ = engine.client
    return engine


def _parse_host_facts(target: SshTarget, output: str) -> HostFacts:
    """Parse the marked lines; a login shell may print other lines."""
    marked = [
        line.removeprefix(_LINE_MARKER) for line in output.splitlines() if line.startswith(_LINE_MARKER)
    ]
    if len(marked) != len(HostFacts.__struct_fields__):
        raise HostAccessError(
            f"{target}: a shell command failed: {output.strip()[:200] or 'no output'}",
            hint=f"Check the output of `ssh {target.destination} id`.",
        )
    return HostFacts(*marked)


def connect(*, timeout: float = 60.0, ssh_timeouts: SshTimeouts | None = None) -> ContainerEngine:
    """Connect to the engine of DOCKER_HOST or the current Docker context; raises if it does not answer.

    Args:
        timeout: limit in seconds for one call.
        ssh_timeouts: the timeouts for an engine on another host.
    """
    endpoint = engine_endpoint()
    if endpoint.address.startswith(SSH_SCHEME):
        host = SshHost(parse_target(endpoint.address), ssh_timeouts or DEFAULT_SSH_TIMEOUTS)
        return connect_over_ssh(host, timeout=timeout)
    client = _docker_api_client(endpoint.address, endpoint.address, timeout, endpoint.tls or False)
    return ContainerEngine(client, endpoint.address)


def _docker_api_client(address: str, base_url: str, timeout: float, tls: Any = False) -> Any:
    """Return a client of the Docker SDK; errors name `address`, requests go to `base_url`."""
    with translate_errors("reaching the container engine", address):
        import docker

        # `auto` requests the API version: an engine that does not answer fails here.
        return docker.APIClient(base_url=base_url, version="auto", timeout=math.ceil(timeout), tls=tls)


def copy_image(
    connect_source: Callable[[], ContainerEngine],
    target: ContainerEngine,
    reference: str,
    check: Callable[[ImageView], None],
    progress: Callable[[str, float | None], None],
) -> bool:
    """Copy an image to another engine and verify its layers there.

    Args:
        connect_source: connects to the engine that may have the image.
        target: the engine that receives it.
        reference: the image.
        check: raises if the target cannot use the image; called before anything is sent.
        progress: receives a message and the fraction of the sent bytes.

    Returns:
        False if the source engine does not answer or does not have the image.
    """
    try:
        source = connect_source()
        image = find_image(source, reference)
    except HoldfastError:
        return False
    if image is None:
        return False
    check(image)
    load_image(target, _export_image(source, reference, image.size, progress))
    copied = find_image(target, reference)
    # Not by ID: depending on its image store, an engine uses the digest of the config or of the manifest.
    if copied is None or copied.layers != image.layers:
        # "unexpected EOF" makes the error transient (containers.errors): the step sends the image again.
        raise ContainerEngineError(
            f"{reference}: unexpected EOF, the image on {target.address} is incomplete"
        )
    return True


def _export_image(
    source: ContainerEngine, reference: str, size: int, progress: Callable[[str, float | None], None]
) -> Iterator[bytes]:
    transfer = TransferProgress(size, progress, prefix="sending: ")
    with translate_errors(f"exporting {reference}", source.address):
        yield from transfer.track(source.client.get_image(reference))
