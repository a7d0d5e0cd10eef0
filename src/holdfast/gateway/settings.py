"""The gateway's settings: flag, else `HOLDFAST_*` variable, else `holdfast.toml`, else default.

    settings = load({"port": 16443})            # of flags, those that were given
    for setting in explain(resolve()):          # each value, and who said so
        print(setting.key, setting.value, setting.where)

Every value that anybody gives is checked, also one that a stronger source overrides. A list or table is taken
as a whole from the strongest source. Secrets are never settings: `registries.credentials` says where a login
is, and settings_logins.py reads it when it is needed. Not here: what the settings do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.gateway import settings_sources as sources
from holdfast.gateway.settings_model import (
    Attempts,
    Certificates,
    Registries,
    Settings,
    Timeouts,
    Workspace,
    leaves,
)
from holdfast.gateway.settings_values import Refused, read_value
from holdfast.gateway.settings_words import allowed, bad_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.gateway.settings_sources import Given, SourceKind

__all__ = [
    "Attempts",
    "Certificates",
    "Registries",
    "Resolved",
    "Setting",
    "Settings",
    "Timeouts",
    "Workspace",
    "explain",
    "load",
    "resolve",
]


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, and who said what."""

    settings: Settings
    origins: dict[str, tuple[SourceKind, str]]
    files: tuple[str, ...] = ()

    def is_given(self, key: str) -> bool:
        """Whether somebody said this, so that it is no mere default."""
        return key in self.origins


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as a person wants to see it; there is no secret in it."""

    key: str
    value: Any
    source: SourceKind
    where: str
    default: Any
    variable: str
    description: str
    allowed: str


def load(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Settings:
    """The settings that count here; `flags` are by key, None where nothing was said."""
    return resolve(flags, environ=environ, cwd=cwd).settings


def resolve(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Resolved:
    """The settings that count here, and where each comes from."""
    environ = os.environ if environ is None else environ
    folder = cwd if cwd is not None else _current_folder()
    base = folder or Path("/")
    files = sources.find_files(environ, folder)
    weakest_first: list[Iterator[Given]] = [
        *(sources.from_file(path) for path in reversed(files)),
        sources.from_environment(environ, base),
        sources.from_flags(flags or {}, base),
    ]
    values: dict[str, Any] = {}
    origins: dict[str, tuple[SourceKind, str]] = {}
    for source in weakest_first:
        for given in source:
            values[given.key] = _checked(given)
            origins[given.key] = (given.kind, given.where)
    sources.refuse_unknown_variables(environ, _referred(values))
    settings = msgspec.convert(_nested(values), type=Settings)
    return Resolved(settings=settings, origins=origins, files=tuple(map(str, files)))


def explain(resolved: Resolved) -> list[Setting]:
    """Every setting with its value and its source, in the order of the model."""
    explained = []
    for leaf in leaves().values():
        value: Any = resolved.settings
        for part in leaf.key.split("."):
            value = getattr(value, part)
        source, where = resolved.origins.get(leaf.key, ("default", "default"))
        explained.append(
            Setting(
                key=leaf.key,
                value=value,
                source=source,
                where=where,
                default=leaf.default,
                variable=leaf.variable,
                description=leaf.description,
                allowed=allowed(leaf),
            )
        )
    return explained


def _checked(given: Given) -> Any:
    leaf = leaves()[given.key]
    try:
        value = read_value(leaf.kind, given.raw, given.base)
    except Refused as refusal:
        raise bad_value(leaf, given.raw, given.where, str(refusal)) from None
    try:
        return msgspec.convert(value, type=leaf.type)
    except msgspec.ValidationError:
        raise bad_value(leaf, given.raw, given.where, "it is out of range") from None


def _referred(values: Mapping[str, Any]) -> frozenset[str]:
    logins: Mapping[str, str] = values.get("registries.credentials", {})
    return frozenset(login.removeprefix("env:") for login in logins.values() if login.startswith("env:"))


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in values.items():
        group, dot, name = key.partition(".")
        if dot:
            nested.setdefault(group, {})[name] = value
        else:
            nested[key] = value
    return nested


def _current_folder() -> Path | None:
    """The current folder, or None when it was removed under us."""
    try:
        return Path.cwd()
    except OSError:
        return None
