"""Steps that connect this machine to a gateway: tunnel, kubeconfig, and the recorded metadata."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast import home
from holdfast.api import format_timestamp
from holdfast.containers import read_file
from holdfast.errors import ApiUnreachableError, TemporaryError
from holdfast.gateway.base_steps import GatewayStep
from holdfast.gateway.cluster import kubeconfig, kubernetes_get
from holdfast.gateway.reconnect import ensure_tunnel, reopen_tunnel_on_retry
from holdfast.gateway.registry import (
    GatewayMetadata,
    has_active_gateway,
    is_active_gateway,
    read_metadata,
    set_active_gateway,
    write_metadata,
)
from holdfast.gateway.teardown import REPLACE_OLD
from holdfast.gateway.versions import container_kubernetes_version
from holdfast.retry import Policy, exponential
from holdfast.workflow import ProbeResult, absent, done, partial

if TYPE_CHECKING:
    from holdfast.gateway.context import GatewayContext
    from holdfast.gateway.tunnel import Tunnel
    from holdfast.workflow import StepContext


class _TunnelStep(GatewayStep):
    """A step on the tunnel of a remote gateway."""

    @property
    def tunnel(self) -> Tunnel:
        tunnel = self.gateway.host.tunnel
        if tunnel is None:
            raise TypeError("a gateway on this machine has no tunnel")
        return tunnel


class OpenTunnel(_TunnelStep):
    """Forward local ports to the gateway's ports; the tunnel outlives the command."""

    name = "open-tunnel"
    title = "Tunnel"
    needs = ("start-container",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        spec = self.gateway.published_spec()
        if self.tunnel.is_open((spec.port, spec.gateway_port), spec.listen):
            return done(self.tunnel.describe())
        return absent("down")

    def run(self, ctx: StepContext) -> None:
        gateway = self.gateway
        ensure_tunnel(gateway)
        port = gateway.published_spec().port
        ctx.note(f"{gateway.api_server_url} forwards to port {port} of {gateway.host.remote}")


class CloseTunnel(_TunnelStep):
    """Close the tunnel; its local ports stay reserved."""

    name = "close-tunnel"
    title = "Tunnel closed"
    needs = ("stop-container",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        return absent("open") if self.tunnel.control_master.pid() else done("no tunnel")

    def run(self, ctx: StepContext) -> None:
        self.tunnel.close()
        ctx.note(f"to {self.gateway.host.remote}")


class RemoveTunnelState(_TunnelStep):
    """Remove the record of the host. The last step: an earlier failure must still find the host."""

    name = "forget-tunnel"
    title = "Host record removed"
    needs = ("forget-gateway",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        return absent("recorded") if self.tunnel.state_file.exists() else done("not recorded")

    def run(self, ctx: StepContext) -> None:
        self.tunnel.delete()
        ctx.note(self.gateway.host.remote)


class WriteKubeconfig(GatewayStep):
    """Write a kubeconfig for this machine, readable only by its owner."""

    name = "write-kubeconfig"
    title = "Kubeconfig"
    needs = ("wait-node-registered",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        path = self.gateway.files.kubeconfig
        if not path.exists():
            return absent("no kubeconfig yet")
        if path.stat().st_mode & 0o077:
            return partial("readable by other users")
        if path.read_bytes() != desired_kubeconfig(self.gateway):
            return partial("the node has newer credentials or another address")
        return done(str(path))

    def run(self, ctx: StepContext) -> None:
        home.write_atomic(self.gateway.files.kubeconfig, desired_kubeconfig(self.gateway))
        ctx.note(str(self.gateway.files.kubeconfig))


def refresh_kubeconfig(gateway: GatewayContext) -> None:
    """Fetch the credentials of a running node that has renewed its certificates."""
    container, path = gateway.container(), gateway.files.kubeconfig
    if container is None or container.state != "running" or not path.exists():
        return
    # `status` reports a state even if the node has no kubeconfig yet, or the engine fails to read it.
    with suppress(TemporaryError):
        desired = desired_kubeconfig(gateway)
        if path.read_bytes() != desired:
            home.write_atomic(path, desired)


def desired_kubeconfig(gateway: GatewayContext) -> bytes:
    """The kubeconfig for this machine, made from the node's.

    Raises:
        TemporaryError: The node has not written its kubeconfig yet.
    """
    path = gateway.contract.kubeconfig_path
    content = read_file(gateway.engine, gateway.object_name, path)
    if content is None:
        raise TemporaryError(f"gateway {gateway.name}: the node has no kubeconfig at {path} yet")
    return kubeconfig.build_host_kubeconfig(content, name=gateway.name, server=gateway.api_server_url)


class WaitApiReady(GatewayStep):
    """Wait until the API server answers through the published port with these credentials."""

    name = "wait-api-ready"
    title = "API reachable"
    needs = ("write-kubeconfig",)
    repeat = "always"

    def __init__(self, gateway: GatewayContext) -> None:
        super().__init__(gateway)
        self.policy = Policy(
            attempts=None,
            deadline=gateway.settings.timeouts.api,
            backoff=exponential(0.05, cap=1),
            retry_on=ApiUnreachableError,
            on_retry=reopen_tunnel_on_retry(gateway),
        )

    def run(self, ctx: StepContext) -> None:
        # Read in each attempt: a retry that reopens the tunnel may write another local port into the file.
        content = self.gateway.files.kubeconfig.read_bytes()
        credentials = kubeconfig.parse_credentials(content, self.gateway.name)
        try:
            kubernetes_get(self.gateway, "/readyz", credentials)
        except ApiUnreachableError:
            if (tunnel := self.gateway.host.tunnel) is not None:
                tunnel.check_forwarding_allowed()
            raise
        ctx.note(credentials.server)


class WriteMetadata(GatewayStep):
    """Record the gateway on this machine; make it the active one if requested, or if none is active."""

    name = "write-metadata"
    title = "Metadata"
    # One commit records this step and deletes the record of `replace-old`. After it, `--recreate` is a new
    # request; before it, a repeated command does not remove the container again.
    forgets = REPLACE_OLD
    needs = ("wait-api-ready",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        name = self.gateway.name
        recorded = read_metadata(name)
        if recorded is None:
            return absent("no metadata yet")
        if recorded != self._desired_metadata(recorded.created_at):
            return partial("outdated")
        if self._must_activate():
            return partial("not the active gateway")
        return done(self._summary())

    def run(self, ctx: StepContext) -> None:
        recorded = read_metadata(self.gateway.name)
        now = format_timestamp(datetime.now(UTC))
        # The metadata first: a command could not find an active gateway without metadata.
        write_metadata(self._desired_metadata(recorded.created_at if recorded else now))
        if self._must_activate():
            set_active_gateway(self.gateway.name)
        ctx.note(self._summary())

    def _must_activate(self) -> bool:
        # Commands without a gateway name use the active one: only the user changes which one that is.
        is_chosen = self.gateway.options.use or not has_active_gateway()
        return is_chosen and not is_active_gateway(self.gateway.name)

    def _summary(self) -> str:
        name = self.gateway.name
        return f"{name} is the active gateway" if is_active_gateway(name) else f"{name} is recorded"

    def _desired_metadata(self, created_at: str) -> GatewayMetadata:
        gateway, spec = self.gateway, self.gateway.published_spec()
        container = gateway.container()
        return GatewayMetadata(
            **msgspec.structs.asdict(spec),
            remote=gateway.host.remote,
            tunnel_port=gateway.host.address(spec.port, spec.listen)[1] if gateway.host.remote else 0,
            engine=gateway.engine.address,
            engine_id=gateway.engine.engine_id,
            kubernetes=container_kubernetes_version(gateway, container) if container else "",
            created_at=created_at,
        )
