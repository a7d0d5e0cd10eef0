"""Nodes, pods, claims and volumes on a real API server, made as a gateway's would be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.volumes import volume

from holdfast.gateway.nodes.repin import volume_bound
from holdfast.kube import Sight

if TYPE_CHECKING:
    from holdfast.kube import Objects


class Cluster:
    """One test's part of a cluster: names end in its own tag, what it made goes with `tidy`."""

    def __init__(self, objects: Objects, namespace: str, tag: str) -> None:
        self.objects = objects
        self.namespace = namespace
        self.tag = tag
        self._made: list[tuple[str, str, str | None]] = []

    def make(
        self, kind: str, name: str, *, version: str = "v1", namespaced: bool = True, **parts: Any
    ) -> dict:
        metadata = {"name": name, **parts.pop("metadata", {})}
        place = self.namespace if namespaced else None
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}
        self._made.append((kind, name, place))
        return self.objects.ensure(body, namespace=place).object

    def node(self, name: str, **labels: str) -> dict:
        metadata = {"labels": {"kubernetes.io/hostname": name, **labels}}
        return self.make("Node", name, namespaced=False, metadata=metadata)

    def pod(self, name: str, node: str | None, **metadata: Any) -> dict:
        spec = {"containers": [{"name": "main", "image": "x"}], **({"nodeName": node} if node else {})}
        return self.make("Pod", name, metadata=metadata, spec=spec)

    def claim(self, name: str, volume_name: str) -> dict:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}},
            "storageClassName": "",
            "volumeName": volume_name,
        }
        return self.make("PersistentVolumeClaim", name, spec=spec)

    def bound_volume(self, name: str, *, node: str, path: str, policy: str = "Delete") -> tuple[dict, dict]:
        """A volume that is pinned to a node, bound to a claim of the same name; and that claim."""
        claim = self.claim(name, name)
        spec = volume(path=path, spec__persistentVolumeReclaimPolicy=policy)["spec"]
        spec |= {"storageClassName": "", "claimRef": self._reference(claim)}
        spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] = [node]
        about = {"annotations": volume()["metadata"]["annotations"]}
        del about["annotations"]["holdfast.dev/operation-id"]
        self.make("PersistentVolume", name, namespaced=False, metadata=about, spec=spec)
        self.objects.wait("PersistentVolume", name, volume_bound, deadline=30)
        self.wait_claim(name, "Bound")
        return self.get("PersistentVolume", name), self.get("PersistentVolumeClaim", name)

    def get(self, kind: str, name: str) -> dict | None:
        place = self.namespace if kind in ("Pod", "PersistentVolumeClaim") else None
        return self.objects.get(kind, name, namespace=place)

    def wait_claim(self, name: str, phase: str) -> None:
        def until(obj: dict | None) -> Sight:
            seen = ((obj or {}).get("status") or {}).get("phase")
            return Sight(done=seen == phase, seen=f"phase {seen}")

        where = {"namespace": self.namespace, "deadline": 30}
        self.objects.wait("PersistentVolumeClaim", name, until, **where)

    def tidy(self) -> None:
        for kind, name, place in reversed(self._made):
            self.objects.delete(kind, name, namespace=place)

    def _reference(self, claim: dict) -> dict:
        about = claim["metadata"]
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": about["namespace"],
            "name": about["name"],
            "uid": about["uid"],
        }
