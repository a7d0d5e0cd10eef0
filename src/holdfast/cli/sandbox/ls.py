"""`holdfast sandbox ls`: list the files in a directory of a sandbox."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import click

from holdfast.cli.click_extensions import complete_with, flag_option
from holdfast.cli.output import escape_control_characters, format_table, print_result
from holdfast.cli.parameters import SANDBOX_LOCATION
from holdfast.cli.sandbox.common import open_sandbox, sandbox_options
from holdfast.errors import PathNotDirectoryError

if TYPE_CHECKING:
    from holdfast.client import FileEntry

_TYPE_BITS = {"file": stat.S_IFREG, "directory": stat.S_IFDIR, "symlink": stat.S_IFLNK, "other": 0}


@click.command("ls")
@flag_option("--long", "-l", text="Show mode, size and time of each entry, and the targets of links.")
@sandbox_options
@click.argument(
    "directory",
    type=SANDBOX_LOCATION,
    metavar="NAME[:PATH]",
    shell_complete=complete_with("complete_sandbox_paths"),
)
def list_files(directory: tuple[str, str], *, long: bool, gateway: str | None) -> None:
    """List the entries of directory PATH in sandbox NAME, or a single file.

    A relative PATH starts in /sandbox, which is the default. Hidden entries are listed too. Control
    characters in names are escaped.
    """
    name, path = directory
    with open_sandbox(name, gateway) as (sandbox, _):
        try:
            entries = sandbox.files.list(path)
        except PathNotDirectoryError:
            entries = [sandbox.files.stat(path)]
    if long:
        lines = format_table([_long_row(entry) for entry in entries]) if entries else []
    else:
        lines = [escape_control_characters(_decodable(entry.name)) for entry in entries]
    print_result({"entries": [_decodable_entry(entry) for entry in entries]}, lines)


def _long_row(entry: FileEntry) -> tuple[str, ...]:
    target = f" -> {entry.link_target}" if entry.link_target is not None else ""
    mode = stat.filemode(_TYPE_BITS[entry.type] | entry.mode)
    name = escape_control_characters(_decodable(entry.name + target))
    return (mode, str(entry.size), f"{entry.mtime:%Y-%m-%d %H:%M:%S}", name)


def _decodable_entry(entry: FileEntry) -> FileEntry:
    import msgspec

    texts = {"name": entry.name, "path": entry.path, "link_target": entry.link_target}
    changes = {key: _decodable(text) for key, text in texts.items() if text is not None}
    return msgspec.structs.replace(entry, **changes)


def _decodable(text: str) -> str:
    """A name with bytes that are not valid UTF-8 as escape sequences."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
