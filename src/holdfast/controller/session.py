"""Makes a client fit for thousands of small requests to one server. Not here: making the client."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def hasten(api_client: Any, *, connections: int) -> None:
    """Ask once what would be asked before each request, and keep no more connections than are used.

    Before each request the library reads ~/.netrc, in a thread, and looks for a proxy: in a cluster there is
    neither. A handshake costs both sides more than a request. To be called before the first request.
    """
    configuration, rest = api_client.configuration, api_client.rest_client
    if not rest.proxy:
        rest.proxy = environment_proxy(str(configuration.host))
    configuration.client_session_kwargs = {"trust_env": False}
    rest.maxsize = connections


def environment_proxy(url: str) -> str | None:
    """The proxy that the environment names for an address."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)
