"""REST models of the resources that sandboxes use. A figure that is not known is null."""

from __future__ import annotations

import msgspec

from holdfast.api.rest_models import Phase  # noqa: TC001 (msgspec evaluates the annotations)


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of a node: what all its processes use, and how much there is.

    Attributes:
        name: name of the node.
        cpu: used CPU cores.
        cpu_capacity: CPU cores.
        memory: used bytes that the kernel cannot reclaim.
        memory_capacity: bytes of memory.
        disk: used bytes of the disk with workspaces, images and logs.
        disk_capacity: bytes of that disk.
    """

    name: str
    cpu: float | None = None
    cpu_capacity: float | None = None
    memory: int | None = None
    memory_capacity: int | None = None
    disk: int | None = None
    disk_capacity: int | None = None


class SandboxUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of a sandbox; without a pod, it uses neither CPU nor memory.

    Attributes:
        name: name of the sandbox.
        phase: summary of its state.
        cpu: used CPU cores.
        cpu_limit: limit of its CPU cores.
        memory: used bytes that the kernel cannot reclaim.
        memory_limit: limit of its memory in bytes.
        disk: bytes that its container has written outside the workspace, with its logs.
        workspace: used bytes of the workspace; null if the storage class does not report it.
        workspace_size: requested size of the workspace in bytes.
        created: creation time.
    """

    name: str
    phase: Phase
    cpu: float | None = None
    cpu_limit: float | None = None
    memory: int | None = None
    memory_limit: int | None = None
    disk: int | None = None
    workspace: int | None = None
    workspace_size: int | None = None
    created: str | None = None


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of all sandboxes of a gateway and of its node.

    Attributes:
        sandboxes: the sandboxes, sorted by name.
        node: the node; null if its kubelet does not answer.
        notes: why figures are missing, one sentence each.
    """

    sandboxes: list[SandboxUsage]
    node: NodeUsage | None = None
    notes: list[str] = []
