"""What runs on the gateway: pods that cannot start, and rules that nobody enforces."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from holdfast.gateway.doctor.findings import Finding, note, problem, warning
from holdfast.gateway.workloads.sights import HOPELESS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.gateway.doctor.case import Case

_PATIENCE = 120.0
"""A pod may wait this long for its place before that counts as trouble."""


def pods(case: Case) -> Iterator[Finding]:
    """Pods start, keep running and go away when they are deleted."""
    own = {"kube-system", "local-path-storage", case.work.settings.namespace}
    now = dt.datetime.now(dt.UTC)
    for pod in case.items("/api/v1/pods"):
        trouble = trouble_of(pod, now)
        if not trouble:
            continue
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        see = f"kubectl --kubeconfig {case.work.files.kubeconfig} describe pod -n {namespace} {name}"
        cause = f"The pod {trouble}."
        if namespace in own:
            yield problem("pods-failing", f"{namespace}/{name}", cause, mend="person", repair=see)
        else:
            yield warning("pods-failing", f"{namespace}/{name}", cause, mend="person", repair=see)


def policies(case: Case) -> Iterator[Finding]:
    """Network policies are stored, and nothing more."""
    found = case.items("/apis/networking.k8s.io/v1/networkpolicies")
    if found:
        names = sorted(f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in found)
        yield note(
            "network-policy-unenforced",
            ", ".join(names[:5]) + (" …" if len(names) > 5 else ""),  # noqa: PLR2004 (enough to find them)
            "The node's network does not enforce network policies: every pod reaches every other.",
            repair="Do not rely on them for keeping pods apart.",
        )


def trouble_of(pod: dict[str, Any], now: dt.datetime) -> str:
    """Why a pod is in trouble that does not pass by itself, in words; empty where it is not."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    if metadata.get("deletionTimestamp"):
        late = _age(metadata["deletionTimestamp"], now) > _PATIENCE
        return "was deleted long ago and does not end" if late else ""
    if status.get("phase") == "Failed":
        return f"has failed ({status.get('reason') or 'it does not say why'})"
    for row in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (row.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in HOPELESS:
            return f"cannot run its container {row.get('name')}: {waiting['reason']}"
    if status.get("phase") == "Pending" and _age(metadata.get("creationTimestamp", ""), now) > _PATIENCE:
        return f"has been waiting for long: {_why_pending(status)}"
    return ""


def _why_pending(status: dict[str, Any]) -> str:
    for row in status.get("conditions") or ():
        if row.get("status") == "False" and row.get("message"):
            return str(row["message"]).rstrip(".")
    return "it does not say why"


def _age(stamp: str, now: dt.datetime) -> float:
    try:
        return (now - dt.datetime.fromisoformat(stamp)).total_seconds()
    except ValueError:
        return 0.0
