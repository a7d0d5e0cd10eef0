"""REST models of the update of a sandbox. An omitted field is not changed; null restores its default."""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypedDict

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast.api.rest_models import (
    EnvVarName,
    FailedPodPolicy,
    Image,
    LabelKey,
    LabelValue,
    NulFreeText,
    Quantity,
    SandboxView,
    Seconds,
)

_MAX_ENTRIES = 256

EnvVarChanges: TypeAlias = Annotated[dict[EnvVarName, NulFreeText | None], Meta(max_length=_MAX_ENTRIES)]
LabelChanges: TypeAlias = Annotated[dict[LabelKey, LabelValue | None], Meta(max_length=_MAX_ENTRIES)]


class SandboxUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a sandbox. Sending the same update twice has the effect of one.

    Attributes:
        image: container image; null for holdfast's sandbox image.
        cpu: CPU limit; null for the default.
        memory: memory limit; null for the default.
        env: environment variables to set; null removes one.
        labels: labels to set; null removes one.
        idle_suspend_after: seconds without use before the sandbox is suspended; null for never.
        shutdown_after: seconds from now when the sandbox expires; null for never.
        failed_pods: whether a failed pod is recreated or kept.
    """

    image: Image | UnsetType | None = UNSET
    cpu: Quantity | UnsetType | None = UNSET
    memory: Quantity | UnsetType | None = UNSET
    env: EnvVarChanges = {}
    labels: LabelChanges = {}
    idle_suspend_after: Seconds | UnsetType | None = UNSET
    shutdown_after: Seconds | UnsetType | None = UNSET
    failed_pods: FailedPodPolicy | UnsetType = UNSET


class SandboxUpdateOptions(TypedDict, total=False):
    """Options of `update`: the fields of `SandboxUpdate`."""

    image: str | None
    cpu: str | None
    memory: str | None
    env: dict[str, str | None]
    labels: dict[str, str | None]
    idle_suspend_after: int | None
    shutdown_after: int | None
    failed_pods: FailedPodPolicy


class SandboxUpdateResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an update.

    Attributes:
        sandbox: the state of the sandbox.
        applied: updated fields that are in effect.
        pending: updated fields that take effect with the next pod: suspend and resume the sandbox.
        is_suspended: whether the sandbox is suspended, so that `resume` alone applies the pending fields.
        notes: why fields are pending, one sentence each.
    """

    sandbox: SandboxView
    applied: list[str] = []
    pending: list[str] = []
    is_suspended: bool = False
    notes: list[str] = []
