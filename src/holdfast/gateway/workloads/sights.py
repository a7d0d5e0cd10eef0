"""What can be seen of pods while they are waited for: pure readings, as `kube.conditions` has them.

A pod whose image is not to be had, or that keeps ending, will not become ready by waiting: that is said at
once. Not here: the waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.gateway.workloads.blueprint import TEMPLATE
from holdfast.kube.compare import differences
from holdfast.kube.conditions import Sight

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.kube.conditions import UntilMany

HOPELESS = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Reasons for which a container waits and that time does not cure."""


def is_made_from(template: dict[str, Any], pod: dict[str, Any]) -> bool:
    """Whether a pod is of this very template: its stamp says so, and nobody changed the rest of it since."""
    stamp = template["metadata"]["annotations"][TEMPLATE]
    return _annotation(pod) == stamp and not differences(template["spec"], pod.get("spec"))


def template_ready(template: dict[str, Any]) -> UntilMany:
    """One pod of this very template is ready; pods of other templates do not count, nor do ended ones."""

    def until(pods: list[dict[str, Any]]) -> Sight:
        ours = [pod for pod in pods if is_made_from(template, pod) and not _is_over(pod)]
        if not ours:
            others = any(not is_made_from(template, pod) for pod in pods)
            return Sight(seen="the old pod is going" if others else "no pod yet")
        for pod in ours:
            trouble = hopeless(pod)
            if trouble:
                return Sight(failed=trouble, seen=trouble)
        ready = [pod for pod in ours if _is_ready(pod)]
        return Sight(done=bool(ready), seen="ready" if ready else progress_of(ours[0]))

    return until


def succeeded(pod: dict[str, Any] | None) -> Sight:
    """The pod has run to its end; one that failed, or cannot begin, is given up at once."""
    if pod is None:
        return Sight(seen="no pod yet")
    phase = _status(pod).get("phase")
    if phase == "Failed":
        return Sight(failed=f"it failed{_exit_code(pod)}")
    trouble = hopeless(pod)
    if trouble:
        return Sight(failed=trouble)
    return Sight(done=phase == "Succeeded", seen=progress_of(pod))


def told(until: Callable[[Any], Sight], tell: Callable[[str], None]) -> Callable[[Any], Sight]:
    """The same condition, telling of each change of what is seen."""
    last = ""

    def watched(seen: Any) -> Sight:
        nonlocal last
        sight = until(seen)
        if sight.seen != last:
            last = sight.seen
            tell(sight.seen)
        return sight

    return watched


def hopeless(pod: dict[str, Any]) -> str:
    """Why waiting for this pod cannot help; empty as long as it may."""
    for row in _containers(pod):
        waiting = (row.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in HOPELESS:
            message = str(waiting.get("message") or "").strip().split("\n", 1)[0]
            return f"{waiting['reason']}: {message}" if message else str(waiting["reason"])
    return ""


def progress_of(pod: dict[str, Any]) -> str:
    """What a pod is at, in few words."""
    for row in _containers(pod):
        reason = ((row.get("state") or {}).get("waiting") or {}).get("reason")
        if reason:
            return _WORDS.get(reason, str(reason))
        if (row.get("state") or {}).get("running"):
            return "started, not ready yet"
    for condition in _status(pod).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"not placed yet: {condition.get('message') or condition.get('reason')}"
    return str(_status(pod).get("phase") or "no phase yet").lower()


_WORDS = {"ContainerCreating": "its container is being made", "PodInitializing": "it is being prepared"}


def _status(pod: dict[str, Any]) -> dict[str, Any]:
    return pod.get("status") or {}


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        *(_status(pod).get("initContainerStatuses") or ()),
        *(_status(pod).get("containerStatuses") or ()),
    ]


def _annotation(pod: dict[str, Any]) -> str | None:
    found: str | None = (pod["metadata"].get("annotations") or {}).get(TEMPLATE)
    return found


def _is_over(pod: dict[str, Any]) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) or _status(pod).get("phase") in (
        "Failed",
        "Succeeded",
    )


def _is_ready(pod: dict[str, Any]) -> bool:
    rows = _status(pod).get("conditions") or ()
    return any(row.get("type") == "Ready" and row.get("status") == "True" for row in rows)


def _exit_code(pod: dict[str, Any]) -> str:
    for row in _containers(pod):
        ended = (row.get("state") or {}).get("terminated")
        if ended:
            return f" with exit code {ended.get('exitCode')}"
    reason = _status(pod).get("reason")
    return f" ({reason})" if reason else ""
