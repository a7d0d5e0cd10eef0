"""Usage of all sandboxes: one list and one request to the kubelet, however many sandboxes there are."""

# No `from __future__ import annotations`: Litestar reads the handlers' annotations at run time.
import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from litestar import Controller, get

from holdfast.api import API_VERSION, NodeUsage, SandboxUsage, UsageReport
from holdfast.errors import HoldfastError
from holdfast.kube import parse_quantity
from holdfast.sandbox import pod_name
from holdfast.server.namespace_client import NamespaceClient
from holdfast.server.requests import problem_responses
from holdfast.server.sandboxes import presenters
from holdfast.server.usage.kubelet import Kubelet

_log = logging.getLogger("holdfast.server")
_NANO = 1e-9


class UsageService:
    """Reports what the sandboxes of a gateway use.

    Args:
        cluster: client for the namespace of the sandboxes.
        kubelet: the kubelet of their node; None if this server does not run on the node.
    """

    def __init__(self, cluster: NamespaceClient, kubelet: Kubelet | None) -> None:
        self._cluster, self._kubelet = cluster, kubelet

    async def report(self) -> UsageReport:
        """Return the usage of all sandboxes and of the node; figures that are not known are None."""
        listed, summary, node = await asyncio.gather(
            self._cluster.objects.list("Sandbox", namespace=self._cluster.namespace, api_version=API_VERSION),
            self._read_summary(),
            self._read_node(),
        )
        statistics = {
            pod["podRef"]["name"]: pod
            for pod in (summary or {}).get("pods") or ()
            if pod["podRef"]["namespace"] == self._cluster.namespace
        }
        sandboxes = [
            sandbox_usage(sandbox, statistics.get(pod_name(sandbox)))
            for sandbox in listed.items
            if not presenters.is_in_warm_pool(sandbox)
        ]
        notes = [] if summary is not None else ["The kubelet does not report CPU, memory and disk."]
        if statistics and any(one.workspace_size and one.workspace is None for one in sandboxes):
            notes.append("The storage class does not report how much of a workspace is used.")
        return UsageReport(
            sandboxes=sorted(sandboxes, key=lambda one: one.name),
            node=None if summary is None else node_usage(summary, node),
            notes=notes,
        )

    async def _read_summary(self) -> dict[str, Any] | None:
        if self._kubelet is None:
            return None
        try:
            return await self._kubelet.read_summary()
        except HoldfastError as error:
            _log.warning("usage: %s (%s)", error.message, error.cause)
            return None

    async def _read_node(self) -> dict[str, Any] | None:
        if self._kubelet is None:
            return None
        try:
            return await self._cluster.objects.get("Node", self._kubelet.node)
        except HoldfastError as error:
            _log.warning("usage: %s", error.message)
            return None


class UsageRoutes(Controller):
    """Report the usage of all sandboxes."""

    path: Final = "/v1/usage"  # type: ignore[misc]
    tags: Final = ["sandboxes"]  # type: ignore[misc]

    @get(
        summary="Get the CPU, memory and disk that sandboxes and their node use",
        operation_id="getUsage",
        responses=problem_responses(),
    )
    async def report(self, usage: UsageService) -> UsageReport:
        return await usage.report()


def sandbox_usage(sandbox: Mapping[str, Any], pod: Mapping[str, Any] | None) -> SandboxUsage:
    """Combine a Sandbox with the statistics of its pod, if there are any."""
    view, statistics = presenters.present_sandbox(sandbox), pod or {}
    size = view.workspace.size if view.workspace else None
    return SandboxUsage(
        name=view.name,
        phase=view.phase,
        cpu=_cores(statistics.get("cpu")),
        cpu_limit=_quantity(view.cpu),
        memory=_number(statistics.get("memory"), "workingSetBytes"),
        memory_limit=_enforced_memory(sandbox, statistics) or _bytes(view.memory),
        disk=_number(statistics.get("ephemeral-storage"), "usedBytes"),
        workspace=_workspace_bytes(statistics, view.workspace.pvc if view.workspace else None),
        workspace_size=_bytes(size),
        created=view.created,
    )


def node_usage(summary: Mapping[str, Any], node: Mapping[str, Any] | None) -> NodeUsage:
    """Combine the node's statistics with its capacity, if that is known."""
    statistics = summary["node"]
    capacity = ((node or {}).get("status") or {}).get("capacity") or {}
    return NodeUsage(
        name=statistics["nodeName"],
        cpu=_cores(statistics.get("cpu")),
        cpu_capacity=_quantity(capacity.get("cpu")),
        memory=_number(statistics.get("memory"), "workingSetBytes"),
        memory_capacity=_bytes(capacity.get("memory")),
        disk=_number(statistics.get("fs"), "usedBytes"),
        disk_capacity=_number(statistics.get("fs"), "capacityBytes"),
    )


def _enforced_memory(sandbox: Mapping[str, Any], statistics: Mapping[str, Any]) -> int | None:
    """The limit of the running container, which differs from that of the Sandbox until the next resume."""
    name = sandbox["spec"]["podTemplate"]["spec"]["containers"][0]["name"]
    for container in statistics.get("containers") or ():
        if container["name"] == name:
            used, left = (
                _number(container.get("memory"), key) for key in ("workingSetBytes", "availableBytes")
            )
            return None if used is None or left is None else used + left
    return None


def _workspace_bytes(statistics: Mapping[str, Any], pvc: str | None) -> int | None:
    # The kubelet measures volumes by their file system. A volume that shares the node's disk has no figures.
    volumes = statistics.get("volume") or ()
    found = [volume for volume in volumes if pvc and (volume.get("pvcRef") or {}).get("name") == pvc]
    return _number(found[0], "usedBytes") if found else None


def _cores(cpu: Mapping[str, Any] | None) -> float | None:
    nano = _number(cpu, "usageNanoCores")
    return None if nano is None else round(nano * _NANO, 6)


def _number(values: Mapping[str, Any] | None, name: str) -> int | None:
    value = (values or {}).get(name)
    return value if isinstance(value, int) else None


def _quantity(text: str | None) -> float | None:
    amount = parse_quantity(text)
    return None if amount is None else float(amount)


def _bytes(text: str | None) -> int | None:
    amount = parse_quantity(text)
    return None if amount is None else int(amount)
