"""The setting `registries`: read CA files and logins, and write the node's containerd and kubelet files.

A registry `H` gets `H/hosts.toml`: its mirrors in order, then itself, each with its CA, login and TLS
settings. A login is written twice, because registries authenticate in two ways: as a header for those that
accept basic authentication, and in the kubelet's login file for those that require a token.

containerd and the kubelet read these files at each pull, so a running node is not restarted. Logins are read
when a plan is made, so that a missing file fails before anything is changed. They are written through the
engine's API into files that only root can read, and stored nowhere else.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from holdfast.containers import read_directory, read_file, replace_directory, write_private_file
from holdfast.gateway import logins
from holdfast.gateway.base_steps import GatewayStep
from holdfast.workflow import ProbeResult, absent, done, partial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.gateway.context import GatewayContext
    from holdfast.gateway.settings import RegistrySettings
    from holdfast.workflow import Secret, StepContext


_CREDENTIALS_KEY = "registries.credentials"


def read_login(registries: RegistrySettings, host: str) -> Secret | None:
    """Read the login of a registry host as `user:password`; None if none is set.

    Raises:
        InvalidSettingError: The login cannot be read; the message does not contain it.
    """
    reference = registries.credentials.get(host)
    if reference is None:
        return None
    return logins.read_login(reference, key=_CREDENTIALS_KEY, owner=host)


# Docker Hub has several names: in image references (with a legacy one), on the network, and in login files.
DOCKER_HUB, LEGACY_DOCKER_HUB = "docker.io", "index.docker.io"
_DOCKER_HUB_SERVER = "https://registry-1.docker.io"
_DOCKER_HUB_AUTH_KEY = f"https://{LEGACY_DOCKER_HUB}/v1/"
EMPTY_AUTH_FILE = b'{"auths": {}}\n'
_FILE_HEADER = "# Written by holdfast from the setting `registries`; `up` overwrites changes.\n"


def registry_host(reference: str) -> str:
    """The registry host of an image reference, as settings and logins name it."""
    head, slash, _ = reference.partition("/")
    is_host = bool(slash) and ("." in head or ":" in head or head == "localhost")
    return head if is_host and head != LEGACY_DOCKER_HUB else DOCKER_HUB


class RegistrySources(msgspec.Struct, frozen=True, kw_only=True):
    """The setting, with the logins and CA files that it refers to by registry host."""

    registries: RegistrySettings
    logins: dict[str, Secret] = {}
    ca_certificates: dict[str, bytes] = {}


class NodeRegistryFiles(msgspec.Struct, frozen=True, kw_only=True):
    """containerd's host files by relative path, and the kubelet's login file."""

    hosts: dict[str, bytes]
    auth_file: bytes

    # Without the contents, which include logins: a repr may reach a traceback or a log.
    def __repr__(self) -> str:
        return f"NodeRegistryFiles({', '.join(self.hosts)})"


def render_registry_files(sources: RegistrySources, directory: str) -> NodeRegistryFiles:
    """Render all files; `directory` is the directory of the host files in the node."""
    files = {
        f"{host}/hosts.toml": _render_hosts_toml(host, sources, directory).encode()
        for host in registry_hosts(sources.registries)
    }
    files |= {f"{host}/ca.crt": certificate for host, certificate in sources.ca_certificates.items()}
    return NodeRegistryFiles(hosts=files, auth_file=_render_auth_file(sources.logins))


def registry_hosts(registries: RegistrySettings) -> list[str]:
    """Every registry host that the setting mentions, without mirrors."""
    return list(
        dict.fromkeys(
            (*registries.mirrors, *registries.insecure, *registries.ca_files, *registries.credentials)
        )
    )


def _render_hosts_toml(host: str, sources: RegistrySources, directory: str) -> str:
    """Render one hosts.toml; containerd tries the tables in order, and `server` last.

    The registry itself has a table too, because containerd 1.6 ignores a header next to `server`. An insecure
    registry may not support TLS at all: like Docker, containerd tries plain HTTP last.
    """
    urls = [_DOCKER_HUB_SERVER if host == DOCKER_HUB else f"https://{host}"]
    if host in sources.registries.insecure:
        urls.append(f"http://{host}")
    server = "\n".join([f"server = {_toml_string(urls[-1])}", *_tls_lines(host, sources, directory)])
    tables = [
        _host_table(url, urlsplit(url).netloc.lower(), sources, directory)
        for url in sources.registries.mirrors.get(host, ())
    ]
    tables += [_host_table(url, host, sources, directory) for url in urls]
    return f"{_FILE_HEADER}{server}\n{''.join(tables)}"


def _host_table(url: str, host: str, sources: RegistrySources, directory: str) -> str:
    name = f"host.{_toml_string(url)}"
    lines = [f"[{name}]", '  capabilities = ["pull", "resolve"]']
    lines += [f"  {line}" for line in _tls_lines(host, sources, directory)]
    login = sources.logins.get(host)
    if login is not None:
        lines += [
            f"  [{name}.header]",
            f"    Authorization = {_toml_string(f'Basic {_encode_login(login)}')}",
        ]
    return "\n" + "\n".join(lines) + "\n"


def _tls_lines(host: str, sources: RegistrySources, directory: str) -> list[str]:
    lines = []
    if host in sources.ca_certificates:
        lines.append(f"ca = {_toml_string(f'{directory}/{host}/ca.crt')}")
    if host in sources.registries.insecure:
        lines.append("skip_verify = true")
    return lines


def _render_auth_file(logins: Mapping[str, Secret]) -> bytes:
    if not logins:
        return EMPTY_AUTH_FILE
    auths = {
        _DOCKER_HUB_AUTH_KEY if host == DOCKER_HUB else host: {"auth": _encode_login(login)}
        for host, login in logins.items()
    }
    return (json.dumps({"auths": auths}, indent=2) + "\n").encode()


def _encode_login(login: Secret) -> str:
    return base64.b64encode(login.reveal()).decode()


def _toml_string(text: str) -> str:
    """A TOML basic string: a JSON string without escaped surrogates, which TOML rejects."""
    return json.dumps(text, ensure_ascii=False)


def read_registry_sources(registries: RegistrySettings) -> RegistrySources:
    """Read the CA files and logins of the setting.

    Raises:
        InvalidSettingError: One of them cannot be read.
    """
    found = {host: read_login(registries, host) for host in registries.credentials}
    return RegistrySources(
        registries=registries,
        logins={host: login for host, login in found.items() if login is not None},
        ca_certificates={host: _read_ca_file(host, Path(path)) for host, path in registries.ca_files.items()},
    )


def _read_ca_file(host: str, path: Path) -> bytes:
    return logins.read_ca_file(path, key="registries.ca_files", owner=host)


class WriteRegistries(GatewayStep):
    """Write the node's registry files, and remove those that the setting no longer mentions."""

    name = "write-registries"
    title = "Registries"
    needs = ("ensure-container",)

    def __init__(self, gateway: GatewayContext, sources: RegistrySources) -> None:
        super().__init__(gateway)
        self.sources = sources

    def probe(self, _ctx: StepContext) -> ProbeResult:
        if self.gateway.container() is None:
            return absent("no container yet")
        if self._desired_files() == self._current_files():
            return done(self._summary() or "no registries are set")
        return partial("the node's files differ from the setting")

    def run(self, ctx: StepContext) -> None:
        # Before the first write, so that no event, error or record contains a login.
        for login in self.sources.logins.values():
            ctx.secret(login.ref, login.reveal())
            # The password alone too: a message may quote it without the user name.
            ctx.secret(login.ref, login.text().partition(":")[2])
        engine, name, contract = self.gateway.engine, self.gateway.object_name, self.gateway.contract
        desired, current = self._desired_files(), self._current_files()
        # Two requests: after a kill between them, the probe finds a difference and the step runs again.
        if current.hosts != desired.hosts:
            directory = PurePosixPath(contract.registries_path)
            replace_directory(engine, name, str(directory.parent), directory.name, desired.hosts)
        if current.auth_file != desired.auth_file:
            path = PurePosixPath(contract.logins_path).relative_to(contract.state_path)
            write_private_file(engine, name, contract.state_path, str(path), desired.auth_file)
        ctx.note(self._summary() or "removed the files of earlier settings")

    def _desired_files(self) -> NodeRegistryFiles:
        return render_registry_files(self.sources, self.gateway.contract.registries_path)

    def _current_files(self) -> NodeRegistryFiles:
        engine, name, contract = self.gateway.engine, self.gateway.object_name, self.gateway.contract
        return NodeRegistryFiles(
            hosts=read_directory(engine, name, contract.registries_path) or {},
            auth_file=read_file(engine, name, contract.logins_path) or EMPTY_AUTH_FILE,
        )

    def _summary(self) -> str:
        return ", ".join(registry_hosts(self.sources.registries))
