"""Single HTTPS requests to the two servers of a gateway, and the comparison of their clocks with ours.

For callers that ask one question: these requests load no Kubernetes client and are never retried. Each has
the timeout `timeouts.glance`. Steps that write or wait use `Objects`.
"""

from __future__ import annotations

import datetime as dt
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from holdfast.api import parse_timestamp
from holdfast.errors import PermanentError
from holdfast.gateway.cluster import kubeconfig
from holdfast.kube import https_get

if TYPE_CHECKING:
    from holdfast.gateway.cluster.kubeconfig import KubeCredentials
    from holdfast.gateway.context import GatewayContext
    from holdfast.kube import HttpsResponse
    from holdfast.pki import ClientIdentity

_MAX_RESPONSE_BYTES = 16 << 20  # a page of a hundred objects fits

MAX_SKEW_SECONDS = 300.0
"""Clocks that differ by more than this disagree."""


def kubernetes_get(gateway: GatewayContext, path: str) -> HttpsResponse:
    """GET a path of the gateway's Kubernetes API with the kubeconfig of this machine."""
    credentials = kubeconfig.parse_credentials(gateway.files.kubeconfig.read_bytes())
    return kubernetes_get_with_credentials(credentials, gateway, path)


def kubernetes_get_with_credentials(
    credentials: KubeCredentials, gateway: GatewayContext, path: str
) -> HttpsResponse:
    """GET a path of the gateway's Kubernetes API with the given credentials."""
    return https_get(
        credentials.server,
        path,
        ca=credentials.ca,
        certificate=credentials.certificate,
        key=credentials.key,
        timeout=gateway.settings.timeouts.glance,
        max_bytes=_MAX_RESPONSE_BYTES,
    )


def get_gateway_info(gateway: GatewayContext, identity: ClientIdentity) -> bytes:
    """GET the description of the gateway from its own API."""
    response = https_get(
        gateway.gateway_api_url,
        "/v1/gateway",
        ca=identity.ca,
        certificate=identity.client.certificate,
        key=identity.client.key,
        timeout=gateway.settings.timeouts.glance,
    )
    return response.body


def utc_now() -> dt.datetime:
    """The time of this machine's clock."""
    return dt.datetime.now(dt.UTC)


def api_server_clock_skew(gateway: GatewayContext) -> float:
    """Seconds by which the clock of the gateway's API server is ahead of this machine's."""
    before = utc_now().timestamp()
    response = kubernetes_get(gateway, "/version")
    return clock_skew_seconds(response.date, before, utc_now().timestamp())


def check_clock_skew(name: str, seconds: float) -> None:
    """Raise PermanentError if this machine and the gateway disagree on the time.

    A certificate that is expired by one clock only may be valid, so it must not be replaced.
    """
    if abs(seconds) <= MAX_SKEW_SECONDS:
        return
    direction = "behind" if seconds > 0 else "ahead of"
    raise PermanentError(
        f"clock skew: this machine's clock ({utc_now():%Y-%m-%d %H:%M} UTC) is "
        f"{format_duration(abs(seconds))} {direction} the clock of gateway {name}; nothing was replaced",
        hint="Correct the clock of this machine or of the gateway's host, then run the same command again.",
    )


def format_duration(seconds: float) -> str:
    """A duration in its largest unit."""
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"


def clock_skew_seconds(timestamp: str, before: float, after: float) -> float:
    """Seconds by which another clock is ahead of ours.

    Args:
        timestamp: time of the other clock: an HTTP date or RFC 3339.
        before: our time when the request was sent.
        after: our time when the response arrived.
    """
    remote = _parse_timestamp(timestamp)
    if remote is None:
        return 0.0
    if remote < before - 1:  # the Date header has a resolution of one second
        return remote - before
    return max(0.0, remote - after)


def _parse_timestamp(timestamp: str) -> float | None:
    try:
        if "," in timestamp:
            return parsedate_to_datetime(timestamp).timestamp()
        return parse_timestamp(timestamp).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
