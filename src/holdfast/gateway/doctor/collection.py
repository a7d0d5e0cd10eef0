"""What goes into a bundle, file by file: chosen fields only, and none of Secrets, ConfigMaps or variables.

Nothing is redacted here; whoever writes it down does that (bundle.py). Not here: judging.
"""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any

from holdfast import __version__
from holdfast.containers.containers import container_logs
from holdfast.containers.translation import translated
from holdfast.gateway.doctor.checks.store import read_store
from holdfast.gateway.logs import node_lines
from holdfast.gateway.settings import explain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.gateway.doctor.case import Case

_LINES = 500
_RUNS = 20
_EVENTS = 500
_ENGINE_FACTS = (
    "ServerVersion", "OperatingSystem", "OSType", "Architecture", "KernelVersion", "CgroupVersion",
    "CgroupDriver", "Driver", "NCPU", "MemTotal", "SecurityOptions", "SystemTime", "Containers", "Images",
)  # fmt: skip

PARTS: dict[str, Callable[[Case], Any]] = {}
"""Every file of a bundle by its name, and how its content is had; a text or a value of JSON."""


def _part(name: str) -> Callable[[Callable[[Case], Any]], Callable[[Case], Any]]:
    def keep(function: Callable[[Case], Any]) -> Callable[[Case], Any]:
        PARTS[name] = function
        return function

    return keep


@_part("versions.json")
def versions(case: Case) -> dict[str, Any]:
    del case
    return {"holdfast": __version__, "python": sys.version, "platform": platform.platform()}


@_part("settings.json")
def settings(case: Case) -> list[Any]:
    return explain(case.resolved)


@_part("metadata.json")
def metadata(case: Case) -> Any:
    return case.work.remembered


@_part("runs.json")
def runs(case: Case) -> list[Any]:
    return list(read_store(case)[0][:_RUNS])


@_part("engine/info.json")
def engine_info(case: Case) -> dict[str, Any]:
    return {key: case.info.get(key) for key in _ENGINE_FACTS}


@_part("engine/container.json")
def container(case: Case) -> Any:
    return case.inspected


@_part("engine/volume.json")
def volume(case: Case) -> Any:
    with translated("reading the volume", case.engine.address):
        return case.engine.client.inspect_volume(case.work.object)


@_part("engine/network.json")
def network(case: Case) -> Any:
    with translated("reading the network", case.engine.address):
        return case.engine.client.inspect_network(case.work.object)


@_part("logs/node.log")
def node_log(case: Case) -> str:
    _ = case.inspected
    return container_logs(case.engine, case.work.object, tail=_LINES)


@_part("cluster/nodes.json")
def nodes(case: Case) -> list[Any]:
    return [_chosen(each, spec=("taints", "unschedulable"), status=True) for each in _listed(case, "nodes")]


@_part("cluster/pods.json")
def pods(case: Case) -> list[Any]:
    return [{**_chosen(each, spec=("nodeName",), status=True), "containers": _images(each)}
            for each in _listed(case, "pods")]  # fmt: skip


@_part("cluster/volumes.json")
def volumes(case: Case) -> list[Any]:
    spec = ("capacity", "claimRef", "hostPath", "local", "nodeAffinity", "persistentVolumeReclaimPolicy",
            "storageClassName")  # fmt: skip
    return [_chosen(each, spec=spec, status=True) for each in _listed(case, "persistentvolumes")]


@_part("cluster/claims.json")
def claims(case: Case) -> list[Any]:
    spec = ("resources", "storageClassName", "volumeName")
    return [_chosen(each, spec=spec, status=True) for each in _listed(case, "persistentvolumeclaims")]


@_part("cluster/events.json")
def events(case: Case) -> list[Any]:
    keys = ("type", "reason", "message", "involvedObject", "count", "firstTimestamp", "lastTimestamp")
    found = _listed(case, "events")[-_EVENTS:]
    return [{key: each.get(key) for key in keys} for each in found]


def component_logs(case: Case) -> dict[str, Callable[[Case], Any]]:
    """One more file for each component of the node, where there is a gateway at all."""

    def reader(component: str) -> Callable[[Case], str]:
        def read(case: Case) -> str:
            _ = case.inspected
            return "\n".join(node_lines(case.work, component=component, tail=_LINES, follow=False))

        return read

    components = case.work.profile.components if case.name is not None else ()
    return {f"logs/{component}.log": reader(component) for component in components}


def _listed(case: Case, plural: str) -> list[dict[str, Any]]:
    return case.items(f"/api/v1/{plural}")


def _chosen(each: Mapping[str, Any], *, spec: tuple[str, ...], status: bool) -> dict[str, Any]:
    """An object without what people write into it: annotations, commands, variables, managed fields."""
    kept = ("name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp", "ownerReferences")
    return {
        "metadata": {key: each["metadata"][key] for key in kept if key in each["metadata"]},
        "spec": {key: each["spec"][key] for key in spec if key in each.get("spec", {})},
        "status": each.get("status") if status else None,
    }


def _images(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {key: each.get(key) for key in ("name", "image", "resources")}
        for each in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])
    ]
