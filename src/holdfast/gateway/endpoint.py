"""How this machine reaches a gateway: the endpoint of its API, and its kubeconfig.

`sandbox exec` starts with `api_access`: for a gateway on this machine, it imports nothing beyond the files of
the gateway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import ApiUnreachableError, GatewayNotFoundError, HoldfastError, InvalidSettingError
from holdfast.gateway.registry import GatewayFiles, check_recorded, read_metadata, unknown_gateway_error
from holdfast.gateway.spec import connect_address, https_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.client import GatewayEndpoint
    from holdfast.gateway.registry import GatewayMetadata


def api_access(name: str, *, open_tunnel: bool = True) -> GatewayEndpoint:
    """Return how to reach the API of gateway `name`; reopen the tunnel to a gateway on another host.

    Raises:
        GatewayNotFoundError: the gateway is unknown on this machine, or has no API.
        ApiUnreachableError: the tunnel is down, and `open_tunnel` is not set.
    """
    from holdfast.client import GatewayEndpoint

    metadata = read_metadata(name)
    if metadata is None:
        raise unknown_gateway_error(name)
    identity = GatewayFiles(name).client_certificates.read().value
    if identity is None or not metadata.gateway_port:
        message = f"gateway {name}: no API, or no client certificate on this machine"
        raise GatewayNotFoundError(message, hint=f"Run `holdfast up {name}`.")
    local_url = https_url(connect_address(metadata.listen), metadata.gateway_port)
    return GatewayEndpoint(
        gateway=name,
        url=_tunnel_url(metadata, open_tunnel=open_tunnel) if metadata.remote else local_url,
        ca=identity.ca,
        certificate=identity.client.certificate,
        key=identity.client.key,
    )


def _tunnel_url(metadata: GatewayMetadata, *, open_tunnel: bool) -> str:
    from holdfast.gateway.hosts import DEFAULT_SETTINGS, resolve_host
    from holdfast.gateway.settings import resolve_settings

    try:
        settings = resolve_settings().settings
    except InvalidSettingError:
        settings = DEFAULT_SETTINGS  # an invalid setting must not make the gateway unreachable
    host = resolve_host(metadata.name, requested=None, metadata=metadata, settings=settings)
    ports = (metadata.port, metadata.gateway_port)
    if host.tunnel is not None:
        if open_tunnel:
            host.tunnel.open(ports, metadata.listen)
        elif host.tunnel.has_exited():
            raise ApiUnreachableError(f"gateway {metadata.name}: the tunnel to {metadata.remote} is down")
    return https_url(*host.address(metadata.gateway_port, metadata.listen))


def current_kubeconfig(name: str, *, on_unreachable: Callable[[HoldfastError], None] | None = None) -> Path:
    """Return the kubeconfig of a gateway; reopen the tunnel to a gateway on another host first.

    Args:
        name: name of the gateway.
        on_unreachable: called if the tunnel cannot be opened; the file then has the last address. Without it,
            the error is raised.

    Raises:
        GatewayNotFoundError: This machine has no record of the gateway, or it has no kubeconfig.
    """
    path, metadata = GatewayFiles(name).kubeconfig, read_metadata(name)
    if not path.exists():
        check_recorded(name)
        raise GatewayNotFoundError(f"gateway {name}: no kubeconfig", hint=f"Run `holdfast up {name}`.")
    if metadata is None or not metadata.remote:
        return path
    from holdfast.gateway.context import GatewayContext
    from holdfast.gateway.reconnect import ensure_tunnel

    try:
        ensure_tunnel(GatewayContext(name))
    except HoldfastError as error:
        if on_unreachable is None:
            raise
        on_unreachable(error)
    return path


def merge_kubeconfig(name: str, *, on_unreachable: Callable[[HoldfastError], None] | None = None) -> Path:
    """Merge the current kubeconfig of a gateway into that of the user, and return its path.

    The arguments and errors are those of `current_kubeconfig`.
    """
    from holdfast.gateway.cluster import kubeconfig

    path, target = current_kubeconfig(name, on_unreachable=on_unreachable), kubeconfig.user_kubeconfig_path()
    kubeconfig.merge_into(target, path.read_bytes(), name=name)
    return target
