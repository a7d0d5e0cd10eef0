"""The ordered steps of each gateway command.

The order of the list is the order for readers; `needs` of the steps decides what runs when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.gateway.cluster import (
    ApplyWorkloads,
    EnsureNamespace,
    ReconcileTls,
    RunSmokeTest,
    WaitHealthy,
    WaitRollout,
    WriteClientFiles,
)
from holdfast.gateway.connection import (
    CloseTunnel,
    OpenTunnel,
    RemoveTunnelState,
    WaitApiReady,
    WriteKubeconfig,
    WriteMetadata,
)
from holdfast.gateway.image_push import CheckLocalImages, PushGatewayImage, PushImages
from holdfast.gateway.node import (
    CheckDataVersion,
    CheckEngine,
    DisableRestart,
    EnableRestart,
    EnsureContainer,
    EnsureImage,
    EnsureNetwork,
    EnsureVolume,
    StartContainer,
    WaitNodeReady,
    WaitNodeRegistered,
    WaitRuntime,
)
from holdfast.gateway.pv_migration import MigrateVolumes, RemoveStaleNodes
from holdfast.gateway.registries import WriteRegistries, read_registry_sources
from holdfast.gateway.teardown import (
    RemoveContainer,
    RemoveLocalFiles,
    RemoveNetwork,
    RemoveVolume,
    ReplaceOldGateway,
    StopContainer,
)
from holdfast.gateway.upgrade import (
    CheckSpace,
    CheckUpgrade,
    CommitUpgrade,
    FinishRollback,
    FinishUpgrade,
    MarkRollback,
    ParkOldContainer,
    RemoveNewContainer,
    RestoreOldContainer,
    RestoreSnapshot,
    StopOldNode,
    TakeSnapshot,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.gateway.context import GatewayContext
    from holdfast.gateway.upgrade import UpgradeRecord
    from holdfast.workflow import Step


def up_steps(gateway: GatewayContext, *, check_images: bool = True) -> list[Step]:
    """Create, resume or repair a gateway: every step probes first and does what is missing.

    Args:
        gateway: the gateway.
        check_images: check first that the images to push exist; a rollback does not need them.
    """
    checks: list[Step] = [CheckLocalImages(gateway)] if check_images else []
    check_names = [step.name for step in checks]
    return [
        # Checks: up to here nothing is changed.
        CheckEngine(gateway),
        EnsureImage(gateway),
        *checks,
        # Container, network and volume.
        _run_after(ReplaceOldGateway(gateway), *check_names),
        EnsureNetwork(gateway),
        _run_after(EnsureVolume(gateway), *check_names),
        CheckDataVersion(gateway),
        EnsureContainer(gateway),
        # The sources are read while the plan is built: a missing CA file or login fails before any change.
        WriteRegistries(gateway, read_registry_sources(gateway.settings.registries)),
        EnableRestart(gateway),
        _run_after(StartContainer(gateway), "write-registries"),
        *([OpenTunnel(gateway)] if gateway.host.tunnel else []),
        # The API server, from inside the node and from this machine.
        WaitNodeRegistered(gateway),
        WriteKubeconfig(gateway),
        WaitApiReady(gateway),
        # Before the node is ready: DNS and storage may wait for volumes that are pinned to a stale node.
        RemoveStaleNodes(gateway),
        MigrateVolumes(gateway),
        WaitNodeReady(gateway),
        # Workloads and images.
        *(_workload_steps(gateway) if gateway.settings.workloads else ()),
        *([PushImages(gateway, gateway.settings.push_images)] if gateway.settings.push_images else ()),
        # Verification, then the record on this machine.
        _run_after(WaitHealthy(gateway), "wait-node-ready"),
        _run_after(RunSmokeTest(gateway), "wait-node-ready"),
        _run_after(WriteMetadata(gateway), "wait-healthy", "run-probe"),
    ]


def _workload_steps(gateway: GatewayContext) -> list[Step]:
    """The gateway's own workloads; the image is pushed while Kubernetes starts."""
    return [
        EnsureNamespace(gateway),
        ReconcileTls(gateway),
        WriteClientFiles(gateway),
        WaitRuntime(gateway),
        PushGatewayImage(gateway),
        ApplyWorkloads(gateway),
        _run_after(WaitRollout(gateway), "wait-node-ready"),
    ]


def _run_after(step: Step, *names: str) -> Step:
    """Add dependencies to a step in this plan."""
    step.needs = tuple(dict.fromkeys((*step.needs, *names)))
    return step


def upgrade_steps(gateway: GatewayContext) -> list[Step]:
    """Upgrade: `up` with another image, after the old node was stopped, copied and parked."""
    steps = _judge_node_first(up_steps(gateway))
    replace, create = _index_of(ReplaceOldGateway, steps), _index_of(EnsureContainer, steps)
    _run_after(steps[replace], CheckUpgrade.name)
    _run_after(steps[create], ParkOldContainer.name)
    return [
        *steps[:replace],
        # Nothing is changed before the versions are known to be compatible.
        CheckUpgrade(gateway),
        *steps[replace:create],
        # Nothing is stopped before the snapshot is known to fit on the disk.
        CheckSpace(gateway),
        # Snapshot and parked container make the rollback possible.
        StopOldNode(gateway),
        TakeSnapshot(gateway),
        ParkOldContainer(gateway),
        # The new container; the waits of `up` decide whether it is healthy.
        *steps[create:],
        CommitUpgrade(gateway),
        FinishUpgrade(gateway),
    ]


def rollback_steps(gateway: GatewayContext, record: UpgradeRecord) -> list[Step]:
    """Roll an upgrade back: old datastore, old container, then `up` until it is healthy."""
    steps = _judge_node_first(up_steps(gateway, check_images=False))
    first = _index_of(EnsureImage, steps)
    _run_after(steps[first], RestoreOldContainer.name)
    return [
        *steps[:first],
        MarkRollback(gateway, record),
        RemoveNewContainer(gateway),
        RestoreSnapshot(gateway, record),
        RestoreOldContainer(gateway),
        *steps[first:],
        FinishRollback(gateway, record),
    ]


def _judge_node_first(steps: list[Step]) -> list[Step]:
    """Delay the workloads until the node is up.

    Only a failed wait for the node proves that a new version is unhealthy and triggers the rollback; a
    failed push or apply on a node that is still starting must not end the run first.
    """
    for step in steps:
        if isinstance(step, PushGatewayImage):
            _run_after(step, WaitNodeRegistered.name)
        elif isinstance(step, ApplyWorkloads):
            _run_after(step, WaitNodeReady.name)
    return steps


def _index_of(kind: type[Step], steps: Sequence[Step]) -> int:
    return next(index for index, step in enumerate(steps) if isinstance(step, kind))


def push_steps(gateway: GatewayContext, references: Sequence[str]) -> list[Step]:
    """Push local images into a running gateway."""
    return [CheckEngine(gateway), PushImages(gateway, references, needs=("check-engine",))]


def stop_steps(gateway: GatewayContext) -> list[Step]:
    """Stop the node; nothing is removed."""
    return [
        CheckEngine(gateway),
        DisableRestart(gateway),
        StopContainer(gateway),
        *([CloseTunnel(gateway)] if gateway.host.tunnel else []),
    ]


def destroy_steps(gateway: GatewayContext, *, with_data: bool) -> list[Step]:
    """Remove the gateway; its data only if `with_data`."""
    after = ("remove-volume",) if with_data else ()
    return [
        *stop_steps(gateway),
        RemoveContainer(gateway),
        RemoveNetwork(gateway),
        *([RemoveVolume(gateway)] if with_data else []),
        RemoveLocalFiles(gateway),
        *([RemoveTunnelState(gateway, after=after)] if gateway.host.tunnel else []),
    ]
