"""What the setting `registries` refers to, read from this machine: CA files and logins.

Read when a plan is made, so that a file that is missing ends the command before anything was changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import BadSettingError
from holdfast.gateway.registries import Sources
from holdfast.gateway.settings_logins import read_login

if TYPE_CHECKING:
    from holdfast.gateway.settings_model import Registries

_LARGEST = 1 << 20
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


def read_sources(registries: Registries) -> Sources:
    """The setting with its CA files and logins; the first that cannot be read is an error that names it."""
    logins = {host: read_login(registries, host) for host in registries.credentials}
    return Sources(
        registries=registries,
        logins={host: login for host, login in logins.items() if login is not None},
        authorities={host: _authority(host, Path(path)) for host, path in registries.ca_files.items()},
    )


def _authority(host: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST)
    except OSError as error:
        raise _refusal(host, path, error.strerror or type(error).__name__) from None
    if b"PRIVATE KEY-----" in content:
        raise _refusal(host, path, "there is a private key in it, and a node needs the certificate alone")
    if _CERTIFICATE not in content:
        raise _refusal(host, path, "there is no PEM certificate in it")
    return content


def _refusal(host: str, path: Path, why: str) -> BadSettingError:
    return BadSettingError(
        f"registries.ca_files: the CA file of {host} cannot be had from {path}: {why}",
        hint="registries.ca_files says where a registry's CA certificate is, as a PEM file.",
    )
