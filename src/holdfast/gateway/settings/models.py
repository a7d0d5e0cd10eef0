"""All settings of a gateway in one model: keys, defaults, bounds, descriptions, and how values are written.

The key of a setting is its path in the model (`timeouts.api`); its environment variable is the key in upper
case (`HOLDFAST_TIMEOUTS_API`).

The `ValueType` of a field parses its values; `msgspec.convert` checks types, bounds and patterns.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec

from holdfast.gateway.settings.value_types import (
    BOOLEAN,
    CA_FILES,
    COUNT,
    DAYS,
    FRACTION,
    GPUS,
    IMAGE,
    IMAGES,
    IPV4,
    LOGIN,
    LOGINS,
    MIRRORS,
    NAMESPACE,
    NO_PROXY,
    PEM_FILE,
    PORT,
    PROXY,
    REGISTRY_HOSTS,
    SECONDS,
    SERVER_NAMES,
    SIZE,
    STORAGE_CLASS,
    ValueType,
)
from holdfast.gateway.spec import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

ENV_PREFIX = "HOLDFAST_"

_Port: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=65535)] | Literal["auto"]


class TimeoutSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Timeout of each wait, in seconds; a wait that exceeds it is an error."""

    api: Annotated[float, SECONDS("API server of a running node reachable from this machine")] = 60.0
    node_ready: Annotated[float, SECONDS("node, DNS and storage ready")] = 120.0
    namespace: Annotated[float, SECONDS("namespace Active")] = 180.0
    push: Annotated[float, SECONDS("images pushed into the node")] = 3600.0
    rollout: Annotated[float, SECONDS("rollout complete")] = 180.0
    health: Annotated[float, SECONDS("gateway healthy")] = 360.0
    probe: Annotated[float, SECONDS("smoke-test pod has written its workspace")] = 120.0
    stop: Annotated[float, SECONDS("grace period before a stopping node is killed")] = 30.0
    engine: Annotated[float, SECONDS("one call to the container engine")] = 60.0
    engine_restart: Annotated[
        float, SECONDS("container engine that restarts during a command answers again")
    ] = 60.0
    image: Annotated[float, SECONDS("container engine sends nothing while it saves or loads an image")] = (
        900.0
    )
    runtime: Annotated[float, SECONDS("containerd answers about its images, and lists a new one")] = 60.0
    objects: Annotated[float, SECONDS("cluster binds or removes one volume, PVC or Secret")] = 60.0
    snapshot: Annotated[float, SECONDS("datastore copied or restored")] = 3600.0
    ssh: Annotated[float, SECONDS("all attempts to reach a remote host; each part gets a share")] = 45.0
    look: Annotated[float, SECONDS("probe of one step, with retries")] = 30.0
    request: Annotated[float, SECONDS("one request of a step to the cluster")] = 30.0
    glance: Annotated[float, SECONDS("one quick request to an API, for example by `status`")] = 5.0
    doctor: Annotated[float, SECONDS("all checks of `doctor`")] = 45.0


class AttemptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum attempts of a call that fails with a transient error; 1 disables retries."""

    engine_call: Annotated[int, COUNT("call to the container engine")] = 4
    start: Annotated[int, COUNT("start of the container while its port is taken")] = 5
    pull: Annotated[int, COUNT("pull of the node image")] = 4
    push: Annotated[int, COUNT("push of images into the node")] = 4
    apply: Annotated[int, COUNT("write of one object to the cluster")] = 5
    stale_nodes: Annotated[int, COUNT("removal of nodes that left the cluster")] = 4


class RegistrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Image sources of the node by registry host; logins are references, never the login itself."""

    mirrors: Annotated[
        dict[str, tuple[str, ...]], MIRRORS("mirrors to try before the registry, in order")
    ] = {}
    insecure: Annotated[
        tuple[str, ...], REGISTRY_HOSTS("registries whose certificates are not verified")
    ] = ()
    ca_files: Annotated[dict[str, str], CA_FILES("CA file to verify a registry with")] = {}
    credentials: Annotated[
        dict[str, str], LOGINS("file or variable that contains the user:password of a registry")
    ] = {}


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Proxy of sandboxes and image builds; the login is a reference, never the login itself."""

    http: Annotated[str | None, PROXY("proxy for http:// URLs")] = None
    https: Annotated[str | None, PROXY("proxy for https:// URLs")] = None
    no_proxy: Annotated[
        tuple[str, ...], NO_PROXY("destinations without a proxy, besides those in the cluster")
    ] = ()
    credentials: Annotated[
        str | None, LOGIN("file or variable that contains the user:password of the proxies")
    ] = None


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What sandboxes get from this machine."""

    ca_bundle: Annotated[str | None, PEM_FILE("CA certificates that sandboxes trust besides public ones")] = (
        None
    )


class WorkspaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Default workspace of a sandbox."""

    size: Annotated[str, SIZE("requested size; local-path storage does not enforce it")] = "2Gi"
    storage_class: Annotated[str, STORAGE_CLASS("storage class; empty: the cluster's default")] = ""


class CertificateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Certificates of the gateway's own API."""

    life_days: Annotated[int, DAYS("validity of new certificates in days")] = 365
    renew_below: Annotated[float, FRACTION("renew when less than this fraction of the lifetime remains")] = (
        0.33
    )


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a gateway."""

    image: Annotated[
        str | None, IMAGE("node image; default: the gateway's current image, or holdfast's own")
    ] = None
    port: Annotated[_Port, PORT("port of the Kubernetes API; auto: the current port, or a free one")] = "auto"
    gateway_port: Annotated[
        _Port, PORT("port of the gateway's own API; auto: the current port, or a free one")
    ] = "auto"
    listen: Annotated[str, IPV4("address that the ports listen on")] = LOOPBACK
    namespace: Annotated[str, NAMESPACE("namespace of the gateway's own workloads")] = "holdfast"
    sandbox_namespace: Annotated[
        str, NAMESPACE("namespace of the sandboxes that the gateway's API creates")
    ] = "default"
    workloads: Annotated[bool, BOOLEAN("install the gateway's own workloads; false: Kubernetes only")] = True
    api_names: Annotated[
        tuple[str, ...], SERVER_NAMES("additional names in the certificates of the APIs")
    ] = ()
    gpus: Annotated[tuple[str, ...], GPUS("GPUs of the host for the node; default: the current ones")] = ()
    push_images: Annotated[tuple[str, ...], IMAGES("local images that `up` pushes into the node")] = ()
    timeouts: TimeoutSettings = TimeoutSettings()
    attempts: AttemptSettings = AttemptSettings()
    registries: RegistrySettings = msgspec.field(default_factory=RegistrySettings)
    proxy: ProxySettings = ProxySettings()
    sandbox: SandboxSettings = SandboxSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    certificates: CertificateSettings = CertificateSettings()


class SettingField(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as the model describes it."""

    key: str
    type: Any
    default: Any
    value_type: ValueType
    description: str

    @property
    def variable(self) -> str:
        return ENV_PREFIX + self.key.replace(".", "_").upper()


@cache
def setting_fields() -> dict[str, SettingField]:
    """All settings by key, in the order of the model."""
    return {field.key: field for field in _fields_of(Settings(), "")}


@cache
def setting_tables() -> frozenset[str]:
    """The tables of a settings file."""
    return frozenset(key.partition(".")[0] for key in setting_fields() if "." in key)


def _fields_of(model: msgspec.Struct, prefix: str) -> Iterator[SettingField]:
    for name, hint in get_type_hints(type(model), include_extras=True).items():
        default = getattr(model, name)
        if isinstance(default, msgspec.Struct):
            yield from _fields_of(default, f"{name}.")
            continue
        meta = next(part for part in get_args(hint) if isinstance(part, msgspec.Meta))
        yield SettingField(
            key=prefix + name,
            type=hint,
            default=default,
            value_type=(meta.extra or {})["type"],
            description=meta.description or "",
        )
