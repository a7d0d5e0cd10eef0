"""`holdfast sandbox get | logs`: read-only commands about one sandbox."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.checked_type import integer
from holdfast.cli.click_extensions import flag_option, is_json_requested
from holdfast.cli.output import escape_control_characters, format_age, print_result
from holdfast.cli.sandbox.common import (
    container_option,
    open_sandbox,
    sandbox_argument,
    sandbox_options,
)
from holdfast.cli.sandbox.listing import check_output, output_option, print_in_format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.api import EventView, SandboxView, WorkspaceView


@click.command()
@sandbox_argument
@output_option("yaml", "name", "json")
@sandbox_options
def get(name: str, output: str | None, gateway: str | None) -> None:
    """Show the current state of sandbox NAME and the recent events of its objects."""
    check_output(output)
    with open_sandbox(name, gateway) as (sandbox, _):
        view = sandbox.get()
    # Messages can contain output of programs in the sandbox; each stays on one line.
    print_in_format(output, view, [view.name], map(escape_control_characters, _detail_lines(view)))


@click.command()
@sandbox_argument
@flag_option("--follow", "-f", text="Keep printing new lines until Ctrl-C.")
@click.option("--tail", type=integer(0), metavar="LINES", help="Number of lines from the end.")
@flag_option("--previous", "-p", text="Print the logs of the previous container.")
@container_option
@sandbox_options
@click.pass_context
def logs(
    ctx: click.Context,
    name: str,
    *,
    follow: bool,
    tail: int | None,
    previous: bool,
    container: str | None,
    gateway: str | None,
) -> None:
    """Print the logs of sandbox NAME."""
    with open_sandbox(name, gateway) as (sandbox, _):
        chunks = sandbox.logs(follow=follow, tail=tail, previous=previous, container=container)
        try:
            for chunk in _split_lines(chunks) if is_json_requested() else chunks:
                _print_chunk(chunk)
        except KeyboardInterrupt:
            if not follow:
                raise
            ctx.exit(130)


def _print_chunk(chunk: bytes) -> None:
    if is_json_requested():
        print_result({"line": chunk.decode(errors="replace")}, [])
        return
    # Bytes: a chunk can end inside a character, and a program may write any encoding.
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _split_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _detail_lines(view: SandboxView) -> Iterator[str]:
    from holdfast.sandbox import reserved_label_reason

    workspace = view.workspace
    labels = [f"{key}={value}" for key, value in view.labels.items() if not reserved_label_reason(key)]
    resources = [f"{name} {limit}" for name, limit in (("cpu", view.cpu), ("memory", view.memory)) if limit]
    fields = [
        ("sandbox", view.name), ("id", view.id), ("phase", str(view.phase)), ("reason", view.reason),
        ("message", view.message), ("labels", ", ".join(labels)), ("image", view.image),
        ("command", shlex.join(view.command or ())), ("args", shlex.join(view.args or ())),
        ("resources", ", ".join(resources)), ("pod", view.pod),
        ("pod ip", ", ".join(view.pod_ips)), ("node", view.node),
        ("workspace", _describe_workspace(workspace)),
        ("on delete", ("keep the data" if workspace.kept else "delete the data") if workspace else ""),
        ("template", view.template), ("claimed by", view.sandbox_claim), ("created", view.created),
        ("shutdown", view.shutdown_time), ("idle", _describe_idle_suspension(view)),
    ]  # fmt: skip
    yield from (f"{key:<10} {value}" for key, value in fields if value)
    for condition in view.conditions:
        why = ": ".join(part for part in (condition.reason, condition.message) if part)
        yield f"condition  {condition.type}={condition.status}" + (f" ({why})" if why else "")
    yield from (f"note       {note}" for note in view.notes)
    yield from (f"event      {_describe_event(event)}" for event in view.events)


def _describe_event(event: EventView) -> str:
    times = f" {event.count} times, last" if event.count > 1 else ""
    seen = f"{times} {format_age(event.last_seen)} ago"
    return f"{event.type} {event.reason} {event.object}{seen}: {event.message}"


def _describe_workspace(workspace: WorkspaceView | None) -> str:
    if workspace is None:
        return "none"
    limit = "" if workspace.size_enforced else ", size not enforced"
    return f"{workspace.size or '?'} in PVC {workspace.pvc} ({workspace.phase}){limit}"


def _describe_idle_suspension(view: SandboxView) -> str:
    if view.idle_suspend_after is None:
        return ""
    return f"suspended after {view.idle_suspend_after} s without use; last used {view.last_used or 'never'}"
