"""`holdfast top`: the CPU, memory and disk that sandboxes use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.checked_type import CheckedType, InvalidValueError
from holdfast.cli.click_extensions import (
    flag_option,
    gateway_option,
    is_json_requested,
    json_option,
    name_gateway,
)
from holdfast.cli.output import (
    UNKNOWN,
    format_age,
    format_bytes,
    format_cores,
    format_table,
    print_result,
    progress_renderer,
    supports_escapes,
)
from holdfast.cli.parameters import SECONDS

if TYPE_CHECKING:
    from holdfast.api import NodeUsage, SandboxUsage, UsageReport

_CLEAR_SCREEN = "\x1b[H\x1b[2J"
_HEADING = ("NAME", "PHASE", "CPU", "MEMORY", "WORKSPACE", "DISK", "AGE")


def _parse_interval(text: str) -> float:
    seconds = SECONDS.parse(text)
    if seconds < 1:
        raise InvalidValueError("less than 1")
    return seconds


_INTERVAL = CheckedType(_parse_interval, "seconds as a number of at least 1", example="5")


@click.command()
@flag_option("--watch", "-w", text="Print the usage again and again until Ctrl-C.")
@click.option(
    "--interval", type=_INTERVAL, default=5.0, show_default=True, metavar="SECONDS",
    help="Time between two reports of --watch.",
)  # fmt: skip
@gateway_option
@json_option
@click.pass_context
def top(ctx: click.Context, *, watch: bool, interval: float, gateway: str | None) -> None:
    """Show what each sandbox of a gateway uses of its limits, and what its node uses.

    CPU is in cores: 250m is a quarter of one. DISK is what a sandbox has written outside its workspace. A
    figure that is not known is shown as -.
    """
    from holdfast.gateway import Gateway, resolve_gateway_name
    from holdfast.retry import sleep

    name = resolve_gateway_name(gateway)
    with (
        progress_renderer() as renderer,
        Gateway(name, listener=renderer.bus.emit).sandboxes() as sandboxes,
    ):
        if not watch:
            _print_report(sandboxes.usage())
            return
        try:
            while True:
                _print_report(sandboxes.usage(), is_repeated=True)
                sleep(interval)
        except KeyboardInterrupt:
            ctx.exit(130)


def _print_report(report: UsageReport, *, is_repeated: bool = False) -> None:
    # Pipes and files get one report after the other.
    if is_repeated and not is_json_requested() and supports_escapes(sys.stdout):
        # `echo` would escape it.
        click.echo(_CLEAR_SCREEN, nl=False, color=True)
    print_result(report, _report_lines(report))


def _report_lines(report: UsageReport) -> list[str]:
    rows = [_HEADING, *(_sandbox_row(usage) for usage in report.sandboxes)]
    empty = name_gateway("No sandboxes yet. Create one with `holdfast sandbox create work`.")
    lines = format_table(rows) if report.sandboxes else [empty]
    if report.node is not None:
        lines += ["", _node_line(report.node)]
    return [*lines, *report.notes]


def _sandbox_row(usage: SandboxUsage) -> tuple[str, ...]:
    return (
        usage.name,
        str(usage.phase),
        _share(format_cores(usage.cpu), format_cores(usage.cpu_limit)),
        _share(format_bytes(usage.memory), format_bytes(usage.memory_limit)),
        _share(format_bytes(usage.workspace), format_bytes(usage.workspace_size)),
        format_bytes(usage.disk),
        format_age(usage.created),
    )


def _node_line(node: NodeUsage) -> str:
    parts = (
        ("cpu", format_cores(node.cpu), format_cores(node.cpu_capacity)),
        ("memory", format_bytes(node.memory), format_bytes(node.memory_capacity)),
        ("disk", format_bytes(node.disk), format_bytes(node.disk_capacity)),
    )
    figures = ", ".join(f"{name} {_share(used, total)}" for name, used, total in parts)
    return f"Node {node.name}: {figures}"


def _share(used: str, total: str) -> str:
    return used if total == UNKNOWN else f"{used}/{total}"
