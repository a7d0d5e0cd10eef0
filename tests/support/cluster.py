"""Nodes, pods, claims and volumes on a real API server, made as a gateway's would be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.persistent_volumes import persistent_volume

from holdfast.gateway.pv_migration.migrate import pv_bound
from holdfast.kube import WaitResult

if TYPE_CHECKING:
    from holdfast.kube import Objects


class ClusterObjects:
    """One test's part of a cluster: names end in its own tag, what it made goes with `tidy`."""

    def __init__(self, objects: Objects, namespace: str, tag: str) -> None:
        self.objects = objects
        self.namespace = namespace
        self.tag = tag
        self._created: list[tuple[str, str, str | None]] = []

    def create(
        self, kind: str, name: str, *, version: str = "v1", namespaced: bool = True, **parts: Any
    ) -> dict:
        metadata = {"name": name, **parts.pop("metadata", {})}
        place = self.namespace if namespaced else None
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}
        self._created.append((kind, name, place))
        return self.objects.ensure(body, namespace=place).object

    def node(self, name: str, **labels: str) -> dict:
        metadata = {"labels": {"kubernetes.io/hostname": name, **labels}}
        return self.create("Node", name, namespaced=False, metadata=metadata)

    def pod(self, name: str, node: str | None, **metadata: Any) -> dict:
        spec = {"containers": [{"name": "main", "image": "x"}], **({"nodeName": node} if node else {})}
        return self.create("Pod", name, metadata=metadata, spec=spec)

    def pvc(self, name: str, volume_name: str) -> dict:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}},
            "storageClassName": "",
            "volumeName": volume_name,
        }
        return self.create("PersistentVolumeClaim", name, spec=spec)

    def create_bound_volume(
        self, name: str, *, node: str, path: str, policy: str = "Delete"
    ) -> tuple[dict, dict]:
        """A volume that is pinned to a node, bound to a claim of the same name; and that claim."""
        claim = self.pvc(name, name)
        spec = persistent_volume(path=path, spec__persistentVolumeReclaimPolicy=policy)["spec"]
        spec |= {"storageClassName": "", "claimRef": self._claim_reference(claim)}
        spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] = [node]
        about = {"annotations": persistent_volume()["metadata"]["annotations"]}
        del about["annotations"]["holdfast.dev/operation-id"]
        self.create("PersistentVolume", name, namespaced=False, metadata=about, spec=spec)
        self.objects.wait("PersistentVolume", name, pv_bound, deadline=30)
        self.wait_pvc_phase(name, "Bound")
        return self.get("PersistentVolume", name), self.get("PersistentVolumeClaim", name)

    def get(self, kind: str, name: str) -> dict | None:
        place = self.namespace if kind in ("Pod", "PersistentVolumeClaim") else None
        return self.objects.get(kind, name, namespace=place)

    def wait_pvc_phase(self, name: str, phase: str) -> None:
        def until(obj: dict | None) -> WaitResult:
            seen = ((obj or {}).get("status") or {}).get("phase")
            return WaitResult(done=seen == phase, observed=f"phase {seen}")

        where = {"namespace": self.namespace, "deadline": 30}
        self.objects.wait("PersistentVolumeClaim", name, until, **where)

    def delete_all(self) -> None:
        for kind, name, place in reversed(self._created):
            self.objects.delete(kind, name, namespace=place)

    def _claim_reference(self, claim: dict) -> dict:
        about = claim["metadata"]
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": about["namespace"],
            "name": about["name"],
            "uid": about["uid"],
        }
