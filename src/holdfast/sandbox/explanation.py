"""The condition `holdfast.dev/Explanation`: what holdfast knows about a sandbox that is not ready.

The conditions of the published API have fixed messages, which clients compare. This condition names the
container, the exit code, the last line of output or the object that the sandbox waits for. It exists only
while there is something to explain. Its reason is the specific one, such as `ErrImagePull`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from holdfast.api import ConditionType, HoldfastReason, SandboxReason
from holdfast.sandbox.status import ConditionUpdate, is_being_deleted, is_pod_ready, pod_phase

if TYPE_CHECKING:
    from collections.abc import Mapping

# Messages may contain output of the user's program: the limits bound each status write.
_MAX_MESSAGE_LENGTH = 1024
_MAX_LAST_LINE_LENGTH = 400
# The API server rejects a status with another reason, and container runtimes may report any text.
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_MAX_REASON_LENGTH = 64


def explanation(reason: str, message: str) -> ConditionUpdate:
    """The condition that explains why a sandbox is not ready."""
    valid = reason if len(reason) <= _MAX_REASON_LENGTH and _REASON.fullmatch(reason) else "Error"
    return ConditionUpdate(ConditionType.EXPLANATION, "True", valid, message[:_MAX_MESSAGE_LENGTH])


def explain_waiting(kind: str, obj: Mapping[str, Any]) -> ConditionUpdate:
    """Explain that a sandbox waits until an object of its predecessor is deleted."""
    message = f"the previous {kind} {obj['metadata']['name']} is still being deleted"
    return explanation(HoldfastReason.PREVIOUS_OBJECT_TERMINATING, message)


def explain_pod(pod: Mapping[str, Any]) -> ConditionUpdate | None:
    """Explain why a pod is not ready or about to end; None if the published conditions tell it."""
    if pod_phase(pod) == "Failed":
        return explanation(SandboxReason.POD_FAILED, _termination_message(pod))
    if pod_phase(pod) == "Succeeded":
        return explanation(SandboxReason.POD_SUCCEEDED, _termination_message(pod))
    if is_being_deleted(pod):
        return explanation(SandboxReason.POD_TERMINATING, "waiting for the old pod to terminate")
    return None if is_pod_ready(pod) else _explain_containers(pod)


def _explain_containers(pod: Mapping[str, Any]) -> ConditionUpdate | None:
    status = pod.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field) or ():
            problem = _container_problem(container, may_exit=field == "initContainerStatuses")
            if problem is not None:
                reason, details = problem
                message = f"container {container['name']}: {reason}: {details}".rstrip(": ")
                return explanation(reason, message)
    return None


def _termination_message(pod: Mapping[str, Any]) -> str:
    """Explain how a finished pod ended."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        terminated = (container.get("state") or {}).get("terminated")
        if terminated:
            message = f"container {container['name']} exited with code {terminated.get('exitCode')}"
            return f"{message} ({terminated['reason']})" if terminated.get("reason") else message
    return str(status.get("message") or status.get("reason") or "")


def _container_problem(container: Mapping[str, Any], *, may_exit: bool) -> tuple[str, str] | None:
    """Reason and details why a container does not run; None if it is starting normally.

    Only an init container may exit with code 0.
    """
    state = container.get("state") or {}
    waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
    if terminated and (terminated.get("exitCode") or not may_exit):
        return terminated.get("reason") or "Error", _describe_exit(terminated, container)
    reason = waiting.get("reason")
    if not reason or reason in ("ContainerCreating", "PodInitializing"):
        return None
    previous = (container.get("lastState") or {}).get("terminated") or {}
    if reason == "CrashLoopBackOff" and previous:
        return reason, _describe_exit(previous, container)
    return reason, str(waiting.get("message") or "")


def _describe_exit(terminated: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """Exit code, number of starts and last line of output of a container."""
    starts = int(container.get("restartCount") or 0) + 1
    count = f", started {starts} times" if starts > 1 else ""
    lines = str(terminated.get("message") or "").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    message = f"exited with code {terminated.get('exitCode')}{count}: {last[:_MAX_LAST_LINE_LENGTH]}"
    return message.rstrip(": ")
