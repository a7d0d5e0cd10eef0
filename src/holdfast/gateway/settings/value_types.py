"""The types of settings that are more than a bounded number or a pattern: how each is written and parsed.

`parse` turns what a flag, a variable or TOML provides into the value that the model's type describes, and
raises ValueError otherwise. `msgspec.convert` checks the rest: types, bounds and patterns.
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from holdfast.containers import ALL_GPUS

if TYPE_CHECKING:
    from collections.abc import Callable

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smh]?)", re.ASCII)
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GPU_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9:/._-]{0,127}")
_MAX_PORT = 65535


class ValueType(msgspec.Struct, frozen=True, kw_only=True):
    """How the values of a setting are written."""

    allowed: str
    """Completes "Set KEY to ..."; `{low}` and `{high}` are the bounds of the field."""
    parse: Callable[[Any, Path], Any] = lambda raw, _base: raw
    """Gets the raw value and the directory that relative paths start at."""
    is_quotable: bool = True
    """False where users may have written a password by mistake: errors never quote such a value."""


def _parse_seconds(raw: Any, _base: Path) -> Any:
    if not isinstance(raw, str):
        return raw
    match = _DURATION.fullmatch(raw)
    if match is None:
        raise ValueError("not a duration")
    return float(match[1]) * _UNITS[match[2]]


def _parse_ipv4(raw: Any, _base: Path) -> str:
    return str(ipaddress.IPv4Address(_text(raw)))


def _parse_image(raw: Any, _base: Path) -> str:
    from holdfast.containers import validate_reference

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


IMAGE = ValueType(allowed="an image reference like [registry/]name[:tag], in lower case", parse=_parse_image)
IMAGES = ValueType(allowed="image references, as a list or separated by commas", parse=_list_of(_parse_image))
PORT = ValueType(
    allowed="a port from 1 to 65535, or auto",
    parse=lambda raw, _base: raw.lower() if isinstance(raw, str) else raw,
)
IPV4 = ValueType(allowed="an IPv4 address", parse=_parse_ipv4)
SERVER_NAMES = ValueType(
    allowed="host names and IP addresses, as a list or separated by commas",
    parse=_list_of(_parse_server_name),
)
GPUS = ValueType(allowed="all, none, or device ids, as a list or separated by commas", parse=_parse_gpus)
SECONDS = ValueType(
    allowed="seconds from {low:g} to {high:g}, as a number or like 90s, 3m, 1h", parse=_parse_seconds
)
COUNT = ValueType(allowed="a whole number from {low:g} to {high:g}")
DAYS = ValueType(allowed="a whole number of days from {low:g} to {high:g}")
FRACTION = ValueType(allowed="a number from {low:g} to less than {high:g}")
BOOLEAN = ValueType(allowed="true or false")
NAMESPACE = ValueType(allowed="a namespace name: a-z, 0-9 and -, at most 63 characters")
SIZE = ValueType(allowed="a size like 512Mi, 2Gi or 10G")
STORAGE_CLASS = ValueType(allowed="the name of a storage class, or nothing for the cluster's default")
REGISTRY_HOSTS = ValueType(
    allowed="registry hosts like name or name:port, as a list or separated by commas",
    parse=_list_of(_parse_registry_host),
)
MIRRORS = ValueType(
    allowed="URLs by registry host, as a table or like host=https://mirror:port,host=…; without logins",
    parse=_table_of(_parse_mirrors),
    is_quotable=False,
)
CA_FILES = ValueType(
    allowed="paths by registry host, as a table or like host=path,host=path", parse=_table_of(_parse_path)
)
LOGINS = ValueType(
    allowed="file:PATH or env:NAME by registry host, as a table or like host=env:NAME,host=file:PATH",
    parse=_table_of(_parse_login_reference),
    is_quotable=False,
)
