"""All settings of a gateway in one model: keys, defaults, bounds, descriptions, and how values are written.

The key of a setting is its path in the model (`timeouts.api`); its environment variable is the key in upper
case (`HOLDFAST_TIMEOUTS_API`).

A `ValueType` parses what a flag, a variable or TOML provides into the value that the field's type describes,
and raises ValueError otherwise. `msgspec.convert` checks the rest: types, bounds and patterns.
"""

from __future__ import annotations

import ipaddress
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_type_hints
from urllib.parse import urlsplit

import msgspec

from holdfast.containers import ALL_GPUS, validate_reference
from holdfast.gateway.spec import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENV_PREFIX = "HOLDFAST_"
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smh]?)", re.ASCII)
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GPU_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9:/._-]{0,127}")
_MAX_PORT = 65535


class ValueType(msgspec.Struct, frozen=True):
    """How the values of a setting are written; called with a description, it annotates a field.

    Attributes:
        allowed: Completes "Set KEY to ...".
        parse: Gets the raw value and the directory that relative paths start at.
        is_quotable: False if users may write a password here by mistake: errors never quote it.
        bounds: Constraints that `msgspec.convert` checks.
    """

    allowed: str
    parse: Callable[[Any, Path], Any] = lambda raw, _base: raw
    is_quotable: bool = True
    bounds: dict[str, Any] = {}

    def __call__(self, description: str) -> msgspec.Meta:
        return msgspec.Meta(description=description, extra={"type": self}, **self.bounds)


def _parse_seconds(raw: Any, _base: Path) -> Any:
    if not isinstance(raw, str):
        return raw
    match = _DURATION.fullmatch(raw)
    if match is None:
        raise ValueError("not a duration")
    return float(match[1]) * _UNITS[match[2]]


def _parse_image(raw: Any, _base: Path) -> str:
    return validate_reference(_text(raw))


def _parse_server_name(raw: Any, _base: Path) -> str:
    from holdfast.pki import normalize_server_name

    return normalize_server_name(_text(raw))


def _parse_registry_host(raw: Any, _base: Path) -> str:
    host = _text(raw).lower()
    match = _HOST.fullmatch(host)
    if match is None or not 0 < int(match[1] or 1) <= _MAX_PORT:
        raise ValueError("not a registry host")
    return host


def _parse_path(raw: Any, base: Path) -> str:
    if not isinstance(raw, str) or not raw.strip() or "\0" in raw:
        raise ValueError("not a path")
    try:
        return os.path.normpath(base / Path(raw.strip()).expanduser())
    except RuntimeError:
        raise ValueError("the home directory in the path is unknown") from None


def _parse_login_reference(raw: Any, base: Path) -> str:
    # A login that a user pastes here by mistake fails. LOGINS is not quotable, so the error does not show it.
    scheme, _, name = raw.partition(":") if isinstance(raw, str) else ("", "", "")
    if scheme == "file" and name.strip():
        return f"file:{_parse_path(name, base)}"
    if scheme == "env" and _VARIABLE_NAME.fullmatch(name):
        return f"env:{name}"
    raise ValueError("not a reference to a login")


def _parse_mirrors(raw: Any, _base: Path) -> list[str]:
    urls = [_parse_mirror(url) for url in _split_list(raw)]
    if not urls:
        raise ValueError("no mirror")
    return urls


def _parse_mirror(raw: Any) -> str:
    text = _text(raw)
    try:
        url = urlsplit(text)
        is_plain = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_plain = False
    if not is_plain or url.query or url.fragment:
        raise ValueError("not a URL like https://host:port")
    # A bundle of `doctor` contains all settings, so they must not contain a login.
    if url.username is not None or url.password is not None:
        raise ValueError("a URL with a login; logins belong in registries.credentials")
    return text.rstrip("/")


def _parse_gpus(raw: Any, _base: Path) -> list[str]:
    """Device ids without repeats, or `all` or `none` alone. A number is an id, never a count."""
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple):
        raise ValueError("not a list")  # noqa: TRY004 (callers handle one kind of error)
    gpus: list[str] = []
    for number, part in enumerate(parts, start=1):
        text = str(part).strip() if isinstance(part, str | int) and not isinstance(part, bool) else ""
        if not _GPU_ID.fullmatch(text):
            raise ValueError(f"entry {number}: not a device id")
        gpu = text.lower() if text.lower() in (ALL_GPUS, "none") else text
        if gpu in gpus:
            raise ValueError(f"duplicate entry {gpu}")
        gpus.append(gpu)
    for word in (ALL_GPUS, "none"):
        if word in gpus and len(gpus) > 1:
            raise ValueError(f"{word} must be the only entry")
    return [] if gpus == ["none"] else gpus


def _list_of(parse: Callable[[Any, Path], str]) -> Callable[[Any, Path], list[str]]:
    def parse_list(raw: Any, base: Path) -> list[str]:
        return list(dict.fromkeys(parse(item, base) for item in _split_list(raw)))

    return parse_list


def _table_of(parse: Callable[[Any, Path], Any]) -> Callable[[Any, Path], dict[str, Any]]:
    """Values by registry host: a table, or text like `host=value,host=value`.

    Only lists (mirrors) may name a host twice. Errors never quote a part: it may be half of a login.
    """

    def parse_table(raw: Any, base: Path) -> dict[str, Any]:
        table: dict[str, Any] = {}
        pairs = (
            raw.items()
            if isinstance(raw, dict)
            else (_text(item).partition("=")[::2] for item in _split_list(raw))
        )
        for number, (key, text) in enumerate(pairs, start=1):
            try:
                host, value = _parse_registry_host(key, base), parse(text, base)
            except ValueError as error:
                raise ValueError(f"entry {number}: {error}") from None
            if host not in table:
                table[host] = value
            elif isinstance(value, list):
                table[host] = list(dict.fromkeys([*table[host], *value]))
            else:
                raise ValueError(f"entry {number}: duplicate host")
        return table

    return parse_table


def _split_list(raw: Any) -> list[Any]:
    if isinstance(raw, str):
        return [part.strip() for part in raw.split(",") if part.strip()]
    if not isinstance(raw, list | tuple):
        raise ValueError("not a list")  # noqa: TRY004 (callers handle one kind of error)
    return list(raw)


def _text(raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip() or not raw.isprintable():
        raise ValueError("not a text")
    return raw.strip()


IMAGE = ValueType("an image reference like [registry/]name[:tag], in lower case", _parse_image)
IMAGES = ValueType("image references, as a list or separated by commas", _list_of(_parse_image))
PORT = ValueType(
    "a port from 1 to 65535, or auto", lambda raw, _base: raw.lower() if isinstance(raw, str) else raw
)
IPV4 = ValueType("an IPv4 address", lambda raw, _base: str(ipaddress.IPv4Address(_text(raw))))
SERVER_NAMES = ValueType(
    "host names and IP addresses, as a list or separated by commas", _list_of(_parse_server_name)
)
GPUS = ValueType("all, none, or device ids, as a list or separated by commas", _parse_gpus)
SECONDS = ValueType(
    "seconds from 1 to 86400, as a number or like 90s, 3m, 1h", _parse_seconds, bounds={"ge": 1, "le": 86400}
)
COUNT = ValueType("a whole number from 1 to 100", bounds={"ge": 1, "le": 100})
DAYS = ValueType("a whole number of days from 1 to 3650", bounds={"ge": 1, "le": 3650})
FRACTION = ValueType("a number from 0 to less than 1", bounds={"ge": 0, "lt": 1})
BOOLEAN = ValueType("true or false")
# Patterns end with `\Z`: `$` would also match before a final newline.
NAMESPACE = ValueType(
    "a namespace name: a-z, 0-9 and -, at most 63 characters",
    bounds={"pattern": r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z"},
)
SIZE = ValueType(
    "a size like 512Mi, 2Gi or 10G",
    bounds={"pattern": r"^(?=.*[1-9])[0-9]{1,12}(\.[0-9]{1,6})?([KMGTPE]i|[kMGTPE])?\Z"},
)
STORAGE_CLASS = ValueType(
    "the name of a storage class, or nothing for the cluster's default",
    bounds={"pattern": r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?\Z"},
)
REGISTRY_HOSTS = ValueType(
    "registry hosts like name or name:port, as a list or separated by commas", _list_of(_parse_registry_host)
)
MIRRORS = ValueType(
    "URLs by registry host, as a table or like host=https://mirror:port,host=…; without logins",
    _table_of(_parse_mirrors),
    is_quotable=False,
)
CA_FILES = ValueType("paths by registry host, as a table or like host=path,host=path", _table_of(_parse_path))
LOGINS = ValueType(
    "file:PATH or env:NAME by registry host, as a table or like host=env:NAME,host=file:PATH",
    _table_of(_parse_login_reference),
    is_quotable=False,
)

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
