"""All settings of a gateway in one model: what there is, its default, its bounds, and what it is for.

A setting's key is its path here (`timeouts.api`); its variable is that in capitals (`HOLDFAST_TIMEOUTS_API`).
Not here: where values come from (settings_sources.py) and how a text becomes one (settings_values.py).
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Meta

from holdfast.gateway.spec import LOOPBACK

Kind: TypeAlias = Literal[
    "image", "port", "listen", "names", "images", "seconds", "count", "mirrors", "hosts", "ca-files",
    "logins", "size", "class", "days", "share", "namespace", "switch", "gpus",
]  # fmt: skip
"""How a raw value is read and which words say what is allowed (settings_values.py)."""

PREFIX = "HOLDFAST_"
_LONGEST_WAIT = 24 * 3600.0
_MOST_ATTEMPTS = 100


def _is(kind: Kind, description: str) -> Meta:
    return Meta(description=description, extra={"kind": kind})


def _seconds(description: str) -> Meta:
    return Meta(ge=1, le=_LONGEST_WAIT, description=description, extra={"kind": "seconds"})


def _attempts(description: str) -> Meta:
    return Meta(ge=1, le=_MOST_ATTEMPTS, description=description, extra={"kind": "count"})


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long each wait may take, in seconds; a wait that is over is an error."""

    api: Annotated[float, _seconds("until the API of a node that is there answers from here")] = 60.0
    node_ready: Annotated[float, _seconds("until the node, its DNS and its storage are ready")] = 120.0
    namespace: Annotated[float, _seconds("until the namespace is Active")] = 180.0
    push: Annotated[float, _seconds("until images that are pushed are in the node")] = 3600.0
    rollout: Annotated[float, _seconds("until a rollout is complete")] = 180.0
    health: Annotated[float, _seconds("until the gateway is healthy")] = 360.0
    probe: Annotated[float, _seconds("until the probe sandbox has written its workspace")] = 120.0
    stop: Annotated[float, _seconds("for a node to stop by itself before it is killed")] = 30.0
    engine: Annotated[float, _seconds("for the container engine to answer a call")] = 60.0
    image: Annotated[float, _seconds("for an engine to be silent while it saves or loads an image")] = 900.0
    runtime: Annotated[
        float, _seconds("for the node's runtime to answer about its images, and to show a new one")
    ] = 60.0
    objects: Annotated[
        float, _seconds("until the cluster has bound or removed one volume, claim or secret")
    ] = 60.0
    snapshot: Annotated[float, _seconds("until the datastore is copied, or put back")] = 3600.0
    ssh: Annotated[float, _seconds("until another host is reached by ssh; each part of it has its share")] = (
        45.0
    )
    look: Annotated[float, _seconds("until it can be told whether a step is done")] = 30.0
    request: Annotated[float, _seconds("for the cluster to answer one request of a step")] = 30.0
    glance: Annotated[float, _seconds("for an API to answer a quick look at it, as `status` takes one")] = 5.0
    doctor: Annotated[float, _seconds("until all checks of `doctor` have an answer")] = 45.0


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """How often a call is made at most when it fails in a way that may pass; 1 means no second try."""

    engine_call: Annotated[int, _attempts("a call to the container engine")] = 4
    start: Annotated[int, _attempts("starting the container while its port is taken")] = 5
    pull: Annotated[int, _attempts("pulling the node image")] = 4
    push: Annotated[int, _attempts("pushing images into the node")] = 4
    apply: Annotated[int, _attempts("writing one object to the cluster, each TLS secret by itself")] = 5
    stale_nodes: Annotated[int, _attempts("removing nodes that are no members any more")] = 4


class Registries(msgspec.Struct, frozen=True, kw_only=True):
    """Where the node gets images from, by registry host; logins are references, never the login itself."""

    mirrors: Annotated[
        dict[str, tuple[str, ...]], _is("mirrors", "servers to ask before the registry itself, in order")
    ] = {}
    insecure: Annotated[tuple[str, ...], _is("hosts", "registries whose certificates are not verified")] = ()
    ca_files: Annotated[dict[str, str], _is("ca-files", "the CA file that a registry is verified with")] = {}
    credentials: Annotated[
        dict[str, str], _is("logins", "where a registry's login is: a file or a variable with user:password")
    ] = {}


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox's workspace is like unless its maker says otherwise."""

    size: Annotated[str, _is("size", "how much is asked for; local-path storage does not enforce it")] = "2Gi"
    storage_class: Annotated[str, _is("class", "the storage class; empty: the cluster's default")] = ""


class Certificates(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's own certificates."""

    life_days: Annotated[
        int, Meta(ge=1, le=3650, description="how many days new ones are valid", extra={"kind": "days"})
    ] = 365
    renew_below: Annotated[
        float,
        Meta(
            ge=0,
            lt=1,
            description="renewed when less than this share of life is left",
            extra={"kind": "share"},
        ),
    ] = 0.33


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set about a gateway."""

    image: Annotated[
        str | None, _is("image", "the node image; without it, what the gateway has, or holdfast's own")
    ] = None
    port: Annotated[
        int | Literal["auto"], _is("port", "the API's port; auto: the one it has, or a free one")
    ] = "auto"
    gateway_port: Annotated[
        int | Literal["auto"],
        _is("port", "the port of the gateway's own API; auto: the one it has, or a free one"),
    ] = "auto"
    listen: Annotated[str, _is("listen", "the address that the API's port is opened on")] = LOOPBACK
    namespace: Annotated[str, _is("namespace", "where the gateway's own workloads run")] = "holdfast"
    sandbox_namespace: Annotated[
        str, _is("namespace", "where the sandboxes of the gateway's own API are")
    ] = "default"
    workloads: Annotated[
        bool, _is("switch", "whether the gateway's own workloads are put into it; false: Kubernetes alone")
    ] = True
    api_names: Annotated[tuple[str, ...], _is("names", "more names that the API's certificate holds")] = ()
    gpus: Annotated[
        tuple[str, ...], _is("gpus", "the host's GPUs that the node gets; unless said, those it has")
    ] = ()
    push_images: Annotated[tuple[str, ...], _is("images", "local images that `up` puts into the node")] = ()
    timeouts: Timeouts = Timeouts()
    attempts: Attempts = Attempts()
    registries: Registries = msgspec.field(default_factory=Registries)
    workspace: Workspace = Workspace()
    certificates: Certificates = Certificates()


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as the model describes it."""

    key: str
    type: Any
    default: Any
    kind: Kind
    description: str
    bounds: tuple[float, float] | None = None

    @property
    def variable(self) -> str:
        return PREFIX + self.key.replace(".", "_").upper()


@cache
def leaves() -> dict[str, Leaf]:
    """All settings by key, in the order of the model."""
    found: list[Leaf] = []
    defaults = Settings()
    for name, hint in _hints(Settings):
        value = getattr(defaults, name)
        if isinstance(value, msgspec.Struct):
            for inner, inner_hint in _hints(type(value)):
                found.append(_leaf(f"{name}.{inner}", inner_hint, getattr(value, inner)))
        else:
            found.append(_leaf(name, hint, value))
    return {leaf.key: leaf for leaf in found}


@cache
def groups() -> frozenset[str]:
    """The tables of a settings file."""
    return frozenset(key.partition(".")[0] for key in leaves() if "." in key)


def _hints(model: type) -> list[tuple[str, Any]]:
    return list(get_type_hints(model, include_extras=True).items())


def _leaf(key: str, hint: Any, default: Any) -> Leaf:
    meta = next(part for part in get_args(hint) if isinstance(part, Meta))
    low, high = meta.ge, meta.le if meta.le is not None else meta.lt
    bounds = None if low is None or high is None else (low, high)
    extra: dict[str, Any] = dict(meta.extra or {})
    return Leaf(
        key=key,
        type=hint,
        default=default,
        kind=extra["kind"],
        description=meta.description or "",
        bounds=bounds,
    )
