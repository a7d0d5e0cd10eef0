"""The way to a gateway's own API from this machine: address and client certificates, as the SDK needs them.

What is remembered of the gateway is enough, so that no engine is asked; the tunnel to another host is opened
again where it is down. Not here: the calls (sandbox.sdk).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import BadSettingError, UnknownGatewayError
from holdfast.gateway.place import DEFAULTS, place_of
from holdfast.gateway.settings import load
from holdfast.gateway.spec import GatewayFiles, read_metadata, url_of

if TYPE_CHECKING:
    from holdfast.gateway.settings import Settings
    from holdfast.gateway.spec import Metadata
    from holdfast.sandbox.sdk.access import Access


def api_access(name: str) -> Access:
    """How gateway `name` is reached now; reads files, and for another host sees to the tunnel."""
    from holdfast.pki import ClientFiles
    from holdfast.sandbox.sdk.access import Access

    known = read_metadata(name)
    hint = f"Bring it up: holdfast up {name}"
    if known is None:
        raise UnknownGatewayError(f"there is no gateway {name} on this machine", hint=hint)
    identity = ClientFiles(GatewayFiles(name).mtls).read().bundle
    if identity is None or not known.gateway_port:
        raise UnknownGatewayError(
            f"gateway {name} has no API of its own, or no client files for it are on this machine", hint=hint
        )
    return Access(
        gateway=name,
        url=_url(known),
        ca=identity.ca,
        certificate=identity.client.certificate,
        key=identity.client.key,
    )


def _url(known: Metadata) -> str:
    place = place_of(known.name, asked=None, remembered=known, settings=_settings(known))
    if place.tunnel is not None:
        place.tunnel.open((known.port, known.gateway_port), known.listen)
    return url_of(*place.address(known.gateway_port, known.listen))


def _settings(known: Metadata) -> Settings:
    """How long its host may take to answer; a setting that is wrong is no reason not to reach it."""
    if not known.remote:
        return DEFAULTS
    try:
        return load()
    except BadSettingError:
        return DEFAULTS
