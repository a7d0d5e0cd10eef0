"""The ssh tunnel to the ports of a gateway on a remote host.

The tunnel is a background ssh connection that outlives the command that opened it. It forwards one local
port on loopback per remote port. Local ports are recorded, so that the kubeconfig stays valid.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast import home
from holdfast.api import format_timestamp
from holdfast.containers import free_port, is_port_taken
from holdfast.errors import HostAccessError, HostUnreachableError, PortInUseError
from holdfast.gateway.registry import known_gateways
from holdfast.gateway.spec import LOOPBACK, connect_address
from holdfast.remote import DEFAULT_SSH_TIMEOUTS, ControlMaster, SshTimeouts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from holdfast.remote import SshTarget

_STATE_FILE = "tunnel.json"
_MAX_PORT_ATTEMPTS = 5


class TunnelState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The recorded tunnel: host, local port by remote port, remote endpoints, and the ssh process."""

    remote: str
    ports: dict[int, int] = {}
    endpoints: dict[int, str] = {}
    pid: int = 0
    since: str = ""


class Tunnel:
    """The tunnel of one gateway."""

    def __init__(self, name: str, target: SshTarget, timeouts: SshTimeouts = DEFAULT_SSH_TIMEOUTS) -> None:
        self.target = target
        self.state_file = _state_path(name)
        self.control_master = ControlMaster(target, f"tunnel of {name}", persist="yes", timeouts=timeouts)
        state = _read_state(self.state_file)
        is_same_host = state is not None and state.remote == str(target)
        self.state = state if state is not None and is_same_host else TunnelState(remote=str(target))
        self.seen_open = False
        """Whether this command has seen the tunnel open: if it is down later, it was lost."""
        self.was_reopened = False
        """Whether a lost tunnel was reopened since; the reader resets it."""

    def local_port(self, port: int) -> int:
        """The local port that forwards, or will forward, to a remote port; always the same one."""
        if port not in self.state.ports:
            self._choose_local_port(port, avoid=())
        return self.state.ports[port]

    def save_if_new(self) -> None:
        """Record the host of a new gateway, so that a failed first `up` is found again."""
        if not self.state_file.exists():
            self._write_state(self.state)

    def is_open(self, ports: Iterable[int], listen: str) -> bool:
        """Whether the tunnel responds and forwards exactly these ports."""
        is_open = (
            self.state.endpoints == _remote_endpoints(ports, listen)
            and self._is_current_process()
            and self.control_master.is_responsive()
        )
        self.seen_open = self.seen_open or is_open
        return is_open

    def has_exited(self) -> bool:
        """Whether the ssh process has ended. Makes no request: a slow connection is not a lost one."""
        return not self._is_current_process()

    def open(self, ports: Iterable[int], listen: str) -> bool:
        """Open the tunnel, replacing one that is dead, hangs or forwards other ports.

        Returns:
            False if the tunnel was already open.

        Raises:
            HostUnreachableError: The ssh connection cannot be opened.
            PortInUseError: No local port could be forwarded.
        """
        wanted = tuple(ports)
        # One command at a time. The state is read again under the lock, because another command may have
        # opened the tunnel meanwhile.
        with self.control_master.lock("opening"):
            self.state = _read_state(self.state_file) or self.state
            if self.is_open(wanted, listen):
                return False
            had_exited = self.has_exited()
            # Closed first: a command that was killed here may have left forwards that no record names.
            self.control_master.close()
            self.control_master.ensure_connected()
            endpoints = _remote_endpoints(wanted, listen)
            for port, endpoint in endpoints.items():
                self._forward_port(port, endpoint)
            # Recorded last: a tunnel that was opened only in part does not count as open.
            pid, since = self.control_master.pid(), format_timestamp(datetime.now(UTC))
            kept = {port: self.state.ports[port] for port in wanted}
            self._write_state(
                TunnelState(remote=str(self.target), ports=kept, endpoints=endpoints, pid=pid, since=since)
            )
            self.was_reopened = self.was_reopened or (self.seen_open and had_exited)
            self.seen_open = True
        return True

    def check_forwarding_allowed(self) -> None:
        """Raise HostAccessError if sshd refused to open the remote end of a forwarded port."""
        # ssh accepts each local connection and asks sshd afterwards, so only its log has the refusal.
        if "prohibited" in self.control_master.read_log():
            self.close()  # sshd reads its configuration for new connections only
            raise HostAccessError(
                f"tunnel to {self.target}: sshd does not allow to forward ports",
                hint="Enable AllowTcpForwarding in the sshd_config of that host, then rerun the command.",
            )

    def close(self) -> None:
        """Close the tunnel and keep its local ports recorded."""
        self.seen_open = self.was_reopened = False
        self.control_master.close()
        if self.state_file.exists():
            self._write_state(msgspec.structs.replace(self.state, endpoints={}, pid=0, since=""))

    def delete(self) -> None:
        """Close the tunnel and delete its record."""
        self.close()
        self.state_file.unlink(missing_ok=True)

    def describe(self) -> str:
        """The state of the tunnel for users; makes no request."""
        if not self._is_current_process():
            return "down"
        return f"up since {self.state.since.replace('T', ' ').removesuffix('Z')}"

    def _is_current_process(self) -> bool:
        """Whether the running ssh process is the recorded one."""
        # A connection that another command has opened since has another pid, and may forward other ports.
        return self.state.pid != 0 and self.control_master.pid() == self.state.pid

    def _forward_port(self, port: int, endpoint: str) -> None:
        """Forward one local port; choose and record another one if a program has taken it."""
        tried: list[int] = []
        for _ in range(_MAX_PORT_ATTEMPTS):
            local = self.local_port(port)
            if self.control_master.forward(f"{LOOPBACK}:{local}", endpoint):
                return
            # `forward` fails for a taken port and for a lost connection; only the former needs another port.
            if not self.control_master.pid():
                raise HostUnreachableError(
                    f"{self.target}: the ssh connection ended while the tunnel was opened",
                    hint="Run the same command again.",
                )
            tried.append(local)
            self._choose_local_port(port, avoid=tried)
        raise PortInUseError(
            f"tunnel to {self.target}: no local port could be forwarded: {self.control_master.read_log()}",
            hint="Enable AllowTcpForwarding in the sshd_config of that host, and free a local port.",
        )

    def _choose_local_port(self, port: int, avoid: Iterable[int]) -> None:
        """Choose the number of the remote port if it is free on this machine, else another."""
        reserved = {*_reserved_local_ports(self.state_file), *self.state.ports.values(), *avoid}
        usable = port not in reserved and not is_port_taken(port)
        local = port if usable else free_port(reserved=reserved)
        self.state = msgspec.structs.replace(self.state, ports={**self.state.ports, port: local})

    def _write_state(self, state: TunnelState) -> None:
        self.state = state
        home.write_atomic(self.state_file, msgspec.json.encode(state))


def recorded_host(name: str) -> str | None:
    """The host that an unfinished `up` recorded for a gateway, or None."""
    state = _read_state(_state_path(name))
    return state.remote if state is not None else None


def _state_path(name: str) -> Path:
    return home.state_dir() / "gateways" / name / _STATE_FILE


def _read_state(path: Path) -> TunnelState | None:
    """Read the record; a damaged file only loses the choice of local ports."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=TunnelState)
    except (OSError, msgspec.MsgspecError):
        return None


def _remote_endpoints(ports: Iterable[int], listen: str) -> dict[int, str]:
    """The address of each port as seen from the remote host."""
    host = connect_address(listen)
    host = f"[{host}]" if ":" in host else host
    return {port: f"{host}:{port}" for port in ports}


def _reserved_local_ports(own_state_path: Path) -> set[int]:
    """Local ports of all gateways and tunnels, including stopped ones."""
    ports: set[int] = set()
    for gateway in known_gateways():
        if not gateway.remote:
            ports |= {gateway.port, gateway.gateway_port}
    for path in own_state_path.parent.parent.glob(f"*/{_STATE_FILE}"):
        state = _read_state(path) if path != own_state_path else None
        if state is not None:
            ports |= set(state.ports.values())
    return ports
