"""Reads fault scripts: TOML with one `[[rule]]` table for each rule; what is wrong is named by its key.

    seed = 7

    [[rule]]
    fault = ["reset-after", "leader-changed"]
    methods = ["POST", "DELETE"]
    probability = 0.3

Not here: what rules mean (`rules`).
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.testing.faults.rules import FaultScriptError, Rule, rule

if TYPE_CHECKING:
    from pathlib import Path


class Script(NamedTuple):
    """The rules of a script, and its seed if it names one."""

    rules: tuple[Rule, ...]
    seed: int | None = None


def load_script(path: Path) -> Script:
    """Read a script from a file."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FaultScriptError(f"{path}: cannot be read: {error}") from error
    try:
        return parse_script(text)
    except FaultScriptError as error:
        raise FaultScriptError(f"{path}: {error}") from error


def parse_script(text: str) -> Script:
    """Read a script from its text."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FaultScriptError(f"not TOML: {error}") from error
    seed, tables = content.pop("seed", None), content.pop("rule", [])
    for key in content:
        raise FaultScriptError(f"{key}: unknown key; a script has `seed` and `[[rule]]` tables")
    if seed is not None and type(seed) is not int:
        raise FaultScriptError(f"seed: {seed!r} is no whole number")
    if not isinstance(tables, list):
        raise FaultScriptError("rule: write `[[rule]]`, once for each rule")
    return Script(tuple(_rule(table, number) for number, table in enumerate(tables, start=1)), seed)


def _rule(table: Any, number: int) -> Rule:
    where = f"rule {number}"
    if not isinstance(table, dict):
        raise FaultScriptError(f"{where}: is no table")
    if isinstance(table.get("name"), str):
        where += f" ({table['name']})"
    settings = dict(table)
    named = settings.pop("fault", None)
    if named is None:
        raise FaultScriptError(f"{where}: fault: is missing")
    faults = named if isinstance(named, list) else [named]
    for fault in faults:
        if not isinstance(fault, str | dict):
            raise FaultScriptError(f"{where}: fault: {fault!r} is neither a name nor a table with a `kind`")
    if "faults" in settings:
        raise FaultScriptError(f"{where}: faults: unknown key; write `fault`")
    try:
        return rule(*faults, **settings)
    except FaultScriptError as error:
        raise FaultScriptError(f"{where}: {error}") from error
