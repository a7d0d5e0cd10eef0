"""Kubernetes on the gateway: does the API answer, is the node ready, and are nodes and volumes its own?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import DamagedFileError, HoldfastError
from holdfast.gateway import kubeconfig
from holdfast.gateway.doctor.findings import Finding, problem, warning
from holdfast.gateway.nodes.membership import Membership, NodeView, membership
from holdfast.gateway.nodes.pinning import is_stranded, pinned_to, why_not
from holdfast.gateway.steps.nodes import LOCAL_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.gateway.doctor.case import Case

_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


def api(case: Case) -> Iterator[Finding]:
    """The API answers from here: to what the node gives out, and to the kubeconfig of this machine."""
    server = case.credentials.server
    try:
        case.hear("/readyz")
    except HoldfastError as error:
        yield problem(
            error.code,
            server,
            f"The node runs, but {error.message}.",
            mend="fix",
            repair=f"--fix waits until it is ready. `holdfast logs {case.name} --component kube-apiserver`"
            " shows its log.",
        )
        return
    path = case.work.files.kubeconfig
    try:
        here = kubeconfig.credentials(path.read_bytes())
        if here != case.credentials:
            case.hear("/readyz", here)
    except (OSError, DamagedFileError):
        return  # the kubeconfig's own check says so
    except HoldfastError as error:
        yield problem(
            "api-refused",
            str(path),
            f"The API answers, but not to the kubeconfig of this machine: {error.message}.",
            mend="fix",
            repair="--fix writes the kubeconfig from the node's own.",
        )


def node(case: Case) -> Iterator[Finding]:
    """The gateway's own node is registered and ready."""
    listed = {_name(each): each for each in case.items("/api/v1/nodes")}
    server = told_apart(case).server
    if server is None:
        yield problem(
            "node-missing",
            case.work.node,
            "The API answers, but the gateway's node is not registered.",
            mend="fix",
            repair="--fix waits until it is.",
        )
        return
    own = server.name
    conditions = {row["type"]: row for row in listed[own].get("status", {}).get("conditions", ())}
    ready = conditions.get("Ready", {})
    if ready.get("status") != "True":
        yield problem(
            "node-not-ready",
            own,
            f"The node is not ready: {ready.get('message') or ready.get('reason') or 'it does not say why'}.",
            mend="fix",
            repair="--fix waits until it is, and says what it waits for.",
        )
    for kind in _PRESSURES:
        if conditions.get(kind, {}).get("status") == "True":
            yield warning(
                "node-pressure",
                own,
                f"{kind}: {conditions[kind].get('message', '')}. Pods may be evicted.",
                mend="person",
                repair="Free what is short on the engine's host.",
            )
    if listed[own].get("spec", {}).get("unschedulable"):
        yield warning(
            "node-cordoned",
            own,
            "The node takes no new pods.",
            mend="command",
            repair=f"{_kubectl(case)} uncordon {own}",
        )


def stale_nodes(case: Case) -> Iterator[Finding]:
    """Every node in the cluster is a member of this gateway."""
    for stale in told_apart(case).stale:
        yield problem(
            "stale-nodes",
            stale.name,
            "The node is no member of this gateway; pods on it never end.",
            mend="fix",
            repair="--fix takes it out of the cluster; volumes pinned to it are kept and pinned anew.",
        )


def volumes(case: Case) -> Iterator[Finding]:
    """No volume is pinned to a node that is not there."""
    nodes = told_apart(case)
    hosts = {name for node in (*nodes.members, *nodes.stale) for name in (node.name, node.hostname)}
    folder = f"{case.work.profile.state_path}/{LOCAL_PATH}"
    for each in case.items("/api/v1/persistentvolumes"):
        if not is_stranded(each, hosts):
            continue
        where, trouble = ", ".join(sorted(pinned_to(each))), why_not(each, folder)
        cause = f"The volume is pinned to {where}, and there is no such node; its files are where they were."
        if not trouble:
            repair = "--fix pins it to this node, for the same path and claim."
            yield problem("volumes-unpinned", _name(each), cause, mend="fix", repair=repair)
        else:
            repair = f"It cannot be pinned anew by itself: {trouble}."
            yield warning("volumes-unpinned", _name(each), cause, mend="person", repair=repair)


def told_apart(case: Case) -> Membership:
    """The nodes of the cluster, by whose they are."""
    views = [
        NodeView(name=_name(each), uid=each["metadata"]["uid"], labels=each["metadata"].get("labels") or {})
        for each in case.items("/api/v1/nodes")
    ]
    return membership(views, gateway=case.work.name, hostname=case.running.hostname)


def _name(each: dict[str, Any]) -> str:
    return str(each["metadata"]["name"])


def _kubectl(case: Case) -> str:
    return f"kubectl --kubeconfig {case.work.files.kubeconfig}"
