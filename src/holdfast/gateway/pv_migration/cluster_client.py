"""Requests about nodes, their pods and PersistentVolumes, and the write-ahead list of volume migrations.

An object is deleted or changed only under the uid that was observed; one that no longer exists counts as
deleted. Between the deletion of a volume object and its recreation, the write-ahead ConfigMap holds the only
copy of the manifest. It is in the same datastore as the object, so that the next command finds it from any
machine.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import ObjectConflictError, TemporaryError
from holdfast.kube import ObjectReference, http_status, translate_error

if TYPE_CHECKING:
    from holdfast.kube import WaitCondition
    from holdfast.retry import Policy

HOSTNAME_LABEL = "kubernetes.io/hostname"
INTENTS_CONFIG_MAP, INTENTS_NAMESPACE = "holdfast-repin", "kube-system"
_NOT_FOUND, _CONFLICT = 404, 409


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """Name, uid and labels of a Node."""

    name: str
    uid: str
    labels: dict[str, str] = {}

    @classmethod
    def from_object(cls, node: dict[str, Any]) -> NodeView:
        metadata = node["metadata"]
        return cls(name=metadata["name"], uid=metadata["uid"], labels=metadata.get("labels") or {})

    @property
    def hostname(self) -> str:
        """The hostname label, which volumes are pinned to; it may differ from the name."""
        return self.labels.get(HOSTNAME_LABEL, self.name)


class ClusterClient:
    """The API requests of stale node removal and volume migration.

    Args:
        api_client: The connection to the cluster.
        policy: How each request is retried.
        timeout: Seconds that one request may take.
    """

    def __init__(self, api_client: Any, policy: Policy | None, timeout: float) -> None:
        from holdfast.kube import Objects

        self._api_client = api_client
        self._policy = policy
        self._timeout = timeout
        self._objects = Objects(api_client, policy, timeout=timeout)

    def list_nodes(self) -> list[NodeView]:
        return [NodeView.from_object(node) for node in self._objects.list("Node").items]

    def list_pods_on_node(self, node: str) -> list[dict[str, Any]]:
        pods = self._objects.list("Pod").items
        return [pod for pod in pods if pod["spec"].get("nodeName") == node]

    def list_volumes(self) -> list[dict[str, Any]]:
        return list(self._objects.list("PersistentVolume").items)

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        return self._objects.get(kind, name, namespace=namespace)

    def wait(
        self, kind: str, name: str, until: WaitCondition, *, deadline: float, namespace: str | None = None
    ) -> None:
        """Watch one object until a condition is met."""
        self._objects.wait(kind, name, until, namespace=namespace, deadline=deadline)

    def delete_node(self, node: NodeView) -> bool:
        """Delete this node; False if it does not exist or another node has its name now."""
        return self._objects.delete("Node", node.name, uid=node.uid).effect == "deleted"

    def force_delete_pod(self, pod: dict[str, Any]) -> None:
        """Delete a pod without waiting for its kubelet to confirm it, because that kubelet is gone."""
        from kubernetes.client import CoreV1Api, V1DeleteOptions, V1Preconditions

        from holdfast.kube import resilient

        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        preconditions = V1Preconditions(uid=pod["metadata"]["uid"])
        options = V1DeleteOptions(grace_period_seconds=0, preconditions=preconditions)
        core = resilient(CoreV1Api(self._api_client), self._policy, timeout=self._timeout)
        try:
            core.delete_namespaced_pod(name, namespace, body=options)
        except Exception as error:
            if http_status(error) in (_NOT_FOUND, _CONFLICT):  # gone, or another pod has its name now
                return
            reference = ObjectReference("v1", "Pod", name, namespace)
            translated = translate_error(error, "delete", reference, is_write=True)
            if translated is error:
                raise
            raise translated from error

    def patch_volume(self, name: str, uid: str, body: dict[str, Any]) -> None:
        """Merge a patch into this PersistentVolume; no effect if it is gone or another one has its name."""
        with suppress(ObjectConflictError):
            self._objects.patch("PersistentVolume", name, body, uid=uid)

    def delete_volume(self, name: str, uid: str) -> None:
        """Delete a PersistentVolume object; it exists until its finalizers are removed."""
        self._objects.delete("PersistentVolume", name, uid=uid)

    def create(self, manifest: dict[str, Any], namespace: str | None = None) -> None:
        """Create an object once, even if the response to an earlier attempt was lost."""
        self._objects.ensure(manifest, namespace=namespace)

    def patch_config_map(self, name: str, namespace: str, body: dict[str, Any]) -> None:
        if self._objects.patch("ConfigMap", name, body, namespace=namespace) is None:
            raise TemporaryError(f"ConfigMap {namespace}/{name} was deleted while it was being written")

    def delete_config_map(self, name: str, namespace: str, uid: str) -> None:
        self._objects.delete("ConfigMap", name, namespace=namespace, uid=uid)


class MigrationIntent(msgspec.Struct, frozen=True):
    """A volume that is to be replaced, as it was before its migration began."""

    volume: dict[str, Any]

    @property
    def uid(self) -> str:
        return str(self.volume["metadata"]["uid"])


def read_intents(cluster: ClusterClient) -> dict[str, MigrationIntent]:
    """Read the write-ahead list, by volume name; entries that cannot be decoded are ignored."""
    config_map = cluster.get("ConfigMap", INTENTS_CONFIG_MAP, INTENTS_NAMESPACE) or {}
    intents = {}
    for name, text in (config_map.get("data") or {}).items():
        with suppress(msgspec.MsgspecError):
            intents[name] = msgspec.json.decode(text, type=MigrationIntent)
    return intents


def write_intent(cluster: ClusterClient, volume: dict[str, Any]) -> MigrationIntent:
    """Add a volume to the write-ahead list; on return the entry is in the datastore."""
    intent = MigrationIntent(volume)
    if cluster.get("ConfigMap", INTENTS_CONFIG_MAP, INTENTS_NAMESPACE) is None:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": INTENTS_CONFIG_MAP}}
        cluster.create(manifest, INTENTS_NAMESPACE)
    data = {volume["metadata"]["name"]: msgspec.json.encode(intent).decode()}
    cluster.patch_config_map(INTENTS_CONFIG_MAP, INTENTS_NAMESPACE, {"data": data})
    return intent


def delete_intent(cluster: ClusterClient, name: str) -> None:
    """Remove a volume from the write-ahead list, and the list with its last entry."""
    config_map = cluster.get("ConfigMap", INTENTS_CONFIG_MAP, INTENTS_NAMESPACE)
    if config_map is None:
        return
    if set(config_map.get("data") or {}) <= {name}:
        cluster.delete_config_map(INTENTS_CONFIG_MAP, INTENTS_NAMESPACE, config_map["metadata"]["uid"])
    else:
        cluster.patch_config_map(INTENTS_CONFIG_MAP, INTENTS_NAMESPACE, {"data": {name: None}})
