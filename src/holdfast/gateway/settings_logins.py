"""A registry's login, read by its reference at the moment it is needed, and kept nowhere.

The file or variable holds one line, `user:password`. Not here: who uses it, and Docker's own login files.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.secret import Secret
from holdfast.errors import BadSettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.gateway.settings_model import Registries

_KEY = "registries.credentials"
_LARGEST = 16 * 1024


def read_login(
    registries: Registries, host: str, *, environ: Mapping[str, str] | None = None
) -> Secret | None:
    """The login for a registry host as `user:password`, or None where none is set; no error quotes it."""
    reference = registries.credentials.get(host)
    if reference is None:
        return None
    kind, _, name = reference.partition(":")
    if kind == "env":
        text = (os.environ if environ is None else environ).get(name)
        if text is None:
            raise _refusal(host, reference, "the variable is not set")
    else:
        text = _content(host, reference, Path(name))
    text = text.strip()
    user, colon, password = text.partition(":")
    if not user or not colon or not password or not text.isprintable():
        raise _refusal(host, reference, "there is no line like user:password")
    return Secret(f"{_KEY}/{host}", text)


def _content(host: str, reference: str, path: Path) -> str:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise _refusal(host, reference, f"others may read the file (mode {mode:04o}): chmod 600 it")
        with path.open("rb") as file:
            return file.read(_LARGEST).decode()
    except OSError as error:
        raise _refusal(host, reference, error.strerror or type(error).__name__) from None
    except UnicodeDecodeError:
        raise _refusal(host, reference, "it is no text") from None


def _refusal(host: str, reference: str, why: str) -> BadSettingError:
    return BadSettingError(
        f"{_KEY}: the login of {host} cannot be had from {reference}: {why}",
        hint=f"{_KEY} says where one line user:password is: file:PATH (mode 0600) or env:NAME.",
    )
