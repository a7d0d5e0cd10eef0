"""`holdfast sandbox cp`: files and folders into a sandbox, or out of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option
from holdfast.cli.progress import progress
from holdfast.cli.results import show
from holdfast.cli.sandbox_common import gateway_option, opened, stage
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.cli.sandbox_common import Stage

_IN_A_SANDBOX = re.compile(r"([a-z0-9][-a-z0-9]{0,62}):(.*)", re.DOTALL)
_KIB = 1024.0


@click.command("cp")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@gateway_option
@json_option
@click.pass_context
def copy(ctx: click.Context, source: str, target: str, gateway: str | None, as_json: bool) -> None:
    """Copy SOURCE to TARGET; one of them is NAME:PATH, in sandbox NAME. Folders are copied with all in them.

    PATH begins in /sandbox unless it is absolute. Onto a folder that is there, or a TARGET that ends in /,
    the copy goes inside. A local path with a colon is written with ./ in front. What leads out of the copy,
    such as a link to /etc, is not copied; it is named, and the exit code is 1.
    """
    there, here = _IN_A_SANDBOX.fullmatch(source), _IN_A_SANDBOX.fullmatch(target)
    if (there is None) == (here is None):
        raise UsageError(
            "one of SOURCE and TARGET must be in a sandbox, and the other one here",
            hint="Write NAME:PATH for the one in the sandbox.",
        )
    found = there or here
    assert found is not None  # noqa: S101 (one of the two)
    name, path = found[1], found[2] or "."
    with (
        progress(as_json=as_json) as shown,
        opened(gateway, shown).sandbox(name) as box,
        stage(shown, "copy", f"{source} → {target}") as at,
    ):
        if there:
            done = box.download(path, target, progress=_counted(at, 0))
        else:
            done = box.upload(source, path, progress=_counted(at, _size(source)))
        at.note = f"{_count(done.entries)}, {_amount(done.bytes)}"
    for each in done.left_out:
        click.echo(f"left out: {each}", err=True)
    show(done, [f"Copied {_count(done.entries)} to {done.target}."], as_json=as_json)
    ctx.exit(1 if done.left_out else 0)


def _counted(at: Stage, total: int) -> Callable[[int], None]:
    done = 0

    def tell(more: int) -> None:
        nonlocal done
        done += more
        if total:
            at.progress(f"{_amount(done)} of {_amount(total)}", min(done / total, 1.0))
        else:
            at.progress(_amount(done))

    return tell


def _size(source: str) -> int:
    from holdfast.sandbox.sdk.packing import size_of

    try:
        return size_of(Path(source))
    except OSError:
        return 0  # that it is not there is said by the copy itself


def _count(entries: int) -> str:
    return "1 entry" if entries == 1 else f"{entries} entries"


def _amount(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < _KIB:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= _KIB
    return f"{count:.1f} GiB"
