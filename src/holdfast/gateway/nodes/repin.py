"""Pins a volume to another node without losing it or its claim; stopped anywhere, it goes on from there.

A volume's node affinity cannot be changed, so the object is replaced by one for the same path and claim:

    kept (Retain) → written down → deleted → released → made anew → struck out → bound → policy restored

What comes next is told from the cluster alone (`next_move`). The claim is never touched: while its volume is
away it counts as Lost, and the return of a volume that names its uid makes it Bound again. The cluster looks
at lost claims every 15 seconds only, so all volumes are made anew before the first claim is waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from holdfast.errors import ClusterRefusedError, ObjectConflictError, TemporaryError, WaitFailedError
from holdfast.gateway.nodes.intents import NAME, NAMESPACE, Intent, strike_intent, write_intent
from holdfast.gateway.nodes.pinning import (
    PROTECTION,
    RESTORE_POLICY,
    RETAIN,
    claim_of,
    is_stranded,
    metadata,
    notes_of,
    repinned,
    stands_in_for,
)
from holdfast.gateway.nodes.survey import Survey, claim_is_there
from holdfast.kube.conditions import Sight, deleted

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.gateway.nodes.cluster import NodeCluster
    from holdfast.kube.conditions import Until

Move: TypeAlias = Literal["keep", "write", "delete", "release", "make", "strike", "give-up", "none"]

_MOST_MOVES = 20
_NOWHERE: dict[str, Any] = {"spec": {}}


class Repinned(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: volumes that are where they belong again, and those that stay, with the reason."""

    volumes: tuple[str, ...] = ()
    left: dict[str, str] = {}

    def summary(self) -> str:
        """One line for the note of the step."""
        parts = [f"pinned anew: {', '.join(self.volumes)}"] if self.volumes else []
        parts += [f"{name} left as it is: {why}" for name, why in self.left.items()]
        return "; ".join(parts) or "none"


def next_move(written: dict[str, Any] | None, live: dict[str, Any] | None) -> Move:
    """What comes next, given the volume as it is written down and what is there under its name.

    A volume is deleted only while it is written down and set to be kept; it is made only from what is
    written down; and that is struck out only when the new one is there.
    """
    if live is None:
        return "none" if written is None else "make"
    going = bool(metadata(live).get("deletionTimestamp"))
    if written is None and going:
        return "none"
    if written is not None and metadata(live)["uid"] != metadata(written)["uid"]:
        return "strike" if stands_in_for(live, written) else "give-up"
    if live["spec"]["persistentVolumeReclaimPolicy"] != RETAIN:
        return "keep"
    if written is None:
        return "write"
    return "release" if going else "delete"


def volume_bound(obj: dict[str, Any] | None) -> Sight:
    """A volume is bound to its claim; one whose claim has gone will never be."""
    phase = ((obj or {}).get("status") or {}).get("phase") or "Pending"
    if obj is None or phase in ("Released", "Failed"):
        return Sight(failed="its claim is gone" if obj is not None else "it was removed")
    return Sight(done=phase == "Bound", seen=f"phase {phase}")


def claim_bound(uid: str) -> Until:
    """This very claim is bound: it counts as Lost until the cluster looks at it again."""

    def look(obj: dict[str, Any] | None) -> Sight:
        if obj is None or metadata(obj)["uid"] != uid:
            return Sight(failed="it was removed")
        phase = (obj.get("status") or {}).get("phase") or "Pending"
        return Sight(done=phase == "Bound", seen=f"phase {phase}")

    return look


class Repinner:
    """Takes the volumes of a survey to the node with this hostname; `told` hears of each before it begins.

    `seconds` is how long others may take: the controller to bind a claim (15 seconds where the machine is
    quick), a finalizer to be done.
    """

    def __init__(
        self,
        cluster: NodeCluster,
        hostname: str,
        told: Callable[[str], None] = lambda _: None,
        *,
        seconds: float,
    ) -> None:
        self._cluster = cluster
        self._hostname = hostname
        self._told = told
        self._seconds = seconds

    def run(self, found: Survey) -> Repinned:
        """Finish what was begun, pin anew what is stranded; what the cluster refuses is named and left."""
        left = dict(found.left)
        for name in found.unused:
            strike_intent(self._cluster, name)
        for name in found.work:
            self._told(name)
            self._try(name, left, lambda name: self._repin(name, found))
        for name in found.work:
            if name not in left:
                self._try(name, left, self._restore_policy)
        return Repinned(volumes=tuple(name for name in found.work if name not in left), left=left)

    @staticmethod
    def _try(name: str, left: dict[str, str], part: Callable[[str], str]) -> None:
        """Do one part for one volume; what kept it from being done is written down."""
        try:
            why = part(name)
        except (ClusterRefusedError, ObjectConflictError) as error:
            why = error.message
        if why:
            left[name] = why

    def _repin(self, name: str, found: Survey) -> str:
        """Make one volume anew; says why it was left on the way."""
        why = ""
        if name not in found.to_restore:
            why = self._replace(name, found.intents.get(name))
        if name in found.intents and not why and is_stranded(self._get(name) or _NOWHERE, found.hosts):
            # It was made anew for a node that has gone since: the same way once more.
            why = self._replace(name, None)
        return why

    def _replace(self, name: str, intent: Intent | None) -> str:
        for _ in range(_MOST_MOVES):
            live = self._get(name)
            move = next_move(None if intent is None else intent.volume, live)
            if move == "write" and live is not None:
                intent = write_intent(self._cluster, live)
            elif move == "strike":
                strike_intent(self._cluster, name)
                return ""
            elif move == "give-up":
                return f"another volume has its name; what it was is in ConfigMap {NAMESPACE}/{NAME}"
            elif move == "make" and intent is not None:
                self._make(name, intent)
            elif move == "none" or live is None:
                return "somebody else has removed it"
            else:
                self._change(move, live)
        raise TemporaryError(f"volume {name} is being changed by somebody else all the time")

    def _change(self, move: Move, live: dict[str, Any]) -> None:
        name, uid = metadata(live)["name"], metadata(live)["uid"]
        if move == "keep":
            kept = {"annotations": {RESTORE_POLICY: live["spec"]["persistentVolumeReclaimPolicy"]}}
            self._patch(live, kept, {"persistentVolumeReclaimPolicy": RETAIN})
        elif move == "delete":
            self._cluster.remove_volume(name, uid)
        else:
            others = [each for each in metadata(live).get("finalizers") or () if each != PROTECTION]
            self._patch(live, {"finalizers": others}, {})
            if others:
                self._cluster.wait("PersistentVolume", name, deleted(uid), deadline=self._seconds)

    def _make(self, name: str, intent: Intent) -> None:
        try:
            self._cluster.create(repinned(intent.volume, self._hostname))
        except (ClusterRefusedError, ObjectConflictError) as error:
            # Unlike a refusal before this moment it leaves a claim without its volume: not a mere note.
            raise TemporaryError(
                f"volume {name} was taken away to be pinned anew and cannot be made again: {error.message}",
                hint=f"Its files are untouched. The same command tries again; its manifest is in ConfigMap "
                f"{NAMESPACE}/{NAME}.",
            ) from error

    def _restore_policy(self, name: str) -> str:
        """Give a volume its reclaim policy back once its claim is bound: not before, lest it be reclaimed."""
        live = self._get(name)
        policy = notes_of(live or {}).get(RESTORE_POLICY)
        if live is None or policy is None:
            return ""
        bound = self._is_bound_again(live)
        changed = {"persistentVolumeReclaimPolicy": policy if bound else RETAIN}
        self._patch(live, {"annotations": {RESTORE_POLICY: None}}, changed)
        return "" if bound else "its claim is gone; its files are kept"

    def _is_bound_again(self, live: dict[str, Any]) -> bool:
        if not claim_is_there(self._cluster, live):
            return False
        try:
            self._cluster.wait(
                "PersistentVolume", metadata(live)["name"], volume_bound, deadline=self._seconds
            )
            namespace, name, uid = claim_of(live)
            self._cluster.wait(
                "PersistentVolumeClaim", name, claim_bound(uid), namespace=namespace, deadline=self._seconds
            )
        except WaitFailedError:
            return False
        return True

    def _get(self, name: str) -> dict[str, Any] | None:
        return self._cluster.get("PersistentVolume", name)

    def _patch(self, live: dict[str, Any], about: dict[str, Any], spec: dict[str, Any]) -> None:
        """Change this very volume; its uid in the patch keeps it from meaning another one."""
        body = {"metadata": {**about, "uid": metadata(live)["uid"]}, **({"spec": spec} if spec else {})}
        self._cluster.patch_volume(metadata(live)["name"], body)
