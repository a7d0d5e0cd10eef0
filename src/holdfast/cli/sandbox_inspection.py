"""`holdfast sandbox list | get | logs`: the commands that only look."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option
from holdfast.cli.progress import progress
from holdfast.cli.results import show, table
from holdfast.cli.sandbox_common import gateway_option, opened, sandbox_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.sandbox.wire import SandboxView

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@click.command("list")
@click.option("--label", "-l", metavar="KEY=VALUE", help="Only those with this label.")
@gateway_option
@json_option
def list_sandboxes(label: str | None, gateway: str | None, as_json: bool) -> None:
    """List the sandboxes of a gateway."""
    with progress(as_json=as_json) as shown, opened(gateway, shown).sandboxes() as found:
        views = list(found.list(label=label))
    rows = [("NAME", "PHASE", "REASON", "IMAGE", "POD IP", "AGE")]
    rows += [
        (
            view.name, str(view.phase), "" if view.phase == "Ready" else view.reason, view.image or "",
            view.pod_ip or "", _age(view.created),
        )
        for view in views
    ]  # fmt: skip
    lines = table(rows) if views else ["No sandboxes yet. Make one: holdfast sandbox create NAME"]
    show({"sandboxes": views}, lines, as_json=as_json)


@click.command()
@sandbox_argument
@gateway_option
@json_option
def get(name: str, gateway: str | None, as_json: bool) -> None:
    """Show how sandbox NAME is right now."""
    with progress(as_json=as_json) as shown, opened(gateway, shown).sandbox(name) as box:
        view = box.get()
    show(view, list(_facts(view)), as_json=as_json)


@click.command()
@sandbox_argument
@click.option("--follow", "-f", is_flag=True, help="Go on as lines come; Ctrl-C ends it.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last lines.")
@click.option("--previous", "-p", is_flag=True, help="Of the container that ran before.")
@click.option("--container", "-c", metavar="CONTAINER", help="Which one, where there are several.")
@gateway_option
@json_option
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
    as_json: bool,
) -> None:
    """Show what the program of sandbox NAME prints."""
    with progress(as_json=as_json) as shown, opened(gateway, shown).sandbox(name) as box:
        pieces = box.logs(follow=follow, tail=tail, previous=previous, container=container)
        try:
            for piece in _lines(pieces) if as_json else pieces:
                _print(piece, as_json=as_json)
        except KeyboardInterrupt:
            if not follow:
                raise
            ctx.exit(130)


def _print(piece: bytes, *, as_json: bool) -> None:
    if as_json:
        show({"line": piece.decode(errors="replace")}, [], as_json=True)
        return
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _facts(view: SandboxView) -> Iterator[str]:
    space = view.workspace
    facts = [
        ("sandbox", view.name), ("id", view.id), ("phase", str(view.phase)), ("reason", view.reason),
        ("message", view.message), ("image", view.image), ("pod", view.pod),
        ("pod ip", ", ".join(view.pod_ips)), ("node", view.node),
        ("workspace", f"{space.size or '?'} in claim {space.claim} ({space.phase})" if space else "none"),
        ("on delete", ("its data stays" if space.kept else "its data goes with it") if space else ""),
        ("template", view.template), ("claim", view.claim), ("created", view.created),
        ("shutdown", view.shutdown_time),
    ]  # fmt: skip
    yield from (f"{key:<10} {value}" for key, value in facts if value)
    for condition in view.conditions:
        why = ": ".join(part for part in (condition.reason, condition.message) if part)
        yield f"condition  {condition.type}={condition.status}" + (f" ({why})" if why else "")
    yield from (f"note       {note}" for note in view.notes)


def _age(created: str | None) -> str:
    """How old it is, in the largest whole unit."""
    if not created:
        return ""
    seconds = int((datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds())
    for unit, letter in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= unit:
            return f"{seconds // unit}{letter}"
    return f"{max(seconds, 0)}s"
