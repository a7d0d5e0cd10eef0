"""Wait conditions for pods: pure functions, like those of `kube.conditions`.

A pod whose image cannot be pulled or that crash-loops does not become ready: the condition fails immediately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.gateway.cluster.manifests import TEMPLATE_ANNOTATION
from holdfast.kube import WaitResult, differences

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.kube import WaitListCondition

PERMANENT_WAITING_REASONS = frozenset({
    "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull",
    "ErrImagePull", "ImageInspectError", "ImagePullBackOff", "InvalidImageName", "RunContainerError",
})  # fmt: skip
"""Waiting reasons of a container that waiting does not cure."""

_WAITING_TEXTS = {"ContainerCreating": "creating its container", "PodInitializing": "initializing"}


def matches_template(template: dict[str, Any], pod: dict[str, Any]) -> bool:
    """Whether a pod has the hash of this template, and a spec that nothing has changed since."""
    expected = template["metadata"]["annotations"][TEMPLATE_ANNOTATION]
    actual = (pod["metadata"].get("annotations") or {}).get(TEMPLATE_ANNOTATION)
    return actual == expected and not differences(template["spec"], pod.get("spec"))


def template_ready(template: dict[str, Any]) -> WaitListCondition:
    """Return the condition that a running pod of this template is ready."""

    def condition(pods: list[dict[str, Any]]) -> WaitResult:
        current = [pod for pod in pods if matches_template(template, pod) and not _is_finished(pod)]
        if not current:
            has_others = any(not matches_template(template, pod) for pod in pods)
            return WaitResult(observed="the old pod is terminating" if has_others else "no pod yet")
        for pod in current:
            if failure := permanent_failure(pod):
                return WaitResult(failed=failure, observed=failure)
        is_ready = any(_is_ready(pod) for pod in current)
        return WaitResult(done=is_ready, observed="ready" if is_ready else pod_progress(current[0]))

    return condition


def pod_succeeded(pod: dict[str, Any] | None) -> WaitResult:
    """Condition: the pod has run to completion. Fails if the pod failed or cannot start."""
    if pod is None:
        return WaitResult(observed="no pod yet")
    phase = _status(pod).get("phase")
    if phase == "Failed":
        return WaitResult(failed=f"failed{_exit_code_text(pod)}")
    if failure := permanent_failure(pod):
        return WaitResult(failed=failure)
    return WaitResult(done=phase == "Succeeded", observed=pod_progress(pod))


def report_changes(
    condition: Callable[[Any], WaitResult], on_change: Callable[[str], None]
) -> Callable[[Any], WaitResult]:
    """Return the same condition, which calls `on_change` whenever the observed state changes."""
    last = ""

    def reporting(observed: Any) -> WaitResult:
        nonlocal last
        result = condition(observed)
        if result.observed != last:
            last = result.observed
            on_change(result.observed)
        return result

    return reporting


def permanent_failure(pod: dict[str, Any]) -> str:
    """Why waiting for this pod cannot help; empty while it may."""
    for status in _container_statuses(pod):
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in PERMANENT_WAITING_REASONS:
            message = str(waiting.get("message") or "").strip().split("\n", 1)[0]
            return f"{waiting['reason']}: {message}" if message else str(waiting["reason"])
    return ""


def pod_progress(pod: dict[str, Any]) -> str:
    """The state of a pod that is not ready, in a few words."""
    for status in _container_statuses(pod):
        state = status.get("state") or {}
        reason = (state.get("waiting") or {}).get("reason")
        if reason:
            return _WAITING_TEXTS.get(reason, str(reason))
        if state.get("running"):
            return "started, not ready yet"
    for condition in _status(pod).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"not scheduled yet: {condition.get('message') or condition.get('reason')}"
    return str(_status(pod).get("phase") or "no phase yet").lower()


def _status(pod: dict[str, Any]) -> dict[str, Any]:
    return pod.get("status") or {}


def _container_statuses(pod: dict[str, Any]) -> list[dict[str, Any]]:
    status = _status(pod)
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _is_finished(pod: dict[str, Any]) -> bool:
    phase = _status(pod).get("phase")
    return bool(pod["metadata"].get("deletionTimestamp")) or phase in ("Failed", "Succeeded")


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = _status(pod).get("conditions") or ()
    return any(row.get("type") == "Ready" and row.get("status") == "True" for row in conditions)


def _exit_code_text(pod: dict[str, Any]) -> str:
    for status in _container_statuses(pod):
        terminated = (status.get("state") or {}).get("terminated")
        if terminated:
            return f" with exit code {terminated.get('exitCode')}"
    reason = _status(pod).get("reason")
    return f" ({reason})" if reason else ""
