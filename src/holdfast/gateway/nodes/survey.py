"""Looks over all volumes of a cluster: which are stranded, which can be pinned anew, what is half done.

Only looks. With nothing stranded it costs one list of volumes and one read; claims and directories are asked
for only where they matter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.gateway.nodes.intents import Intent, read_intents
from holdfast.gateway.nodes.pinning import (
    RESTORE_POLICY,
    claim_of,
    is_stranded,
    metadata,
    notes_of,
    path_of,
    why_not,
)

if TYPE_CHECKING:
    from holdfast.gateway.nodes.cluster import NodeCluster

Present = Callable[[Sequence[str]], Collection[str]]
"""Which of these directories are on the gateway's volume."""


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """Volumes by what has to be done about them, in the order in which it is done."""

    hosts: frozenset[str] = frozenset()
    """the hostnames of all nodes"""
    intents: dict[str, Intent] = {}
    """taken away by an earlier run, or on the way: finished first"""
    stranded: tuple[str, ...] = ()
    """to be pinned anew"""
    to_restore: tuple[str, ...] = ()
    """where they belong; their reclaim policy is still set aside"""
    unused: tuple[str, ...] = ()
    """written down, and nothing came of it"""
    left: dict[str, str] = {}
    """stranded, and why they have to stay as they are"""

    @property
    def work(self) -> tuple[str, ...]:
        """The names of all volumes that something has to be done about."""
        return tuple(dict.fromkeys((*self.intents, *self.stranded, *self.to_restore)))

    def left_words(self) -> str:
        """What stays as it is, in words; empty if nothing does."""
        return "; ".join(f"{name} cannot be pinned anew: {why}" for name, why in self.left.items())


def survey(cluster: NodeCluster, hosts: Collection[str], folder: str, present: Present) -> Survey:
    """Look at everything once."""
    written = read_intents(cluster)
    volumes = {metadata(volume)["name"]: volume for volume in cluster.volumes()}
    intents = {
        name: intent for name, intent in written.items() if not is_as_before(intent, volumes.get(name))
    }
    rest = {name: volume for name, volume in volumes.items() if name not in intents}
    stranded = {name: volume for name, volume in rest.items() if is_stranded(volume, hosts)}
    left = _left(cluster, stranded, folder, present)
    return Survey(
        hosts=frozenset(hosts),
        intents=intents,
        stranded=tuple(name for name in stranded if name not in left),
        to_restore=tuple(
            name
            for name, volume in rest.items()
            if RESTORE_POLICY in notes_of(volume) and name not in stranded
        ),
        unused=tuple(name for name in written if name not in intents and name not in stranded),
        left=left,
    )


def is_as_before(intent: Intent, live: dict[str, Any] | None) -> bool:
    """Whether what was written down was never begun: then the volume is judged as it is today."""
    return (
        live is not None
        and metadata(live)["uid"] == intent.uid
        and not metadata(live).get("deletionTimestamp")
    )


def _left(
    cluster: NodeCluster, stranded: dict[str, dict[str, Any]], folder: str, present: Present
) -> dict[str, str]:
    left = {name: why for name, volume in stranded.items() if (why := _why_left(cluster, volume, folder))}
    paths = {name: path_of(volume) for name, volume in stranded.items() if name not in left}
    there = set(present(sorted(set(paths.values())))) if paths else set()
    return left | {name: f"{path} is not there" for name, path in paths.items() if path not in there}


def _why_left(cluster: NodeCluster, volume: dict[str, Any], folder: str) -> str:
    why = why_not(volume, folder)
    return why or ("" if claim_is_there(cluster, volume) else "its claim is gone")


def claim_is_there(cluster: NodeCluster, volume: dict[str, Any]) -> bool:
    """Whether the very claim that a volume belongs to is there, and means this volume."""
    namespace, name, uid = claim_of(volume)
    claim = cluster.get("PersistentVolumeClaim", name, namespace)
    return (
        claim is not None
        and metadata(claim)["uid"] == uid
        and claim["spec"].get("volumeName") == metadata(volume)["name"]
    )
