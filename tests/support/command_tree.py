"""Every command of the command line with its path, including hidden ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli import cli
from holdfast.cli.click_extensions import LazyGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

Path = tuple[str, ...]


def all_commands(group: click.Group = cli, path: Path = ()) -> Iterator[tuple[Path, click.Command]]:
    context = click.Context(group)
    for name in group._lazy if isinstance(group, LazyGroup) else group.commands:
        command = group.get_command(context, name)
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from all_commands(command, (*path, name))


def is_flag(parameter: click.Parameter) -> bool:
    """Whether a parameter takes no value."""
    return isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count)
