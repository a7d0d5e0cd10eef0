"""The ordered plan of each gateway command: the whole way through it, readable in one place.

Not here: what the steps do (steps/) and how they are run (the engine floor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.gateway.steps.container import EnsureContainer, StartContainer
from holdfast.gateway.steps.engine import CheckEngine
from holdfast.gateway.steps.health import WaitHealthy
from holdfast.gateway.steps.image import EnsureImage
from holdfast.gateway.steps.kubeconfig import WaitApiReady, WriteKubeconfig
from holdfast.gateway.steps.metadata import WriteMetadata
from holdfast.gateway.steps.namespace import EnsureNamespace
from holdfast.gateway.steps.nodes import RemoveStaleNodes, RepinVolumes
from holdfast.gateway.steps.probe import RunProbe
from holdfast.gateway.steps.push import PushImages
from holdfast.gateway.steps.readiness import WaitNodeReady, WaitNodeRegistered
from holdfast.gateway.steps.removal import (
    ForgetGateway,
    RemoveContainer,
    RemoveNetwork,
    RemoveVolume,
    StopContainer,
)
from holdfast.gateway.steps.storage import EnsureNetwork, EnsureVolume
from holdfast.gateway.steps.tls import ReconcileTls, WriteClientFiles
from holdfast.gateway.steps.tunnel import CloseTunnel, ForgetTunnel, OpenTunnel
from holdfast.gateway.steps.workloads import ApplyWorkloads, PushGatewayImages, WaitRollout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine import Step
    from holdfast.gateway.work import Work


def up_steps(work: Work) -> list[Step]:
    """Create, resume and repair are one command: every step looks first and does what is missing."""
    return [
        CheckEngine(work),
        EnsureImage(work),
        EnsureNetwork(work),
        EnsureVolume(work),
        EnsureContainer(work),
        StartContainer(work),
        *([OpenTunnel(work)] if work.place.tunnel else []),
        WaitNodeRegistered(work),
        WriteKubeconfig(work),
        WaitApiReady(work),
        # 7. Nodes that are no members go, their volumes stay; DNS and storage may be waiting for that.
        RemoveStaleNodes(work),
        RepinVolumes(work),
        WaitNodeReady(work),
        *(_workload_steps(work) if work.settings.workloads else _push_steps(work)),
        _after(WaitHealthy(work), "wait-node-ready"),
        _after(RunProbe(work), "wait-node-ready"),
        _after(WriteMetadata(work), "wait-healthy", "run-probe"),
    ]


def _workload_steps(work: Work) -> list[Step]:
    """8. to 10.: holdfast's own workloads, and what they need; images go in while certificates are made."""
    return [
        _after(EnsureNamespace(work), "wait-node-ready"),
        ReconcileTls(work),
        WriteClientFiles(work),
        PushGatewayImages(work),
        ApplyWorkloads(work),
        WaitRollout(work),
    ]


def _push_steps(work: Work) -> list[Step]:
    return [PushImages(work, work.settings.push_images)] if work.settings.push_images else []


def _after(step: Step, *names: str) -> Step:
    """The same step, with more to come before it in this plan."""
    step.needs = tuple(dict.fromkeys((*step.needs, *names)))
    return step


def push_steps(work: Work, references: Sequence[str]) -> list[Step]:
    """Put local images into a gateway that runs."""
    return [CheckEngine(work), PushImages(work, references, needs=("check-engine",))]


def stop_steps(work: Work) -> list[Step]:
    """Stop the node in order; everything stays where it is."""
    return [CheckEngine(work), StopContainer(work), *([CloseTunnel(work)] if work.place.tunnel else [])]


def destroy_steps(work: Work, *, with_data: bool) -> list[Step]:
    """Take the gateway away; its data only when it was named."""
    data = ("remove-volume",) if with_data else ()
    return [
        CheckEngine(work),
        StopContainer(work),
        *([CloseTunnel(work)] if work.place.tunnel else []),
        RemoveContainer(work),
        RemoveNetwork(work),
        *([RemoveVolume(work)] if with_data else []),
        ForgetGateway(work),
        *([ForgetTunnel(work, after=data)] if work.place.tunnel else []),
    ]
