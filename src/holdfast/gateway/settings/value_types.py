"""How the values of settings are written: each `ValueType` parses what a flag, a variable or TOML provides.

A parser returns the value that the field's type describes, and raises ValueError otherwise.
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from holdfast.containers import ALL_GPUS, validate_reference

if TYPE_CHECKING:
    from collections.abc import Callable

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smh]?)", re.ASCII)
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GPU_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9:/._-]{0,127}")
_NO_PROXY_ENTRY = re.compile(r"[A-Za-z0-9.*\[\]:/_-]{1,255}")
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
    _split_url(text, "https://host:port", "registries.credentials")
    return text.rstrip("/")


def _parse_proxy(raw: Any, _base: Path) -> str:
    text = _text(raw)
    form = "http://host:port"
    if _split_url(text, form, "proxy.credentials").path not in ("", "/"):
        raise ValueError(f"not a URL like {form}")
    return text.rstrip("/")


def _split_url(text: str, form: str, credentials_key: str) -> SplitResult:
    try:
        url = urlsplit(text)
        is_plain = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_plain = False
    if not is_plain or url.query or url.fragment:
        raise ValueError(f"not a URL like {form}")
    # A bundle of `doctor` contains all settings, so they must not contain a login.
    if url.username is not None or url.password is not None:
        raise ValueError(f"a URL with a login; logins belong in {credentials_key}")
    return url


def _parse_no_proxy(raw: Any, _base: Path) -> str:
    text = _text(raw)
    if not _NO_PROXY_ENTRY.fullmatch(text):
        raise ValueError("not a host name, domain or address")
    return text


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
PROXY = ValueType("a URL like http://host:port, without a login", _parse_proxy, is_quotable=False)
NO_PROXY = ValueType(
    "host names, domains and addresses, as a list or separated by commas", _list_of(_parse_no_proxy)
)
LOGIN = ValueType("file:PATH or env:NAME", _parse_login_reference, is_quotable=False)
PEM_FILE = ValueType("the path of a PEM file", _parse_path)
