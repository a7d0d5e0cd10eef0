"""Raw values, from a file, a variable or a flag, become what the model wants, or are refused with words.

Each kind of setting has one reader, which takes a text as well as what TOML and flags bring. A reader raises
`Refused`, whose words name the part that is off; of logins and mirrors no part is ever quoted.
Not here: where a value came from.
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.containers.gpus import ALL
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.gateway.settings_model import Kind

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|m|h)?", re.ASCII)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(?:[KMGTPE]i|[kMGTPE])?", re.ASCII)
_CLASS = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9:/._-]{0,127}")
_PORTS = range(1, 65536)
_MOST_DIGITS = 12
_BEYOND = 1e12

UNQUOTED: frozenset[Kind] = frozenset(("logins", "mirrors"))
"""Kinds whose bad values are not shown: people put passwords where references belong."""


class Refused(ValueError):  # noqa: N818 (it never leaves the settings)
    """A value cannot be; the words say which part and never quote a secret."""


def read_value(kind: Kind, raw: object, base: Path) -> Any:
    """The value that is meant; relative paths start at `base`."""
    return _READERS[kind](raw, base)


def _text(raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip() or not raw.isprintable():
        raise Refused("it is no text")
    return raw.strip()


def _number(raw: object) -> float:
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return float(max(-_BEYOND, min(raw, _BEYOND)))
    try:
        return float(_text(raw))
    except ValueError:
        raise Refused("it is no number") from None


def _whole(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    text = _text(raw) if isinstance(raw, str) else ""
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise Refused("it is no whole number")
    return int(text)


def _seconds(raw: object) -> float:
    if not isinstance(raw, str):
        return _number(raw)
    match = _DURATION.fullmatch(raw.strip())
    if match is None:
        raise Refused("it is no time")
    return float(match[1]) * _UNITS[match[2] or "s"]


def _port(raw: object) -> int | str:
    if isinstance(raw, str) and raw.strip().lower() == "auto":
        return "auto"
    port = _whole(raw)
    if port not in _PORTS:
        raise Refused("there is no such port")
    return port


def _address(raw: object) -> str:
    try:
        return str(ipaddress.IPv4Address(_text(raw)))
    except ValueError:
        raise Refused("it is no IPv4 address") from None


def _items(raw: object) -> list[str]:
    """A list, or a text with commas; the order stays, repeats go."""
    parts: list[Any] = [part for part in raw.split(",") if part.strip()] if isinstance(raw, str) else []
    if isinstance(raw, list | tuple):
        parts = list(raw)
    elif not isinstance(raw, str):
        raise Refused("it is no list")
    return list(dict.fromkeys(_text(part) for part in parts))


def _each(check: Callable[[str], str]) -> Callable[[object, Path], tuple[str, ...]]:
    def read(raw: object, base: Path) -> tuple[str, ...]:
        del base
        return tuple(dict.fromkeys(_checked(check, item) for item in _items(raw)))

    return read


def _checked(check: Callable[[str], str], item: str) -> str:
    try:
        return check(item)
    except HoldfastError as error:
        raise Refused(error.message) from None


def _image(text: str) -> str:
    from holdfast.containers.images import check_reference

    return check_reference(text)


def _server_name(text: str) -> str:
    from holdfast.pki.names import check_server_name

    return check_server_name(text)


def _host(text: str) -> str:
    host = text.lower()
    match = _HOST.fullmatch(host)
    if match is None or (match[1] is not None and int(match[1]) not in _PORTS):
        raise Refused(f"{text!r} is no registry host")
    return host


def _gpus(raw: object) -> tuple[str, ...]:
    """Ids of devices, each once; or a word for all or none of them. A number is an id, never how many."""
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple):
        raise Refused("it is no list")
    found: list[str] = []
    for number, part in enumerate(parts, start=1):
        gpu = _gpu(number, part)
        if gpu in found:
            raise Refused(f"{gpu} is there twice")
        found.append(gpu)
    for word in (ALL, "none"):
        if word in found and len(found) > 1:
            raise Refused(f"{word} stands alone")
    return () if found == ["none"] else tuple(found)


def _gpu(number: int, raw: object) -> str:
    if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw < _BEYOND:
        return str(raw)
    text = raw.strip() if isinstance(raw, str) else ""
    if not _GPU.fullmatch(text):
        raise Refused(f"entry {number} is no device id")
    return text.lower() if text.lower() in (ALL, "none") else text


def _by_host(raw: object) -> list[tuple[str, object]]:
    """A table of hosts, or a text like `host=value,host=value`."""
    if isinstance(raw, dict):
        return [(_host_of_entry(number, host), value) for number, (host, value) in enumerate(raw.items(), 1)]
    found: list[tuple[str, object]] = []
    for number, item in enumerate(_items(raw), start=1):
        host, equals, value = item.partition("=")
        if not equals or not value.strip():
            raise Refused(f"entry {number} is not like host=value")
        found.append((_host_of_entry(number, host), value.strip()))
    return found


def _host_of_entry(number: int, text: str) -> str:
    """The host of one entry; a bad one is not quoted, for it may be half of a login."""
    try:
        return _host(text.strip())
    except Refused:
        raise Refused(f"entry {number} does not begin with a registry host") from None


def _mirrors(raw: object, base: Path) -> dict[str, tuple[str, ...]]:
    del base
    found: dict[str, tuple[str, ...]] = {}
    for host, value in _by_host(raw):
        urls = [_mirror(host, url) for url in _items(value)]
        if not urls:
            raise Refused(f"there is no mirror for {host}")
        found[host] = tuple(dict.fromkeys((*found.get(host, ()), *urls)))
    return found


def _mirror(host: str, text: str) -> str:
    from urllib.parse import urlsplit

    try:
        url = urlsplit(text)
        plain = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        plain = False
    if not plain or url.query or url.fragment:
        raise Refused(f"a mirror of {host} is no address like https://host:port")
    if url.username is not None or url.password is not None:
        raise Refused(
            f"a mirror of {host} has a login in its address; logins belong to registries.credentials"
        )
    return text.rstrip("/")


def _one_each(
    read: Callable[[str, object, Path], str],
) -> Callable[[object, Path], dict[str, str]]:
    def read_all(raw: object, base: Path) -> dict[str, str]:
        found: dict[str, str] = {}
        for host, value in _by_host(raw):
            if host in found:
                raise Refused(f"{host} is there twice")
            found[host] = read(host, value, base)
        return found

    return read_all


def _path(host: str, value: object, base: Path) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise Refused(f"the value for {host} is no path")
    try:
        return os.path.normpath(base / Path(value.strip()).expanduser())
    except RuntimeError:
        raise Refused(f"the home folder in the path for {host} is not known") from None


def _login(host: str, value: object, base: Path) -> str:
    kind, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    if kind == "file" and name.strip():
        return f"file:{_path(host, name, base)}"
    if kind == "env" and _VARIABLE.fullmatch(name):
        return f"env:{name}"
    raise Refused(f"the login of {host} is no reference")


def _size(raw: object) -> str:
    text = _text(raw)
    match = _SIZE.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise Refused("it is no size")
    return text


def _storage_class(raw: object) -> str:
    if raw == "":
        return ""
    text = _text(raw)
    if not _CLASS.fullmatch(text):
        raise Refused("it is no name of a storage class")
    return text


def _namespace(raw: object) -> str:
    text = _text(raw)
    if not _LABEL.fullmatch(text):
        raise Refused("it is no name of a namespace")
    return text


def _switch(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    text = raw.strip().lower() if isinstance(raw, str) else ""
    if text not in ("true", "false"):
        raise Refused("it is neither true nor false")
    return text == "true"


def _alone(read: Callable[[object], Any]) -> Callable[[object, Path], Any]:
    return lambda raw, _base: read(raw)


_READERS: Mapping[Kind, Callable[[object, Path], Any]] = {
    "image": _alone(lambda raw: _checked(_image, _text(raw))),
    "port": _alone(_port),
    "listen": _alone(_address),
    "names": _each(_server_name),
    "images": _each(_image),
    "gpus": _alone(_gpus),
    "seconds": _alone(_seconds),
    "count": _alone(_whole),
    "mirrors": _mirrors,
    "hosts": _each(_host),
    "ca-files": _one_each(_path),
    "logins": _one_each(_login),
    "size": _alone(_size),
    "class": _alone(_storage_class),
    "days": _alone(_whole),
    "share": _alone(_number),
    "namespace": _alone(_namespace),
    "switch": _alone(_switch),
}
