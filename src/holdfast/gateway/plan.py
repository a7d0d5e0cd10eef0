"""The ordered plan of each gateway command: the whole way through it, readable in one place.

Not here: what the steps do (steps/) and how they are run (the engine floor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.gateway.registries_sources import read_sources
from holdfast.gateway.steps.container import EnsureContainer
from holdfast.gateway.steps.data import CheckData
from holdfast.gateway.steps.engine import CheckEngine
from holdfast.gateway.steps.health import WaitHealthy
from holdfast.gateway.steps.image import EnsureImage
from holdfast.gateway.steps.kubeconfig import WaitApiReady, WriteKubeconfig
from holdfast.gateway.steps.metadata import WriteMetadata
from holdfast.gateway.steps.namespace import EnsureNamespace
from holdfast.gateway.steps.nodes import RemoveStaleNodes, RepinVolumes
from holdfast.gateway.steps.probe import RunProbe
from holdfast.gateway.steps.push import CheckImages, PushGatewayImage, PushImages
from holdfast.gateway.steps.readiness import WaitNodeReady, WaitNodeRegistered, WaitRuntime
from holdfast.gateway.steps.registries import WriteRegistries
from holdfast.gateway.steps.removal import (
    ForgetGateway,
    RemoveContainer,
    RemoveNetwork,
    RemoveVolume,
    StopContainer,
)
from holdfast.gateway.steps.replacement import ReplaceOld
from holdfast.gateway.steps.restarts import KeepRunning, LetStop
from holdfast.gateway.steps.rollback import (
    FinishRollback,
    MarkRollback,
    RemoveNewContainer,
    RestoreSnapshot,
    TakeBack,
)
from holdfast.gateway.steps.snapshot import CheckSpace, TakeSnapshot
from holdfast.gateway.steps.start import StartContainer
from holdfast.gateway.steps.storage import EnsureNetwork, EnsureVolume
from holdfast.gateway.steps.tls import ReconcileTls, WriteClientFiles
from holdfast.gateway.steps.tunnel import CloseTunnel, ForgetTunnel, OpenTunnel
from holdfast.gateway.steps.upgrade import CheckUpgrade, FinishUpgrade, MarkProved, PutAside, StopOldNode
from holdfast.gateway.steps.workloads import ApplyWorkloads, WaitRollout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine import Step
    from holdfast.gateway.upgrade.record import UpgradeRecord
    from holdfast.gateway.work import Work


def up_steps(work: Work, *, refuses: bool = True) -> list[Step]:
    """Create, resume and repair are one command: every step looks first and does what is missing.

    `refuses=False` leaves out the look at images that are pushed later: the way back needs none of them.
    """
    first: list[Step] = [CheckImages(work)] if refuses else []
    looks = [step.name for step in first]
    return [
        # 1. An engine that can run a node.
        CheckEngine(work),
        # 2. The image; after it nothing can be refused any more that could have been refused before.
        EnsureImage(work),
        *first,
        _after(ReplaceOld(work), *looks),
        # 3. Network and volume.
        EnsureNetwork(work),
        _after(EnsureVolume(work), *looks),
        CheckData(work),
        # 4. The container, as asked for.
        EnsureContainer(work),
        # Read now, written later: a CA file or login that is missing is told before anything is changed.
        WriteRegistries(work, read_sources(work.settings.registries)),
        # 5. Started, and kept running by the engine.
        KeepRunning(work),
        _after(StartContainer(work), "write-registries"),
        *([OpenTunnel(work)] if work.place.tunnel else []),
        # 6. The node and its API, from inside and from here.
        WaitNodeRegistered(work),
        WriteKubeconfig(work),
        WaitApiReady(work),
        # 7. Nodes that are no members go, their volumes stay; DNS and storage may be waiting for that.
        RemoveStaleNodes(work),
        RepinVolumes(work),
        WaitNodeReady(work),
        # 10. What runs in it.
        *(_workload_steps(work) if work.settings.workloads else ()),
        *([PushImages(work, work.settings.push_images)] if work.settings.push_images else ()),
        # 11. Healthy, as a client sees it.
        _after(WaitHealthy(work), "wait-node-ready"),
        # 12. A pod ran a command and wrote its workspace: that is ready.
        _after(RunProbe(work), "wait-node-ready"),
        # 12. Remembered, and the active one from now on.
        _after(WriteMetadata(work), "wait-healthy", "run-probe"),
    ]


def _workload_steps(work: Work) -> list[Step]:
    """8. to 10.: holdfast's own workloads and what they need; the image goes in while Kubernetes starts."""
    return [
        EnsureNamespace(work),
        ReconcileTls(work),
        WriteClientFiles(work),
        WaitRuntime(work),
        PushGatewayImage(work),
        _after(ApplyWorkloads(work), "wait-node-ready"),
        WaitRollout(work),
    ]


def _after(step: Step, *names: str) -> Step:
    """The same step, with more to come before it in this plan."""
    step.needs = tuple(dict.fromkeys((*step.needs, *names)))
    return step


def upgrade_steps(work: Work) -> list[Step]:
    """`up` with another image, and in its middle: the old node stopped, copied and put aside first."""
    way_up = _judged_first(up_steps(work))
    first, at = _place_of(ReplaceOld, way_up), _place_of(EnsureContainer, way_up)
    _after(way_up[first], CheckUpgrade.name)
    _after(way_up[at], PutAside.name)
    return [
        *way_up[:first],
        # 2a. Nothing is changed before the versions are known to fit.
        CheckUpgrade(work),
        *way_up[first:at],
        # 4a. Nothing is stopped before the copies are known to fit.
        CheckSpace(work),
        # 4b. What is copied and put aside is the way back.
        StopOldNode(work),
        TakeSnapshot(work),
        PutAside(work),
        # 4-12. The new container; all that `up` waits for is the health gate.
        *way_up[at:],
        MarkProved(work),
        FinishUpgrade(work),
    ]


def rollback_steps(work: Work, record: UpgradeRecord) -> list[Step]:
    """The way back from an upgrade: old datastore, old container, and then `up` until it is healthy."""
    way_up = _judged_first(up_steps(work, refuses=False))
    at = _place_of(EnsureImage, way_up)
    _after(way_up[at], TakeBack.name)
    return [
        *way_up[:at],
        MarkRollback(work, record),
        RemoveNewContainer(work),
        RestoreSnapshot(work, record),
        TakeBack(work),
        *way_up[at:],
        FinishRollback(work, record),
    ]


def _judged_first(way_up: list[Step]) -> list[Step]:
    """The image waits for the node: one that never comes up is judged by its waits, not by a cut push."""
    for step in way_up:
        if isinstance(step, PushGatewayImage):
            _after(step, WaitNodeRegistered.name)
    return way_up


def _place_of(kind: type[Step], steps: Sequence[Step]) -> int:
    return next(index for index, step in enumerate(steps) if isinstance(step, kind))


def push_steps(work: Work, references: Sequence[str]) -> list[Step]:
    """Put local images into a gateway that runs."""
    return [CheckEngine(work), PushImages(work, references, needs=("check-engine",))]


def stop_steps(work: Work) -> list[Step]:
    """Stop the node in order; everything stays where it is."""
    return [
        CheckEngine(work),
        LetStop(work),
        StopContainer(work),
        *([CloseTunnel(work)] if work.place.tunnel else []),
    ]


def destroy_steps(work: Work, *, with_data: bool) -> list[Step]:
    """Take the gateway away; its data only when it was named."""
    data = ("remove-volume",) if with_data else ()
    return [
        CheckEngine(work),
        LetStop(work),
        StopContainer(work),
        *([CloseTunnel(work)] if work.place.tunnel else []),
        RemoveContainer(work),
        RemoveNetwork(work),
        *([RemoveVolume(work)] if with_data else []),
        ForgetGateway(work),
        *([ForgetTunnel(work, after=data)] if work.place.tunnel else []),
    ]
