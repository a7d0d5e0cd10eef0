"""The ways to a gateway from here: the tunnel to another host, and the gateway's own API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.gateway.doctor.case import Unavailable
from holdfast.gateway.doctor.findings import Finding, problem
from holdfast.gateway.glances import ask_gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.gateway.doctor.case import Case


def tunnel(case: Case) -> Iterator[Finding]:
    """The tunnel to a gateway on another host is open while the gateway runs."""
    if case.work.place.tunnel is None:
        return
    _ = case.running
    if not case.is_reached:
        yield problem(
            "tunnel-down",
            case.work.place.remote,
            "The gateway runs, but the tunnel to its ports is down.",
            mend="fix",
            repair="--fix opens it again.",
        )


def gateway_api(case: Case) -> Iterator[Finding]:
    """The gateway's own API answers to the client files of this machine."""
    from holdfast.pki import ClientFiles

    if not case.work.settings.workloads:
        raise Unavailable("the gateway is meant to have no workloads of holdfast's own")
    _ = case.running
    if not case.is_reached:
        raise Unavailable("the tunnel to the gateway is down")
    identity = ClientFiles(case.work.files.mtls).read().bundle
    if identity is None:
        yield problem(
            "client-files-bad",
            str(case.work.files.mtls),
            "There are no usable client files for the gateway's own API on this machine.",
            mend="fix",
            repair=f"--fix puts them in place, as `holdfast up {case.name}` does.",
        )
        return
    try:
        ask_gateway(case.work, identity)
    except HoldfastError as error:
        yield problem(
            "gateway-api-unreachable",
            case.work.gateway_api,
            f"The gateway's own API: {error.message}.",
            mend="fix",
            repair=f"--fix applies its workload again and waits for it, as `holdfast up {case.name}` does.",
        )
