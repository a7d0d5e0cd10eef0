"""Survive a lost connection to a remote host: reopen the tunnel, or restart the command.

The remote lock is lost with its connection, so nothing more may be done under it. The whole command
restarts with a new connection and a new lock: it probes everything again and continues from its
checkpoints. A lost tunnel alone does not affect the lock: calls through it reopen it, and only a run that
failed before that restarts.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from holdfast import home
from holdfast.errors import (
    ConnectionLostError,
    ContainerEngineUnreachableError,
    CorruptFileError,
    HoldfastError,
    HostAccessError,
    HostUnreachableError,
    LockedError,
    TemporaryError,
)
from holdfast.events import Event, EventBus, RetryScheduled, RunStarted
from holdfast.gateway.cluster import kubeconfig
from holdfast.remote import HEARTBEAT_TIMEOUT_SECONDS, RemoteLock
from holdfast.retry import Policy, exponential
from holdfast.workflow import LockHolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.gateway.context import GatewayContext
    from holdfast.workflow import Lock


def ensure_tunnel(gateway: GatewayContext) -> bool:
    """Open the tunnel of a remote gateway if it is down, and update the address in the kubeconfig.

    Returns:
        Whether the tunnel was opened; always False for a gateway on this machine.
    """
    tunnel = gateway.host.tunnel
    if tunnel is None:
        return False
    spec = gateway.published_spec()
    opened = tunnel.open((spec.port, spec.gateway_port), spec.listen)
    # After `open`: if another program has taken the recorded local port, `open` has chosen another one.
    path, name, server = gateway.files.kubeconfig, gateway.name, gateway.api_server_url
    # A damaged file must not fail the `up` that repairs it: `write-kubeconfig` replaces it.
    with suppress(FileNotFoundError, CorruptFileError):
        current = path.read_bytes()
        if kubeconfig.parse_credentials(current, name).server != server:
            home.write_atomic(path, kubeconfig.build_host_kubeconfig(current, name=name, server=server))
    return opened


def reopen_tunnel_on_retry(
    gateway: GatewayContext, on_retry: Callable[[RetryScheduled], None] | None = None
) -> Callable[[RetryScheduled], None] | None:
    """Return a retry callback that calls `on_retry` and then reopens a lost tunnel.

    A slow tunnel is kept: other processes use it too, and ssh itself ends one that stays silent. The retry
    policy ignores an error of the callback, so a tunnel that cannot be opened yet does not end the retries.
    """
    tunnel = gateway.host.tunnel
    if tunnel is None:
        return on_retry

    def reopen(event: RetryScheduled) -> None:
        if on_retry is not None:
            on_retry(event)
        if tunnel.has_exited():
            ensure_tunnel(gateway)

    return reopen


R = TypeVar("R")

# Errors that a lost connection can cause; others would occur again.
_CONNECTION_ERRORS = (TemporaryError, ContainerEngineUnreachableError, HostAccessError)

_RECONNECT_BACKOFF = exponential(0.5, cap=10.0)


def run_with_reconnect(
    create_context: Callable[[], GatewayContext], run: Callable[[GatewayContext, EventBus], R], bus: EventBus
) -> R:
    """Run a command, and restart it after a lost connection, at most `attempts.engine_call` times.

    Args:
        create_context: creates the context of one attempt.
        run: runs the command once.
        bus: receives the events of all attempts.
    """
    # A lock file names the run of its holder: by these ids the command recognizes its own lost sessions.
    run_ids: list[str] = []

    def record_run(event: Event) -> None:
        if isinstance(event, RunStarted):
            run_ids.append(event.run)

    recording_bus, attempt = EventBus(bus.emit, record_run), 0
    while True:
        # A new context for each attempt: nothing that was read over the lost connection is used again.
        gateway, attempt = create_context(), attempt + 1
        try:
            return run(gateway, recording_bus)
        except HoldfastError as error:
            if not _is_connection_cut(error, attempt) or attempt >= gateway.settings.attempts.engine_call:
                raise
        reason = f"lost the connection to {gateway.host.remote}; reconnecting to continue the command"
        bus.emit(RetryScheduled(operation="connect", attempt=attempt, delay=0.0, reason=reason))
        policy = Policy(
            attempts=None,
            # The remote side keeps the lock of a silent connection for the heartbeat timeout.
            deadline=HEARTBEAT_TIMEOUT_SECONDS + gateway.settings.timeouts.ssh,
            backoff=_RECONNECT_BACKOFF,
            retry_on=TemporaryError,
            on_retry=bus.emit,
            operation="connect",
        )
        policy.call(_check_lock_available, gateway, run_ids)


def as_connection_cut(
    error: HoldfastError, lock: Lock, gateway: GatewayContext
) -> ConnectionLostError | None:
    """Translate the error of a run whose lock was lost with the connection, or whose tunnel was down.

    An error after a lost connection says nothing about the gateway, so nothing may be decided by it.

    Returns:
        The error to raise instead, or None if the connection is intact.

    Raises:
        HoldfastError: The tunnel cannot be reopened and waiting does not help.
    """
    if not isinstance(lock, RemoteLock) or not isinstance(error, _CONNECTION_ERRORS):
        return None
    if not lock.was_lost and not _tunnel_was_down(gateway):
        return None
    lost = "connection" if lock.was_lost else "tunnel"
    return ConnectionLostError(
        f"lost the {lost} to {gateway.host.remote}: {error.message}",
        hint="No data is lost. Run the same command again when the connection is stable.",
    )


def _tunnel_was_down(gateway: GatewayContext) -> bool:
    """Whether the tunnel was open in this run and had to be reopened, now or between two attempts.

    Raises the error of a tunnel that only the user can repair.
    """
    tunnel = gateway.host.tunnel
    if tunnel is None or not tunnel.seen_open:
        return False
    try:
        opened = ensure_tunnel(gateway)
    except TemporaryError:
        return True  # down, and cannot be reopened yet
    was_reopened, tunnel.was_reopened = tunnel.was_reopened, False
    return opened or was_reopened


def _is_connection_cut(error: HoldfastError, attempt: int) -> bool:
    """Whether a connection was lost; on the first attempt an unreachable host was never connected."""
    if isinstance(error, ConnectionLostError) or isinstance(error.cause, ConnectionLostError):
        return True
    return attempt > 1 and isinstance(error, HostUnreachableError)


def _check_lock_available(gateway: GatewayContext, run_ids: list[str]) -> None:
    """Reconnect and check that the lock is available.

    Raises:
        LockedError: Another command has taken the lock.
        TemporaryError: The remote side still holds the lock of our lost connection.
    """
    lock = gateway.host.lock(gateway.name)
    try:
        # With the id of the lost run: if this session is lost too, the next attempt recognizes it as its own.
        lock.acquire(LockHolder.current_process("connect", run_ids[-1] if run_ids else ""))
    except LockedError as error:
        # The holder is removed from the file just before the release: an empty file is our lost session.
        holder = lock.holder()
        if holder is not None and holder.run not in run_ids:
            raise
        raise TemporaryError(
            f"{gateway.host.remote}: still holds the lock of the lost connection: {error.message}"
        ) from error
    # The next attempt of the command takes the lock itself, and fails if another command took it first.
    lock.release()
