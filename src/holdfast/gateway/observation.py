"""How a gateway is right now: what the engine, the API server and the files on this machine say.

Only looks, but for one thing: the tunnel to another host is opened again, for nothing can be seen without it.
Not here: judging and repairing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from holdfast.containers import labels
from holdfast.containers.images import find_image
from holdfast.containers.networks import find_volume
from holdfast.errors import HoldfastError
from holdfast.gateway.glances import ask_kubernetes
from holdfast.gateway.identity import context_name, node_name
from holdfast.gateway.remote import reach
from holdfast.gateway.status_notes import status_notes

if TYPE_CHECKING:
    from holdfast.gateway.work import Work

State: TypeAlias = Literal["absent", "stopped", "data-only", "starting", "ready", "failing"]


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One gateway as it is."""

    name: str
    state: State
    node: str
    server: str = ""
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
    """what its user should know, in sentences"""


def observe(work: Work) -> GatewayStatus:
    """Ask everybody who knows something of the gateway."""
    has_data = find_volume(work.engine, work.object) is not None
    container = work.container()
    if container is None:
        return GatewayStatus(
            name=work.name,
            state="data-only" if has_data else "absent",
            node=node_name(work.name),
            data=has_data,
            remote=work.place.remote,
        )
    if container.state == "running":
        reach(work)
    image = find_image(work.engine, container.image_id)
    state, problem, notes = _api_state(work) if container.state == "running" else ("stopped", "", ())
    if container.state == "restarting":
        state, problem = "failing", f"the node keeps ending (exit code {container.exit_code})"
    return GatewayStatus(
        name=work.name,
        state=state,
        node=container.environment.get(work.profile.node_name_variable, container.hostname),
        server=work.server,
        image=container.image,
        kubernetes=image.labels.get(labels.KUBERNETES, "") if image else "",
        container=container.name,
        health=container.health,
        since=container.started_at if container.running else "",
        data=has_data,
        kubeconfig=str(work.files.kubeconfig) if work.files.kubeconfig.exists() else "",
        context=context_name(work.name),
        problem=problem,
        remote=work.place.remote,
        tunnel=work.place.tunnel.words() if work.place.tunnel else "",
        notes=notes,
    )


def _api_state(work: Work) -> tuple[State, str, tuple[str, ...]]:
    if not work.files.kubeconfig.exists():
        return "starting", "there is no kubeconfig on this machine yet", ()
    try:
        ask_kubernetes(work, "/readyz")
    except HoldfastError as error:
        return "starting", error.message, ()
    return "ready", "", status_notes(work)
