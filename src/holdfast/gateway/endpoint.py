"""Resolve the address and the client certificate of a gateway's API from the files on this machine.

`sandbox exec` starts here: nothing beyond those files may be imported for a gateway on this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import GatewayNotFoundError, InvalidSettingError
from holdfast.gateway.registry import GatewayFiles, read_metadata
from holdfast.gateway.spec import connect_address, https_url

if TYPE_CHECKING:
    from holdfast.client import GatewayEndpoint
    from holdfast.gateway.registry import GatewayMetadata


def api_access(name: str) -> GatewayEndpoint:
    """Return how to reach the API of gateway `name`; reopen the tunnel to a gateway on another host.

    Raises:
        GatewayNotFoundError: the gateway is unknown on this machine, or has no API.
    """
    from holdfast.client import GatewayEndpoint
    from holdfast.pki import ClientCertificateStore

    metadata = read_metadata(name)
    hint = f"Run `holdfast up {name}`."
    if metadata is None:
        raise GatewayNotFoundError(f"gateway {name}: not found on this machine", hint=hint)
    identity = ClientCertificateStore(GatewayFiles(name).mtls).read().value
    if identity is None or not metadata.gateway_port:
        raise GatewayNotFoundError(
            f"gateway {name}: no API, or no client certificate on this machine", hint=hint
        )
    local_url = https_url(connect_address(metadata.listen), metadata.gateway_port)
    return GatewayEndpoint(
        gateway=name,
        url=_tunnel_url(metadata) if metadata.remote else local_url,
        ca=identity.ca,
        certificate=identity.client.certificate,
        key=identity.client.key,
    )


def _tunnel_url(metadata: GatewayMetadata) -> str:
    from holdfast.gateway.hosts import DEFAULT_SETTINGS, resolve_host
    from holdfast.gateway.settings import resolve_settings

    try:
        settings = resolve_settings().settings
    except InvalidSettingError:
        settings = DEFAULT_SETTINGS  # an invalid setting must not make the gateway unreachable
    host = resolve_host(metadata.name, requested=None, metadata=metadata, settings=settings)
    if host.tunnel is not None:
        host.tunnel.open((metadata.port, metadata.gateway_port), metadata.listen)
    return https_url(*host.address(metadata.gateway_port, metadata.listen))
