"""Find the pod and container of a sandbox, before a stream is opened, and explain why none is running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.api import Phase
from holdfast.sandbox import pod_name
from holdfast.server.errors import ApiError, conflict, unprocessable
from holdfast.server.sandboxes import presenters
from holdfast.server.sandboxes.dependents import owner_uids

if TYPE_CHECKING:
    from holdfast.server.sandboxes.service import SandboxService

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_PHASE_HINTS = {
    Phase.SUSPENDED: "Resume it with `holdfast sandbox resume`; its files are kept.",
    Phase.PENDING: "Wait until it is ready.",
    Phase.DELETING: "Wait until it is deleted, then create it again.",
}


class PodTarget(NamedTuple):
    """A container for an exec, a port-forward or a log."""

    pod: str
    container: str
    sandbox: dict[str, Any]


async def find_running_container(service: SandboxService, name: str, container: str | None) -> PodTarget:
    """Return a running container.

    Raises:
        ApiError: 409 with the state of the sandbox if no container is running.
    """
    sandbox, pod = await _find_pod(service, name)
    target = PodTarget(pod["metadata"]["name"], _select_container(pod, container), sandbox)
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    state = next(
        (status.get("state") or {} for status in statuses if status.get("name") == target.container), {}
    )
    if "running" not in state or pod["metadata"].get("deletionTimestamp"):
        raise _not_running_error(name, sandbox)
    return target


async def find_container(service: SandboxService, name: str, container: str | None) -> PodTarget:
    """Return a container in any state; the API server reports whether it has a log."""
    sandbox, pod = await _find_pod(service, name)
    return PodTarget(pod["metadata"]["name"], _select_container(pod, container), sandbox)


async def _find_pod(service: SandboxService, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    sandbox = (await service.lookup(name)).sandbox
    if sandbox is None:
        raise conflict("not-running", f"SandboxClaim {name}: no sandbox yet", "Wait until it is ready.")
    pod = await service.cluster.get_pod(pod_name(sandbox))
    if pod is None or not _is_owned_by(pod, sandbox):
        raise _not_running_error(name, sandbox)
    return sandbox, pod


def _is_owned_by(pod: dict[str, Any], sandbox: dict[str, Any]) -> bool:
    """Return whether the sandbox owns the pod: a foreign pod of that name must not be reachable."""
    return sandbox["metadata"]["uid"] in owner_uids(pod)


def _select_container(pod: dict[str, Any], requested: str | None) -> str:
    spec = pod["spec"]
    names = [container["name"] for container in spec["containers"]]
    if requested is None:
        default = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
        return str(default if default in names else names[0])
    names += [container["name"] for container in spec.get("initContainers") or ()]
    if requested not in names:
        message = f"container {requested[:80]!r}: not found; the pod has {', '.join(names)}"
        raise unprocessable("no-container", message)
    return requested


def _not_running_error(name: str, sandbox: dict[str, Any]) -> ApiError:
    phase, reason, message = presenters.sandbox_phase(sandbox)
    cause = ": ".join(part for part in (reason, message) if part)
    text = f"sandbox {name}: {phase}" + (f" ({cause})" if cause else "")
    return conflict("not-running", text, _PHASE_HINTS.get(phase, "See `holdfast sandbox get`."))
