"""REST models of templates and warm pools."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, TypeAlias, TypedDict

import msgspec
from msgspec import Meta

from holdfast.api.rest_models import (
    MAX_NAME_LENGTH,
    NAME_PATTERN,
    Condition,
    Name,
    NetworkPolicy,
    Phase,
    PodOptions,
    PodRequest,
    Workspace,
)

# The name of a waiting sandbox is that of its pool, a dash and six characters.
_MAX_POOL_NAME_LENGTH = MAX_NAME_LENGTH - 7
MAX_POOL_SIZE = 1000

PoolName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=_MAX_POOL_NAME_LENGTH, pattern=NAME_PATTERN)
]
PoolSize: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_POOL_SIZE)]
UpdateStrategy: TypeAlias = Literal["OnReplenish", "Recreate"]


class TemplateRequest(PodRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A template to create. Sending the same request twice creates one template.

    Attributes:
        name: name of the template, unique on the gateway.
        image: container image; holdfast's sandbox image if omitted.
        command: entrypoint; the image's own if omitted.
        args: arguments of the entrypoint.
        env: environment variables.
        cpu: CPU limit, such as `500m` or `2`.
        memory: memory limit, such as `2Gi`; at least `16Mi`.
        workspace: a `Workspace`, `true` for the default one, or `false` for none.
        labels: labels of the template and of the pods of its sandboxes.
        network_policy: allowed connections of its sandboxes; not restricted if omitted.
    """

    network_policy: NetworkPolicy | None = None


class TemplateOptions(PodOptions, total=False):
    """Options of `create`: the fields of `TemplateRequest` except name and image; None means the default."""


class TemplateView(msgspec.Struct, frozen=True, kw_only=True):
    """State of a template.

    Attributes:
        name: name of the template.
        image: container image.
        command: entrypoint; the image's own if omitted.
        args: arguments of the entrypoint.
        env: names of the environment variables, without those that holdfast sets.
        cpu: CPU limit.
        memory: memory limit.
        workspace: workspace of its sandboxes; None if they have none.
        labels: labels of the pods of its sandboxes.
        network_policy: allowed connections of its sandboxes; not restricted if omitted.
        pools: warm pools that use the template.
        created: creation time.
    """

    name: str
    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[str] = []
    cpu: str | None = None
    memory: str | None = None
    workspace: Workspace | None = None
    labels: dict[str, str] = {}
    network_policy: NetworkPolicy | None = None
    pools: list[str] = []
    created: str | None = None


class TemplateList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of templates; `next` is the `continue` parameter of the next page."""

    items: list[TemplateView]
    next: str | None = None


class TemplateDeletionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the deletion of a template.

    Attributes:
        deleted: whether the template existed.
        pools: warm pools that still use it; they keep their sandboxes and create no more.
    """

    deleted: bool
    pools: list[str] = []


class PoolRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A warm pool to create. Sending the same request twice creates one pool.

    Attributes:
        name: name of the pool, unique on the gateway.
        template: template of its sandboxes.
        size: number of sandboxes that wait; 0 creates each sandbox on demand.
        update_strategy: whether waiting sandboxes are replaced when the template changes: `Recreate` replaces
            them immediately, `OnReplenish` keeps them until they are used.
    """

    name: PoolName
    template: Name
    size: PoolSize = 1
    update_strategy: UpdateStrategy = "OnReplenish"


class PoolOptions(TypedDict, total=False):
    """Options of `create`: the fields of `PoolRequest` except name and template; None means the default."""

    size: int | None
    update_strategy: UpdateStrategy | None


class PoolChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a pool: `size` is the new number of sandboxes that wait."""

    size: PoolSize


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """State of a warm pool.

    Attributes:
        name: name of the pool.
        template: template of its sandboxes.
        image: container image of the template; None if the template does not exist.
        phase: `Ready` if the desired number of sandboxes is ready, `Pending`, or `Deleting`.
        reason: why the pool is pending, if that is known.
        message: the same as a sentence.
        size: desired number of sandboxes that wait.
        ready: number of sandboxes that wait and are ready.
        available: number of sandboxes that wait, ready or not; new sandboxes take ready ones first.
        update_strategy: whether waiting sandboxes are replaced when the template changes.
        conditions: conditions of the SandboxWarmPool object.
        sandboxes: sandboxes that were created from the pool; only in the response to `get`.
        created: creation time.
    """

    name: str
    template: str
    image: str | None = None
    phase: Phase
    reason: str = ""
    message: str = ""
    size: int
    ready: int = 0
    available: int = 0
    update_strategy: UpdateStrategy = "OnReplenish"
    conditions: list[Condition] = []
    sandboxes: list[str] = []
    created: str | None = None


class PoolList(msgspec.Struct, frozen=True, kw_only=True):
    """One page of pools; `next` is the `continue` parameter of the next page."""

    items: list[PoolView]
    next: str | None = None


class PoolDeletionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the deletion of a pool; the sandboxes that wait in it are deleted.

    Attributes:
        deleted: whether the pool existed.
        sandboxes: sandboxes that were created from the pool; they stay, with their data.
    """

    deleted: bool
    sandboxes: list[str] = []


class PoolEventType(StrEnum):
    """Event names of the event stream of one pool.

    `pool` carries the current PoolView. `deleted` carries the last one and ends the stream. `problem` carries
    a Problem and ends the stream; the client may open it again.
    """

    STATE = "pool"
    DELETED = "deleted"
    FAILED = "problem"
