"""All settings of a gateway in one model: keys, defaults, bounds and descriptions.

The key of a setting is its path in the model (`timeouts.api`); its environment variable is the key in upper
case (`HOLDFAST_TIMEOUTS_API`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Meta

from holdfast.gateway.settings import value_types
from holdfast.gateway.spec import LOOPBACK

if TYPE_CHECKING:
    from holdfast.gateway.settings.value_types import ValueType

ENV_PREFIX = "HOLDFAST_"
_MAX_TIMEOUT_SECONDS = 24 * 3600.0
_MAX_ATTEMPTS = 100
_Port: TypeAlias = Annotated[int, Meta(ge=1, le=65535)] | Literal["auto"]


def _meta(value_type: ValueType, description: str, **constraints: Any) -> Meta:
    return Meta(description=description, extra={"type": value_type}, **constraints)


def _seconds(description: str) -> Meta:
    return _meta(value_types.SECONDS, description, ge=1, le=_MAX_TIMEOUT_SECONDS)


def _attempts(description: str) -> Meta:
    return _meta(value_types.COUNT, description, ge=1, le=_MAX_ATTEMPTS)


def _namespace(description: str) -> Meta:
    return _meta(value_types.NAMESPACE, description, pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


class TimeoutSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Timeout of each wait, in seconds; a wait that exceeds it is an error."""

    api: Annotated[float, _seconds("API server of a running node reachable from this machine")] = 60.0
    node_ready: Annotated[float, _seconds("node, DNS and storage ready")] = 120.0
    namespace: Annotated[float, _seconds("namespace Active")] = 180.0
    push: Annotated[float, _seconds("images pushed into the node")] = 3600.0
    rollout: Annotated[float, _seconds("rollout complete")] = 180.0
    health: Annotated[float, _seconds("gateway healthy")] = 360.0
    probe: Annotated[float, _seconds("smoke-test pod has written its workspace")] = 120.0
    stop: Annotated[float, _seconds("grace period before a stopping node is killed")] = 30.0
    engine: Annotated[float, _seconds("one call to the container engine")] = 60.0
    image: Annotated[float, _seconds("container engine sends nothing while it saves or loads an image")] = (
        900.0
    )
    runtime: Annotated[float, _seconds("containerd answers about its images, and lists a new one")] = 60.0
    objects: Annotated[float, _seconds("cluster binds or removes one volume, PVC or Secret")] = 60.0
    snapshot: Annotated[float, _seconds("datastore copied or restored")] = 3600.0
    ssh: Annotated[float, _seconds("all attempts to reach a remote host; each part gets a share")] = 45.0
    look: Annotated[float, _seconds("probe of one step, with retries")] = 30.0
    request: Annotated[float, _seconds("one request of a step to the cluster")] = 30.0
    glance: Annotated[float, _seconds("one quick request to an API, for example by `status`")] = 5.0
    doctor: Annotated[float, _seconds("all checks of `doctor`")] = 45.0


class AttemptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum attempts of a call that fails with a transient error; 1 disables retries."""

    engine_call: Annotated[int, _attempts("call to the container engine")] = 4
    start: Annotated[int, _attempts("start of the container while its port is taken")] = 5
    pull: Annotated[int, _attempts("pull of the node image")] = 4
    push: Annotated[int, _attempts("push of images into the node")] = 4
    apply: Annotated[int, _attempts("write of one object to the cluster")] = 5
    stale_nodes: Annotated[int, _attempts("removal of nodes that left the cluster")] = 4


class RegistrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Image sources of the node by registry host; logins are references, never the login itself."""

    mirrors: Annotated[
        dict[str, tuple[str, ...]], _meta(value_types.MIRRORS, "mirrors to try before the registry, in order")
    ] = {}
    insecure: Annotated[
        tuple[str, ...], _meta(value_types.REGISTRY_HOSTS, "registries whose certificates are not verified")
    ] = ()
    ca_files: Annotated[dict[str, str], _meta(value_types.CA_FILES, "CA file to verify a registry with")] = {}
    credentials: Annotated[
        dict[str, str],
        _meta(value_types.LOGINS, "file or variable that contains the user:password of a registry"),
    ] = {}


class WorkspaceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Default workspace of a sandbox."""

    size: Annotated[
        str,
        _meta(
            value_types.SIZE,
            "requested size; local-path storage does not enforce it",
            pattern=r"^(?=.*[1-9])[0-9]{1,12}(\.[0-9]{1,6})?([KMGTPE]i|[kMGTPE])?\Z",
        ),
    ] = "2Gi"
    storage_class: Annotated[
        str,
        _meta(
            value_types.STORAGE_CLASS,
            "storage class; empty: the cluster's default",
            pattern=r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?\Z",
        ),
    ] = ""


class CertificateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Certificates of the gateway's own API."""

    life_days: Annotated[
        int, _meta(value_types.DAYS, "validity of new certificates in days", ge=1, le=3650)
    ] = 365
    renew_below: Annotated[
        float,
        _meta(value_types.FRACTION, "renew when less than this fraction of the lifetime remains", ge=0, lt=1),
    ] = 0.33


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a gateway."""

    image: Annotated[
        str | None,
        _meta(value_types.IMAGE, "node image; default: the gateway's current image, or holdfast's own"),
    ] = None
    port: Annotated[
        _Port, _meta(value_types.PORT, "port of the Kubernetes API; auto: the current port, or a free one")
    ] = "auto"
    gateway_port: Annotated[
        _Port, _meta(value_types.PORT, "port of the gateway's own API; auto: the current port, or a free one")
    ] = "auto"
    listen: Annotated[str, _meta(value_types.IPV4, "address that the ports listen on")] = LOOPBACK
    namespace: Annotated[str, _namespace("namespace of the gateway's own workloads")] = "holdfast"
    sandbox_namespace: Annotated[
        str, _namespace("namespace of the sandboxes that the gateway's API creates")
    ] = "default"
    workloads: Annotated[
        bool, _meta(value_types.BOOLEAN, "install the gateway's own workloads; false: Kubernetes only")
    ] = True
    api_names: Annotated[
        tuple[str, ...], _meta(value_types.SERVER_NAMES, "additional names in the certificates of the APIs")
    ] = ()
    gpus: Annotated[
        tuple[str, ...], _meta(value_types.GPUS, "GPUs of the host for the node; default: the current ones")
    ] = ()
    push_images: Annotated[
        tuple[str, ...], _meta(value_types.IMAGES, "local images that `up` pushes into the node")
    ] = ()
    timeouts: TimeoutSettings = TimeoutSettings()
    attempts: AttemptSettings = AttemptSettings()
    registries: RegistrySettings = msgspec.field(default_factory=RegistrySettings)
    workspace: WorkspaceSettings = WorkspaceSettings()
    certificates: CertificateSettings = CertificateSettings()


class SettingField(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as the model describes it."""

    key: str
    type: Any
    default: Any
    value_type: ValueType
    description: str
    allowed: str

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


def _fields_of(model: msgspec.Struct, prefix: str) -> list[SettingField]:
    fields: list[SettingField] = []
    for name, hint in get_type_hints(type(model), include_extras=True).items():
        default = getattr(model, name)
        if isinstance(default, msgspec.Struct):
            fields += _fields_of(default, f"{name}.")
            continue
        meta = next(part for part in get_args(hint) if isinstance(part, Meta))
        value_type: ValueType = (meta.extra or {})["type"]
        fields.append(
            SettingField(
                key=prefix + name,
                type=hint,
                default=default,
                value_type=value_type,
                description=meta.description or "",
                allowed=value_type.allowed.format(low=meta.ge, high=meta.le if meta.lt is None else meta.lt),
            )
        )
    return fields
