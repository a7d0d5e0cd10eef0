"""What a re-pinning is about to do, written down in the cluster before it is done.

Between the removal of a volume's object and its return this is the only place where its manifest is. It is
kept beside the object it replaces, in the same datastore: whoever runs the next command, from whatever
machine, finds it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from holdfast.gateway.nodes.cluster import NodeCluster

NAME, NAMESPACE = "holdfast-repin", "kube-system"


class Intent(msgspec.Struct, frozen=True):
    """One volume that is to be replaced, as it was before anything was done to it."""

    volume: dict[str, Any]

    @property
    def uid(self) -> str:
        return str(self.volume["metadata"]["uid"])


def read_intents(cluster: NodeCluster) -> dict[str, Intent]:
    """All that is written down, by the name of the volume; an entry that cannot be read is none of ours."""
    found = cluster.get("ConfigMap", NAME, NAMESPACE) or {}
    intents = {}
    for name, text in (found.get("data") or {}).items():
        try:
            intents[name] = msgspec.json.decode(text, type=Intent)
        except msgspec.MsgspecError:
            continue
    return intents


def write_intent(cluster: NodeCluster, volume: dict[str, Any]) -> Intent:
    """Write one down; on return it is in the datastore."""
    intent = Intent(volume)
    if cluster.get("ConfigMap", NAME, NAMESPACE) is None:
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}}, NAMESPACE)
    text = msgspec.json.encode(intent).decode()
    cluster.patch_config(NAME, NAMESPACE, {"data": {volume["metadata"]["name"]: text}})
    return intent


def strike_intent(cluster: NodeCluster, name: str) -> None:
    """Strike one out; the list goes with its last entry."""
    found = cluster.get("ConfigMap", NAME, NAMESPACE)
    if found is None:
        return
    if set(found.get("data") or {}) <= {name}:
        cluster.remove_config(NAME, NAMESPACE, found["metadata"]["uid"])
    else:
        cluster.patch_config(NAME, NAMESPACE, {"data": {name: None}})
