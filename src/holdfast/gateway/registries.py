"""The setting `registries` as the files that the node's containerd and kubelet read at each pull.

A registry `H` gets `H/hosts.toml`: its mirrors in their order, then itself, each with its CA, its login and
whether its certificate counts. A login goes out in two ways, for registries ask in two: as a header to those
that take a plain user and password, and through the kubelet's own login file to those that want a token.
Pure: values in, files out. Not here: reading logins and CA files (registries_sources.py), writing (steps).
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.engine.secret import Secret
    from holdfast.gateway.settings_model import Registries

HUB = "docker.io"
_HUB_SERVER = "https://registry-1.docker.io"
_HUB_LOGIN = "https://index.docker.io/v1/"
NO_LOGINS = b'{"auths": {}}\n'
_HEAD = "# Written by holdfast from the setting `registries`; changes are lost at the next `up`.\n"


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The setting with what it refers to: logins and CA files by registry host."""

    registries: Registries
    logins: dict[str, Secret] = {}
    authorities: dict[str, bytes] = {}


class NodeFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be in the node: containerd's host files by relative path, and the kubelet's login file."""

    hosts: dict[str, bytes]
    logins: bytes

    def __repr__(self) -> str:
        return f"NodeFiles({', '.join(self.hosts)})"


def node_files(sources: Sources, folder: str) -> NodeFiles:
    """All files for the setting; `folder` is where the host files are inside the node."""
    files: dict[str, bytes] = {}
    for host in registry_hosts(sources.registries):
        files[f"{host}/hosts.toml"] = _hosts_file(host, sources, folder).encode()
    for host, authority in sources.authorities.items():
        files[f"{host}/ca.crt"] = authority
    return NodeFiles(hosts=files, logins=_login_file(sources.logins))


def registry_hosts(registries: Registries) -> list[str]:
    """Every registry host that anything is set for."""
    named: Iterable[str] = (
        *registries.mirrors,
        *registries.insecure,
        *registries.ca_files,
        *registries.credentials,
    )
    return list(dict.fromkeys(named))


def _hosts_file(host: str, sources: Sources, folder: str) -> str:
    """One hosts.toml; containerd tries the tables in their order, and `server` last.

    The registry itself has a table too: containerd 1.6 overlooks a header that stands beside `server`. One
    whose certificate does not count may have none at all, as with Docker, and is asked without TLS last.
    """
    own = [_HUB_SERVER if host == HUB else f"https://{host}"]
    if host in sources.registries.insecure:
        own.append(f"http://{host}")
    server = "\n".join([f"server = {_quoted(own[-1])}", *_trust(host, sources, folder)])
    tables = [_table(url, _host_of(url), sources, folder) for url in sources.registries.mirrors.get(host, ())]
    tables += [_table(url, host, sources, folder) for url in own]
    return f"{_HEAD}{server}\n{''.join(tables)}"


def _host_of(url: str) -> str:
    """Under which host the settings speak of this mirror."""
    return urlsplit(url).netloc.lower()


def _table(url: str, host: str, sources: Sources, folder: str) -> str:
    name = f"host.{_quoted(url)}"
    lines = [f"[{name}]", '  capabilities = ["pull", "resolve"]']
    lines += [f"  {line}" for line in _trust(host, sources, folder)]
    login = sources.logins.get(host)
    if login is not None:
        lines += [f"  [{name}.header]", f"    Authorization = {_quoted(_basic(login))}"]
    return "\n" + "\n".join(lines) + "\n"


def _trust(host: str, sources: Sources, folder: str) -> list[str]:
    lines = []
    if host in sources.authorities:
        lines.append(f"ca = {_quoted(f'{folder}/{host}/ca.crt')}")
    if host in sources.registries.insecure:
        lines.append("skip_verify = true")
    return lines


def _login_file(logins: Mapping[str, Secret]) -> bytes:
    if not logins:
        return NO_LOGINS
    auths = {_HUB_LOGIN if host == HUB else host: {"auth": _encoded(login)} for host, login in logins.items()}
    return (json.dumps({"auths": auths}, indent=2) + "\n").encode()


def _basic(login: Secret) -> str:
    return f"Basic {_encoded(login)}"


def _encoded(login: Secret) -> str:
    return base64.b64encode(login.reveal()).decode()


def _quoted(text: str) -> str:
    """A basic string of TOML; JSON's is one."""
    return json.dumps(text)
