"""The current state of a gateway: from the container engine, its API server and the files on this machine.

Changes nothing, except that it reopens the tunnel to a remote host. `doctor` finds and fixes problems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from holdfast.containers import find_volume
from holdfast.errors import HoldfastError
from holdfast.gateway.cluster import kubeconfig, kubernetes_get
from holdfast.gateway.reconnect import ensure_tunnel
from holdfast.gateway.spec import kubeconfig_context, node_name
from holdfast.gateway.versions import container_kubernetes_version

if TYPE_CHECKING:
    from holdfast.gateway.context import GatewayContext


GatewayState: TypeAlias = Literal["absent", "stopped", "data-only", "starting", "ready", "failing"]


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one gateway."""

    name: str
    state: GatewayState
    node: str
    server: str = ""
    api: str = ""
    image: str = ""
    kubernetes: str = ""
    container: str = ""
    health: str = ""
    since: str = ""
    data: bool = False
    kubeconfig: str = ""
    context: str = ""
    problem: str = ""
    remote: str = ""
    tunnel: str = ""
    notes: tuple[str, ...] = ()
    """Sentences that the user should know."""


def get_status(gateway: GatewayContext) -> GatewayStatus:
    """Query the engine and the API server for the state of a gateway."""
    has_data = find_volume(gateway.engine, gateway.object_name) is not None
    parked = gateway.parked_container()
    container = gateway.container() or parked
    if container is None:
        return GatewayStatus(
            name=gateway.name,
            state="data-only" if has_data else "absent",
            node=node_name(gateway.name),
            data=has_data,
            remote=gateway.host.remote,
        )
    state, problem, notes = _api_state(gateway) if container.state == "running" else ("stopped", "", ())
    if container.state == "restarting":
        state, problem = "failing", f"the node exits repeatedly (exit code {container.exit_code})"
    if parked is not None:
        notes = (*notes, f"an upgrade is unfinished; run `holdfast upgrade {gateway.name}` to finish it")
    notes = (*notes, *kubeconfig.merge_notes(gateway.name, gateway.files.kubeconfig))
    return GatewayStatus(
        name=gateway.name,
        state=state,
        node=container.environment.get(gateway.contract.node_name_variable, container.hostname),
        server=gateway.api_server_url,
        api=gateway.gateway_api_url if gateway.files.client_certificates.current.exists() else "",
        image=container.image,
        kubernetes=container_kubernetes_version(gateway, container),
        container=container.name,
        health=container.health,
        since=container.started_at if container.is_running else "",
        data=has_data,
        kubeconfig=str(gateway.files.kubeconfig) if gateway.files.kubeconfig.exists() else "",
        context=kubeconfig_context(gateway.name),
        problem=problem,
        remote=gateway.host.remote,
        tunnel=gateway.host.tunnel.describe() if gateway.host.tunnel else "",
        notes=notes,
    )


def _api_state(gateway: GatewayContext) -> tuple[GatewayState, str, tuple[str, ...]]:
    ensure_tunnel(gateway)
    if not gateway.files.kubeconfig.exists():
        return "starting", "no kubeconfig on this machine yet", ()
    try:
        kubernetes_get(gateway, "/readyz")
    except HoldfastError as error:
        return "starting", error.message, ()
    return "ready", "", status_notes(gateway)


_MAX_POLICIES = 5
_POLICIES_PATH = f"/apis/networking.k8s.io/v1/networkpolicies?limit={_MAX_POLICIES}"


def status_notes(gateway: GatewayContext) -> tuple[str, ...]:
    """Notes for the user; empty if the API does not answer quickly."""
    try:
        policies = msgspec.json.decode(kubernetes_get(gateway, _POLICIES_PATH).body)
        items = [item["metadata"] for item in policies["items"]]
        names = ", ".join(f"{item['namespace']}/{item['name']}" for item in items)
        more = ", …" if (policies.get("metadata") or {}).get("continue") else ""
    except (HoldfastError, OSError, msgspec.DecodeError, KeyError, TypeError):
        return ()
    note = (
        f"network policies exist ({names}{more}), but this gateway's network does not enforce them: "
        "every pod can reach every other pod"
    )
    return (note,) if items else ()
