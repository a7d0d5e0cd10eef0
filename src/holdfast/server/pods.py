"""The pod behind a sandbox, as far as streams need it: is it running, and which of its containers is meant.

Looked at before anything is opened, so that a refusal says what is the matter. Not here: the streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.sandbox.names import pod_name
from holdfast.sandbox.wire import Phase
from holdfast.server import views
from holdfast.server.problems import ApiError, conflict, impossible

if TYPE_CHECKING:
    from holdfast.server.service import Service

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_HINTS = {
    Phase.SUSPENDED: "Wake it up: `holdfast sandbox resume`; its files are as they were.",
    Phase.PENDING: "Wait until it is ready.",
    Phase.DELETING: "Wait until it is gone, then make it again.",
}


class Place(NamedTuple):
    """Where a command can run, or a log can be read."""

    pod: str
    container: str
    sandbox: dict[str, Any]


async def running(service: Service, name: str, container: str | None) -> Place:
    """A container that runs now; a conflict that says why there is none."""
    sandbox, pod = await _pod(service, name)
    place = Place(pod["metadata"]["name"], _container(pod, container), sandbox)
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    state = next((each.get("state") or {} for each in statuses if each.get("name") == place.container), {})
    if "running" not in state or pod["metadata"].get("deletionTimestamp"):
        raise _not_running(name, sandbox)
    return place


async def logged(service: Service, name: str, container: str | None) -> Place:
    """A container that has run, or will soon: the cluster knows whether it has a log."""
    sandbox, pod = await _pod(service, name)
    return Place(pod["metadata"]["name"], _container(pod, container), sandbox)


async def _pod(service: Service, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    sandbox = (await service.found(name)).sandbox
    if sandbox is None:
        raise conflict("not-running", f"the claim {name} has no sandbox yet", "Wait until it is ready.")
    pod = await service.cluster.pod(pod_name(sandbox))
    if pod is None or not _is_of(pod, sandbox):
        raise _not_running(name, sandbox)
    return sandbox, pod


def _is_of(pod: dict[str, Any], sandbox: dict[str, Any]) -> bool:
    """Another pod of that name is none of the sandbox's, and must not be reached through it."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(each.get("uid") == sandbox["metadata"]["uid"] for each in owners)


def _container(pod: dict[str, Any], wanted: str | None) -> str:
    spec = pod["spec"]
    names = [each["name"] for each in spec["containers"]]
    if wanted is None:
        said = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
        return str(said if said in names else names[0])
    everything = [*names, *(each["name"] for each in spec.get("initContainers") or ())]
    if wanted not in everything:
        listed = ", ".join(everything)
        raise impossible("no-container", f"there is no container {wanted[:80]!r}; there are {listed}")
    return wanted


def _not_running(name: str, sandbox: dict[str, Any]) -> ApiError:
    where, reason, message = views.state(sandbox)
    why = ": ".join(part for part in (reason, message) if part)
    said = f"the sandbox {name} is {where}" + (f" ({why})" if why else "")
    return conflict("not-running", said, _HINTS.get(where, "See its state."))
