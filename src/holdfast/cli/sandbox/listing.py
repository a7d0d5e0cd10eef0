"""`holdfast sandbox list`: the sandboxes of a gateway, and their changes; `-o` as in kubectl."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.checked_type import ChoiceType
from holdfast.cli.click_extensions import JSON_KEY, flag_option, is_json_requested, name_gateway
from holdfast.cli.output import (
    escape_control_characters,
    format_age,
    format_table,
    print_result,
    print_yaml,
)
from holdfast.cli.sandbox.bulk import selector_option
from holdfast.cli.sandbox.common import open_sandboxes, sandbox_options
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from holdfast.api import SandboxChange, SandboxView

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS = ("NAME", "PHASE", "REASON", "IMAGE", "POD IP", "AGE")
_WIDE_COLUMNS = ("POD", "NODE", "CPU", "MEMORY", "WORKSPACE", "TEMPLATE")
_AGE = _COLUMNS.index("AGE")
# Columns of a watched table have at least this width, because rows that follow may be longer than the first.
_MIN_WATCH_WIDTHS = (16, 9, 20, 24, 12, 4)


def _store_output(ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value == JSON_KEY:
        ctx.ensure_object(dict)[JSON_KEY] = True
    return value


def output_option(*formats: str) -> Callable[[F], F]:
    """`-o`, as in kubectl; `-o json` is the same as `--json`."""
    return click.option(
        "--output",
        "-o",
        type=ChoiceType(lambda: formats, example=formats[0]),
        callback=_store_output,
        help="Format of the result.",
    )


def check_output(output: str | None) -> None:
    """Reject `--json` with another format; to be called before any request."""
    if is_json_requested() and output not in (None, JSON_KEY):
        raise UsageError(f"--output {output}: cannot be combined with --json")


def print_in_format(output: str | None, value: Any, names: Iterable[str], lines: Iterable[str]) -> None:
    """Print a result on stdout in the format that the user chose.

    Args:
        output: the value of `-o`.
        value: the object for JSON and YAML.
        names: the names for `-o name`.
        lines: the text.
    """
    if output == "yaml":
        print_yaml(value)
    elif output == "name":
        for name in names:
            click.echo(name)
    else:
        print_result(value, list(lines))


@click.command("list")
@selector_option("List only sandboxes with these labels, as in kubectl: 'a=b,c in (d, e),!f'.")
@flag_option("--watch", "-w", text="Print the sandboxes, then each change until Ctrl-C.")
@output_option("wide", "yaml", "name", "json")
@sandbox_options
@click.pass_context
def list_sandboxes(
    ctx: click.Context, selector: str | None, *, watch: bool, output: str | None, gateway: str | None
) -> None:
    """List the sandboxes of a gateway."""
    check_output(output)
    with open_sandboxes(gateway) as (sandboxes, _):
        if watch:
            try:
                _print_changes(sandboxes.watch(selector=selector), output)
            except KeyboardInterrupt:
                ctx.exit(130)
            return
        views = sorted(sandboxes.list(selector=selector), key=lambda view: view.name)
    is_wide = output == "wide"
    rows = [_columns(is_wide), *(_cells(view, is_wide=is_wide) for view in views)]
    lines = format_table(rows) if views else [_empty_text(selector)]
    print_in_format(output, {"sandboxes": views}, (view.name for view in views), lines)
    if not views and output == "name":
        click.echo(_empty_text(selector), err=True)


def _print_changes(changes: Iterator[SandboxChange], output: str | None) -> None:
    table = _WatchedTable(is_wide=output == "wide")
    for change in changes:
        if output == "yaml":
            click.echo("---")
        name = change.sandbox.name
        print_in_format(output, change, [name], [] if is_json_requested() else table.lines_for(change))


class _WatchedTable:
    """The lines of a table whose rows arrive one after another; a column can only become wider."""

    def __init__(self, *, is_wide: bool) -> None:
        self._is_wide = is_wide
        self._widths: list[int] = []
        self._shown: dict[str, tuple[str, ...]] = {}

    def lines_for(self, change: SandboxChange) -> Iterator[str]:
        """The row of a changed sandbox; none if the table shows nothing of the change."""
        name, cells = change.sandbox.name, _cells(change.sandbox, is_wide=self._is_wide)
        if change.type == "deleted":
            cells = (cells[0], "Deleted", "", *cells[3:])
        without_age = (*cells[:_AGE], *cells[_AGE + 1 :])
        if self._shown.get(name) == without_age:
            return
        self._shown[name] = without_age
        if change.type == "deleted":
            del self._shown[name]
        if not self._widths:
            headings = _columns(self._is_wide)
            minima = _MIN_WATCH_WIDTHS + (0,) * (len(headings) - len(_MIN_WATCH_WIDTHS))
            self._widths = [max(len(text), least) for text, least in zip(headings, minima, strict=True)]
            self._fit(cells)
            yield self._align(headings)
        self._fit(cells)
        yield self._align(cells)

    def _fit(self, cells: tuple[str, ...]) -> None:
        self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, cells, strict=True)]

    def _align(self, cells: tuple[str, ...]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True))
        return "  ".join(padded).rstrip()


def _columns(is_wide: bool) -> tuple[str, ...]:
    return _COLUMNS + _WIDE_COLUMNS if is_wide else _COLUMNS


def _cells(view: SandboxView, *, is_wide: bool) -> tuple[str, ...]:
    """The row of a sandbox; other clients of the cluster can influence every text in it."""
    reason = "" if view.phase == "Ready" else view.reason
    cells = [view.name, str(view.phase), reason, view.image, view.pod_ip, format_age(view.created)]
    if is_wide:
        size = view.workspace.size if view.workspace else None
        cells += [view.pod, view.node, view.cpu, view.memory, size, view.template]
    return tuple(escape_control_characters(cell or "") for cell in cells)


def _empty_text(selector: str | None) -> str:
    if selector is not None:
        return f"No sandboxes match the selector {selector}."
    return name_gateway("No sandboxes yet. Create one with `holdfast sandbox create work`.")
