"""Results on stdout: lines for people, one JSON object for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


def show(result: Any, lines: Sequence[str], *, as_json: bool) -> None:
    """Print a result in the form that was asked for."""
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
        return
    for line in lines:
        click.echo(line)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with their columns aligned; the first row is the heading."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
