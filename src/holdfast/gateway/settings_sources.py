"""Where settings come from: the command line, `HOLDFAST_*` variables and `holdfast.toml` files.

A file is looked for from the current folder upward to the home folder (or the root) and the nearest one
counts; below it counts the one in the configuration folder. `HOLDFAST_SETTINGS` names a file instead.
Not here: what values mean.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from holdfast import home
from holdfast.errors import BadSettingError
from holdfast.gateway.settings_model import PREFIX, groups, leaves
from holdfast.gateway.settings_words import bad_value, unknown_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE_NAME = "holdfast.toml"
FILE_VARIABLE = "HOLDFAST_SETTINGS"
COMMAND_LINE = "the command line"

SourceKind: TypeAlias = Literal["flag", "environment", "file", "default"]

_OTHER_VARIABLES = frozenset(
    PREFIX + name
    for name in (
        "HOME", "CACHE", "SETTINGS", "ENDPOINT", "API_SANS", "POD_CIDR", "SERVICE_CIDR", "MAX_PODS",
    )
)  # fmt: skip
_OTHER_FAMILIES = tuple(PREFIX + name for name in ("NODE_", "SANDBOX", "TLS_", "TEST_", "BENCH_"))
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """One value as somebody gave it: for which key, where, and the folder its relative paths start at."""

    key: str
    raw: Any
    kind: SourceKind
    where: str
    base: Path


def from_flags(flags: Mapping[str, object], cwd: Path) -> Iterator[Given]:
    """What was said on the command line, by key; None means that nothing was said."""
    for key, raw in flags.items():
        if key not in leaves():
            raise unknown_key(key, COMMAND_LINE, leaves())
        if raw is not None:
            yield Given(key=key, raw=raw, kind="flag", where=COMMAND_LINE, base=cwd)


def from_environment(environ: Mapping[str, str], cwd: Path) -> Iterator[Given]:
    """What the variables say; an empty one says nothing."""
    for leaf in leaves().values():
        raw = environ.get(leaf.variable, "")
        if raw.strip() and not _SERVICE_ADDRESS.match(raw):
            yield Given(key=leaf.key, raw=raw, kind="environment", where=leaf.variable, base=cwd)


def refuse_unknown_variables(environ: Mapping[str, str], referred: frozenset[str]) -> None:
    """Stop at a `HOLDFAST_*` variable that sets nothing, unless it is known to be for something else."""
    known = {leaf.variable for leaf in leaves().values()}
    for name, value in environ.items():
        if not name.startswith(PREFIX) or name in known | _OTHER_VARIABLES | referred:
            continue
        if name.startswith(_OTHER_FAMILIES) or _SERVICE_LINK.search(name) or _SERVICE_ADDRESS.match(value):
            continue
        raise unknown_key(name, "the environment", known)


def from_file(path: Path) -> Iterator[Given]:
    """What a settings file says."""
    where = str(path)
    for name, value in _parsed(path).items():
        if name in groups():
            if not isinstance(value, dict):
                raise BadSettingError(f"{name} is a table, not a value ({where})", hint=f"Write [{name}].")
            pairs = [(f"{name}.{inner}", found) for inner, found in value.items()]
        else:
            pairs = [(name, value)]
        for key, raw in pairs:
            if key not in leaves():
                raise unknown_key(key, where, {*leaves(), *groups()})
            if isinstance(raw, dict) and not isinstance(leaves()[key].default, dict):
                raise bad_value(leaves()[key], "{…}", where, "it is a table")
            yield Given(key=key, raw=raw, kind="file", where=where, base=path.parent)


def find_files(environ: Mapping[str, str], cwd: Path | None) -> list[Path]:
    """The settings files that count, the stronger one first."""
    named = environ.get(FILE_VARIABLE, "").strip()
    if named:
        nearest: Path | None = (cwd or Path("/")) / Path(named).expanduser()
    else:
        nearest = _nearest(cwd, environ) if cwd is not None else None
    own = home.config_dir() / FILE_NAME
    found = [nearest] if nearest is not None else []
    if _is_file(own) and not any(_same(own, other) for other in found):
        found.append(own)
    return found


def _nearest(cwd: Path, environ: Mapping[str, str]) -> Path | None:
    own = Path(environ["HOME"]) if environ.get("HOME") else None
    tops = {own, own.resolve()} if own is not None else set()
    for folder in (cwd, *cwd.parents):
        path = folder / FILE_NAME
        if _is_file(path):
            _refuse_untrusted(path, environ)
            return path
        if folder in tops:
            break
    return None


def _refuse_untrusted(path: Path, environ: Mapping[str, str]) -> None:
    """A file that was only found, not named, may have been put there by somebody else."""
    status = path.stat()
    mine = {0, os.geteuid()}
    if os.geteuid() == 0 and environ.get("SUDO_UID", "").isdigit():
        mine.add(int(environ["SUDO_UID"]))
    if status.st_uid in mine and not status.st_mode & stat.S_IWOTH:
        return
    raise BadSettingError(
        f"{path} is not used: it belongs to another user, or everybody may write it",
        hint=f"Make it yours (chown, chmod o-w), or name it with {FILE_VARIABLE}={path} if you trust it.",
    )


def _parsed(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BadSettingError(f"the settings file {path} cannot be read: {why}") from error
    except UnicodeDecodeError as error:
        raise BadSettingError(f"the settings file {path} is not UTF-8 text") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadSettingError(f"the settings file {path} is no TOML: {_place(error)}") from error


def _place(error: Exception) -> str:
    """Line and column of a mistake, without the words that stand there."""
    match = re.search(r"at line \d+, column \d+|at end of document", str(error))
    return f"a mistake {match[0]}" if match else "it cannot be parsed"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other
