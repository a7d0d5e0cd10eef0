"""The few requests about nodes, their pods and their volumes, under one policy; plain dicts in and out.

What is gone already counts as removed, and an object is only removed or changed under the uid it was seen
with. Not here: what to remove or change.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from holdfast.gateway.nodes.membership import NodeView
from holdfast.kube.manifest import Target
from holdfast.kube.result import translated
from holdfast.kube.status import http_status

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes.client import CoreV1Api

    from holdfast.kube.conditions import Until
    from holdfast.retry import Policy

_MERGE = "application/merge-patch+json"
_NOT_FOUND, _CONFLICT = 404, 409


class NodeCluster:
    """One cluster, seen from its nodes."""

    def __init__(self, api_client: Any, policy: Policy | None, timeout: float) -> None:
        from holdfast.kube import Objects

        self._api_client = api_client
        self._policy = policy
        self._timeout = timeout
        self._objects = Objects(api_client, policy, timeout=timeout)

    @cached_property
    def _core(self) -> CoreV1Api:
        """For what is seldom done: it loads the models of all core kinds, at the cost of many probes."""
        from kubernetes.client import CoreV1Api

        from holdfast.kube import resilient

        return resilient(CoreV1Api(self._api_client), self._policy, timeout=self._timeout)

    # Looking ---------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeView]:
        """All nodes, whatever they are."""
        found = [node["metadata"] for node in self._objects.list("Node").items]
        return [
            NodeView(name=each["name"], uid=each["uid"], labels=each.get("labels") or {}) for each in found
        ]

    def pods_on(self, node: str) -> list[dict[str, Any]]:
        """All pods that are bound to a node."""
        where = Target("v1", "Pod", f"on {node}")
        found = self._call(
            "list",
            where,
            self._core.list_pod_for_all_namespaces,
            field_selector=f"spec.nodeName={node}",
        )
        return [self._api_client.sanitize_for_serialization(pod) for pod in found.items]

    def volumes(self) -> list[dict[str, Any]]:
        """All PersistentVolumes."""
        return list(self._objects.list("PersistentVolume").items)

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        """One object just as the server has it, or None."""
        return self._objects.get(kind, name, namespace=namespace)

    def wait(
        self, kind: str, name: str, until: Until, *, deadline: float, namespace: str | None = None
    ) -> None:
        """Watch one object until a condition holds."""
        self._objects.wait(kind, name, until, namespace=namespace, deadline=deadline)

    # Changing --------------------------------------------------------------------------------------------

    def remove_node(self, node: NodeView) -> bool:
        """Remove this very node; False if it was gone, or if another one has its name by now."""
        return self._objects.delete("Node", node.name, uid=node.uid).did == "deleted"

    def remove_pod_at_once(self, pod: dict[str, Any]) -> None:
        """Remove a pod without waiting for a kubelet to confirm it: there is none that could."""
        from kubernetes.client import V1DeleteOptions, V1Preconditions

        metadata = pod["metadata"]
        options = V1DeleteOptions(grace_period_seconds=0, preconditions=V1Preconditions(uid=metadata["uid"]))
        where = Target("v1", "Pod", metadata["name"], metadata["namespace"])
        self._tolerant(
            "remove",
            where,
            self._core.delete_namespaced_pod,
            metadata["name"],
            metadata["namespace"],
            body=options,
        )

    def patch_volume(self, name: str, body: dict[str, Any]) -> None:
        """Merge a change into the PersistentVolume whose uid is in it; none if that one is not there."""
        where = Target("v1", "PersistentVolume", name)
        self._tolerant("change", where, self._core.patch_persistent_volume, name, body, _content_type=_MERGE)

    def remove_volume(self, name: str, uid: str) -> None:
        """Ask for the removal of a PersistentVolume object; finalizers may hold it."""
        self._objects.delete("PersistentVolume", name, uid=uid)

    def create(self, manifest: dict[str, Any], namespace: str | None = None) -> None:
        """Create an object once, whatever gets lost on the way."""
        self._objects.ensure(manifest, namespace=namespace)

    def patch_config(self, name: str, namespace: str, body: dict[str, Any]) -> None:
        where = Target("v1", "ConfigMap", name, namespace)
        self._patch("change", where, self._core.patch_namespaced_config_map, name, namespace, body)

    def remove_config(self, name: str, namespace: str, uid: str) -> None:
        self._objects.delete("ConfigMap", name, namespace=namespace, uid=uid)

    # Parts -----------------------------------------------------------------------------------------------

    def _patch(self, doing: str, where: Target, fn: Callable[..., Any], *args: Any) -> None:
        self._call(doing, where, fn, *args, writes=True, _content_type=_MERGE)

    def _tolerant(
        self, doing: str, where: Target, fn: Callable[..., Any], *args: Any, **options: Any
    ) -> None:
        """Gone is fine, and so is another object of the same name: it is not the one that is meant."""
        try:
            self._call(doing, where, fn, *args, writes=True, **options)
        except Exception as error:
            if error.__cause__ is None or http_status(error.__cause__) not in (_NOT_FOUND, _CONFLICT):
                raise

    def _call(
        self,
        doing: str,
        where: Target,
        fn: Callable[..., Any],
        *args: Any,
        writes: bool = False,
        **options: Any,
    ) -> Any:
        try:
            return fn(*args, **options)
        except Exception as error:
            better = translated(error, doing, where, writes=writes)
            if better is error:
                raise
            raise better from error
