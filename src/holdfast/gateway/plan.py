"""The ordered steps of each gateway command.

The order of the list is the order for readers; `needs` of the steps decides what runs when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.gateway import (
    cluster,
    connection,
    image_push,
    node,
    pv_migration,
    registries,
    teardown,
    upgrade,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.gateway.context import GatewayContext
    from holdfast.gateway.upgrade import UpgradeRecord
    from holdfast.workflow import Step


def up_steps(gateway: GatewayContext, *, is_rollback: bool = False) -> list[Step]:
    """Create, resume or repair a gateway: every step probes first and does what is missing.

    Args:
        gateway: the gateway.
        is_rollback: skip the steps that check or read the sources of settings: a taken port or a missing file
            must not keep the old version from running.
    """
    checks: list[Step] = []
    registry_files: list[Step] = []
    if not is_rollback:
        checks = [image_push.CheckLocalImages(gateway), node.CheckPorts(gateway)]
        # The sources are read while the plan is built: a missing CA file or login fails before any change.
        sources = registries.read_registry_sources(gateway.settings.registries)
        registry_files = [registries.WriteRegistries(gateway, sources)]
    check_names = [step.name for step in checks]
    tunnel: list[Step] = [connection.OpenTunnel(gateway)] if gateway.host.tunnel else []
    workloads: list[Step] = []
    if gateway.settings.workloads:
        workloads = _workload_steps(gateway, is_rollback=is_rollback)
    images = gateway.settings.push_images
    return [
        # Checks: up to here nothing is changed.
        node.CheckEngine(gateway),
        node.EnsureImage(gateway),
        *checks,
        # Container, network and volume.
        _run_after(teardown.ReplaceOldGateway(gateway), *check_names),
        node.EnsureNetwork(gateway),
        _run_after(node.EnsureVolume(gateway), *check_names),
        node.CheckDataVersion(gateway),
        node.FinishInterruptedRollback(gateway),
        node.EnsureContainer(gateway),
        *registry_files,
        node.EnableRestart(gateway),
        # The first pull of the node may already need a mirror, a CA or a login.
        _run_after(node.StartContainer(gateway), *(step.name for step in registry_files)),
        *tunnel,
        # The API server, from inside the node and from this machine.
        node.WaitNodeRegistered(gateway),
        # The tunnel determines the address in the kubeconfig.
        _run_after(connection.WriteKubeconfig(gateway), *(step.name for step in tunnel)),
        connection.WaitApiReady(gateway),
        # Before the node is ready: DNS and storage may wait for volumes that are pinned to a stale node.
        pv_migration.RemoveStaleNodes(gateway),
        pv_migration.MigrateVolumes(gateway),
        node.WaitNodeReady(gateway),
        # Workloads and images.
        *workloads,
        *([_run_after(image_push.PushImages(gateway, images), "wait-node-registered")] if images else ()),
        # Verification, then the record on this machine.
        _run_after(
            cluster.WaitHealthy(gateway),
            *(("wait-rollout", "write-client-files") if workloads else ("wait-api-ready",)),
            *(step.name for step in workloads if isinstance(step, cluster.WriteHostSettings)),
        ),
        _run_after(cluster.RunSmokeTest(gateway), "wait-node-ready"),
        _run_after(connection.WriteMetadata(gateway), "wait-healthy", "run-probe"),
    ]


def _workload_steps(gateway: GatewayContext, *, is_rollback: bool) -> list[Step]:
    """The gateway's own workloads; the image is pushed while Kubernetes starts."""
    host_settings: list[Step] = []
    if not is_rollback:
        # Like the registries: a missing CA file or login fails before any change.
        host_settings = [cluster.WriteHostSettings(gateway, cluster.read_host_sources(gateway.settings))]
    return [
        cluster.EnsureNamespace(gateway),
        cluster.ReconcileTls(gateway),
        cluster.WriteClientFiles(gateway),
        node.WaitRuntime(gateway),
        image_push.PushGatewayImage(gateway),
        cluster.ApplyWorkloads(gateway),
        *host_settings,
        _run_after(cluster.WaitRollout(gateway), "wait-node-ready"),
    ]


def _run_after(step: Step, *names: str) -> Step:
    """Add dependencies to a step in this plan."""
    step.needs = tuple(dict.fromkeys((*step.needs, *names)))
    return step


def upgrade_steps(gateway: GatewayContext) -> list[Step]:
    """Upgrade: `up` with another image, after the old node was stopped, copied and parked."""
    steps = _delay_workloads_until_node_ready(up_steps(gateway))
    replace, create = _index_of(teardown.ReplaceOldGateway, steps), _index_of(node.EnsureContainer, steps)
    _run_after(steps[replace], upgrade.CheckUpgrade.name)
    _run_after(steps[create], upgrade.ParkOldContainer.name)
    return [
        *steps[:replace],
        # Nothing is changed before the versions are known to be compatible.
        upgrade.CheckUpgrade(gateway),
        *steps[replace:create],
        # Nothing is stopped before the snapshot is known to fit on the disk.
        upgrade.CheckSpace(gateway),
        # Snapshot and parked container make the rollback possible.
        upgrade.StopOldNode(gateway),
        upgrade.TakeSnapshot(gateway),
        upgrade.ParkOldContainer(gateway),
        # The new container; the waits of `up` decide whether it is healthy.
        *steps[create:],
        upgrade.CommitUpgrade(gateway),
        upgrade.FinishUpgrade(gateway),
    ]


def rollback_steps(gateway: GatewayContext, record: UpgradeRecord) -> list[Step]:
    """Roll an upgrade back: old datastore, old container, then `up` until it is healthy."""
    steps = _delay_workloads_until_node_ready(up_steps(gateway, is_rollback=True))
    first = _index_of(node.EnsureImage, steps)
    _run_after(steps[first], upgrade.RestoreOldContainer.name)
    return [
        *steps[:first],
        upgrade.MarkRollback(gateway, record),
        upgrade.RemoveNewContainer(gateway),
        upgrade.RestoreSnapshot(gateway, record),
        upgrade.RestoreOldContainer(gateway),
        *steps[first:],
        upgrade.FinishRollback(gateway, record),
    ]


def _delay_workloads_until_node_ready(steps: list[Step]) -> list[Step]:
    """Make the steps of the workloads wait for the node.

    Only a failed wait for the node proves that a new version is unhealthy and triggers the rollback; a
    failed push or apply on a node that is still starting must not end the run first.
    """
    for step in steps:
        if isinstance(step, image_push.PushGatewayImage):
            _run_after(step, node.WaitNodeRegistered.name)
        elif isinstance(step, cluster.ApplyWorkloads):
            _run_after(step, node.WaitNodeReady.name)
    return steps


def _index_of(kind: type[Step], steps: Sequence[Step]) -> int:
    return next(index for index, step in enumerate(steps) if isinstance(step, kind))


def push_steps(gateway: GatewayContext, references: Sequence[str]) -> list[Step]:
    """Push local images into a running gateway."""
    return [node.CheckEngine(gateway), _run_after(image_push.PushImages(gateway, references), "check-engine")]


def stop_steps(gateway: GatewayContext) -> list[Step]:
    """Stop the node; nothing is removed."""
    return [
        node.CheckEngine(gateway),
        node.DisableRestart(gateway),
        teardown.StopContainer(gateway),
        *([connection.CloseTunnel(gateway)] if gateway.host.tunnel else []),
    ]


def destroy_steps(gateway: GatewayContext, *, with_data: bool) -> list[Step]:
    """Remove the gateway; its data only if `with_data`."""
    # The record of the host is deleted after the volume: a repeated `destroy` must still find the host.
    after = ("remove-volume",) if with_data else ()
    return [
        *stop_steps(gateway),
        teardown.RemoveContainer(gateway),
        teardown.RemoveNetwork(gateway),
        *([teardown.RemoveVolume(gateway)] if with_data else []),
        teardown.RemoveLocalFiles(gateway),
        *([_run_after(connection.RemoveTunnelState(gateway), *after)] if gateway.host.tunnel else []),
    ]
