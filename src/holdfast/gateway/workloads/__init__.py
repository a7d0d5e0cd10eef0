"""What runs on a gateway for holdfast's own sake: the objects of the cluster as plain data.

`manifests` is the whole list, in the order in which it is applied. Another workload is one more module here
with a function of the blueprint, and one more line in that list. Not here: applying and waiting (`steps`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.gateway.workloads.api_server import api_server_manifests
from holdfast.gateway.workloads.controller import controller_manifests

if TYPE_CHECKING:
    from holdfast.gateway.workloads.blueprint import Blueprint


def manifests(blueprint: Blueprint) -> list[dict[str, Any]]:
    """Every object that holdfast puts into a gateway."""
    return [*api_server_manifests(blueprint), *controller_manifests(blueprint)]


def deployments(blueprint: Blueprint) -> list[dict[str, Any]]:
    """Those of them that roll out."""
    return [each for each in manifests(blueprint) if each["kind"] == "Deployment"]
