"""Results on stdout: lines for people, one JSON object for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine import Plan

_PLAN_FOUND_CHANGES = 5


def show(result: Any, lines: Sequence[str], *, as_json: bool) -> None:
    """Print a result in the form that was asked for."""
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
        return
    for line in lines:
        click.echo(line)


def show_plan(plan: Plan, *, as_json: bool) -> None:
    """Print what would be done and why; the exit code says whether there is anything."""
    lines = []
    for step in plan:
        lines.append(f"{step.action:<7} {step.title}: {step.reason}")
        lines += [f"{'':<7} touches {data}" for data in step.touches]
    show(plan, lines, as_json=as_json)
    if plan.changes:
        click.get_current_context().exit(_PLAN_FOUND_CHANGES)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with their columns aligned; the first row is the heading."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
