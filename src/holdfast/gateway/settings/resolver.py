"""Resolve the settings: flag, else `HOLDFAST_*` variable, else `holdfast.toml`, else default.

    resolved = resolve_settings({"port": 16443})         # flags by key
    for setting in explain_settings(resolved):           # each value and its source
        print(setting.key, setting.value, setting.where)

Every value is checked, also one that a stronger source overrides. A list or table comes from one source as a
whole. Secrets are never settings: `registries.credentials` names where a login is.

The search for `holdfast.toml` goes from the current directory up to the home directory (or the root); the
nearest file wins over the one in the configuration directory. `HOLDFAST_SETTINGS` names a file instead.
"""

from __future__ import annotations

import os
import re
import stat
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from holdfast import home
from holdfast.errors import HoldfastError, InvalidSettingError
from holdfast.gateway.settings.models import (
    ENV_PREFIX,
    SettingField,
    Settings,
    setting_fields,
    setting_tables,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

FILE_NAME = "holdfast.toml"
FILE_VARIABLE = "HOLDFAST_SETTINGS"
COMMAND_LINE = "the command line"

SourceKind: TypeAlias = Literal["flag", "environment", "file", "default"]

_OTHER_VARIABLES = frozenset(
    ENV_PREFIX + name
    for name in (
        "HOME", "CACHE", "SETTINGS", "GATEWAY", "ENDPOINT", "API_SANS", "POD_CIDR", "SERVICE_CIDR",
        "MAX_PODS",
    )
)  # fmt: skip
_OTHER_PREFIXES = tuple(ENV_PREFIX + name for name in ("NODE_", "SANDBOX", "TLS_", "TEST_", "BENCH_"))
# Kubernetes sets such variables in every pod of a namespace that has a Service `holdfast-...`.
_SERVICE_LINK_VARIABLE = re.compile(
    r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_MAX_QUOTE_LENGTH = 60


class ResolvedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, and the source of each that is not a default."""

    settings: Settings
    origins: dict[str, tuple[SourceKind, str]]

    def is_explicit(self, key: str) -> bool:
        """Whether a flag, a variable or a file sets this key."""
        return key in self.origins


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The value of one setting and its source; never contains a secret."""

    key: str
    value: Any
    source: SourceKind
    where: str


class RawSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One unchecked value: its key, its source, and the directory that its relative paths start at."""

    key: str
    raw: Any
    kind: SourceKind
    where: str
    base: Path


def resolve_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> ResolvedSettings:
    """Return the effective settings and the source of each.

    Args:
        flags: values by key; None means that the flag was not used.
        environ: the environment; default: that of this process.
        cwd: where the search for `holdfast.toml` starts; default: the current directory.

    Raises:
        InvalidSettingError: A key is unknown or a value is invalid.
    """
    environ = os.environ if environ is None else environ
    cwd = _current_directory() if cwd is None else cwd
    files = find_files(environ, cwd)
    base = cwd or Path("/")
    raw_settings = [raw for path in reversed(files) for raw in _from_file(path, environ)]
    raw_settings += [*_from_environment(environ, base), *_from_flags(flags or {}, base)]
    values: dict[str, Any] = {}
    for raw in raw_settings:  # weakest source first
        values[raw.key] = _convert(raw)
    logins = [*values.get("registries.credentials", {}).values(), values.get("proxy.credentials") or ""]
    _reject_unknown_variables(environ, logins)
    nested: dict[str, Any] = {}
    for key, value in values.items():
        table, _, name = key.rpartition(".")
        (nested.setdefault(table, {}) if table else nested)[name] = value
    return ResolvedSettings(
        settings=msgspec.convert(nested, type=Settings),
        origins={raw.key: (raw.kind, raw.where) for raw in raw_settings},
    )


def check_setting(key: str, value: object) -> None:
    """Check the value of one setting as if a flag set it.

    Raises:
        InvalidSettingError: The key is unknown or the value is invalid.
    """
    for raw in _from_flags({key: value}, _current_directory() or Path("/")):
        _convert(raw)


def explain_settings(resolved: ResolvedSettings) -> list[Setting]:
    """Return the value of every setting and its source, in the order of the model."""
    explained = []
    for key in setting_fields():
        value = attrgetter(key)(resolved.settings)
        source, where = resolved.origins.get(key, ("default", "default"))
        explained.append(Setting(key=key, value=value, source=source, where=where))
    return explained


def _convert(raw: RawSetting) -> Any:
    field = setting_fields()[raw.key]
    text = raw.raw.strip() if isinstance(raw.raw, str) else raw.raw
    try:
        value = field.value_type.parse(text, raw.base)
        return msgspec.convert(value, type=field.type, strict=not isinstance(text, str))
    except msgspec.ValidationError:
        reason = ""
    except HoldfastError as error:
        reason = error.message
    except ValueError as error:
        reason = str(error)
    raise _invalid_value_error(field, raw, reason)


def _invalid_value_error(field: SettingField, raw: RawSetting, reason: str) -> InvalidSettingError:
    quoted = repr(raw.raw) if field.value_type.is_quotable else ""
    if len(quoted) > _MAX_QUOTE_LENGTH:
        quoted = f"{quoted[: _MAX_QUOTE_LENGTH - 1]}…"
    return InvalidSettingError(
        f"{field.key}: invalid value{quoted and ' '}{quoted} from {raw.where}{reason and ': '}{reason}",
        hint=f"Set {field.key} to {field.value_type.allowed}.",
    )


def _unknown_key_error(key: str, where: str, known_keys: Iterable[str]) -> InvalidSettingError:
    from difflib import get_close_matches

    names = sorted(known_keys)
    close = get_close_matches(key, names, n=1, cutoff=0.7)
    hint = f"Did you mean {close[0]}?" if close else f"Use one of: {', '.join(names)}."
    return InvalidSettingError(f"{key}: unknown setting (from {where})", hint=hint)


def _from_flags(flags: Mapping[str, object], cwd: Path) -> Iterator[RawSetting]:
    for key, raw in flags.items():
        if key not in setting_fields():
            raise _unknown_key_error(key, COMMAND_LINE, setting_fields())
        if raw is not None:
            yield RawSetting(key=key, raw=raw, kind="flag", where=COMMAND_LINE, base=cwd)


def _from_environment(environ: Mapping[str, str], cwd: Path) -> Iterator[RawSetting]:
    for field in setting_fields().values():
        raw = environ.get(field.variable, "")
        # In a namespace with a Service `holdfast`, Kubernetes sets HOLDFAST_PORT=tcp://ADDRESS:PORT in pods.
        if raw.strip() and not _SERVICE_ADDRESS.match(raw):
            yield RawSetting(key=field.key, raw=raw, kind="environment", where=field.variable, base=cwd)


def _reject_unknown_variables(environ: Mapping[str, str], logins: Iterable[str]) -> None:
    """Reject a `HOLDFAST_*` variable that is not a setting, not a login and not for another program."""
    variables = {field.variable for field in setting_fields().values()}
    known = variables | _OTHER_VARIABLES | {login.removeprefix("env:") for login in logins}
    # The error quotes the name only: the value of a mistyped variable may be a login.
    for name, value in environ.items():
        if (
            name.startswith(ENV_PREFIX)
            and name not in known
            and not name.startswith(_OTHER_PREFIXES)
            and not _SERVICE_LINK_VARIABLE.search(name)
            and not _SERVICE_ADDRESS.match(value)
        ):
            raise _unknown_key_error(name, "the environment", variables)


def _from_file(path: Path, environ: Mapping[str, str]) -> Iterator[RawSetting]:
    where = str(path)
    for name, value in _parse_file(path, environ).items():
        pairs = {name: value}
        if name in setting_tables():
            if not isinstance(value, dict):
                raise InvalidSettingError(
                    f"{name}: not a table (from {where})", hint=f"Write its keys below [{name}]."
                )
            pairs = {f"{name}.{key}": inner for key, inner in value.items()}
        for key, raw in pairs.items():
            if key not in setting_fields():
                raise _unknown_key_error(key, where, {*setting_fields(), *setting_tables()})
            yield RawSetting(key=key, raw=raw, kind="file", where=where, base=path.parent)


def find_files(environ: Mapping[str, str], cwd: Path | None) -> list[Path]:
    """The settings files to read, the strongest first."""
    named = environ.get(FILE_VARIABLE, "").strip()
    if named:
        nearest: Path | None = (cwd or Path("/")) / os.path.expanduser(named)  # noqa: PTH111 (never raises)
    else:
        nearest = _find_nearest_file(cwd, environ) if cwd is not None else None
    files = [nearest] if nearest is not None else []
    own = home.config_dir() / FILE_NAME
    if os.path.isfile(own) and os.path.realpath(own) not in map(os.path.realpath, files):  # noqa: PTH113 (never raises)
        files.append(own)
    return files


def _find_nearest_file(cwd: Path, environ: Mapping[str, str]) -> Path | None:
    user_home = Path(environ["HOME"]) if environ.get("HOME") else None
    for directory in (cwd, *cwd.parents):
        path = directory / FILE_NAME
        if os.path.isfile(path):  # noqa: PTH113 (never raises)
            return path
        # The search ends here: directories above the home directory do not belong to this user.
        if user_home is not None and directory in (user_home, user_home.resolve()):
            break
    return None


def _check_file_trusted(path: Path, status: os.stat_result, environ: Mapping[str, str]) -> None:
    """Reject a found file that another user may have written: it could choose the node image."""
    trusted = {0, os.geteuid()}
    # `sudo` sets SUDO_UID and ignores the caller's value, so root can trust the files of that user.
    if os.geteuid() == 0 and environ.get("SUDO_UID", "").isdigit():
        trusted.add(int(environ["SUDO_UID"]))
    if status.st_uid in trusted and not status.st_mode & stat.S_IWOTH:
        return
    raise InvalidSettingError(
        f"{path}: owned by another user, or writable by everyone",
        hint=f"Fix it with chown and chmod o-w, or set {FILE_VARIABLE}={path} if you trust it.",
    )


def _parse_file(path: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    import tomllib

    is_found = not environ.get(FILE_VARIABLE, "").strip() and path != home.config_dir() / FILE_NAME
    try:
        with path.open("rb") as file:
            if is_found:
                # The open file, not its path: another user could replace the file after the check.
                _check_file_trusted(path, os.fstat(file.fileno()), environ)
            return tomllib.load(file)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidSettingError(f"{path}: cannot read the settings file: {reason}") from error
    except UnicodeDecodeError as error:
        raise InvalidSettingError(f"{path}: the settings file is not UTF-8 text") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        # The position only: the text of the error may quote a secret.
        position = re.search(r"at line \d+, column \d+|at end of document", str(error))
        raise InvalidSettingError(
            f"{path}: the settings file is not valid TOML{f' ({position[0]})' if position else ''}"
        ) from error


def _current_directory() -> Path | None:
    """The current directory, or None if it was removed."""
    try:
        return Path.cwd()
    except OSError:
        return None
