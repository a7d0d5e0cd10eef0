"""`holdfast sandbox forward`: ports of this machine that lead into a sandbox, until Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.ending import tell
from holdfast.cli.options import json_option
from holdfast.cli.progress import progress
from holdfast.cli.results import show
from holdfast.cli.sandbox_common import gateway_option, opened, sandbox_argument

if TYPE_CHECKING:
    from holdfast.sandbox.sdk import Sandbox

_HIGHEST = 65535


class PortsType(click.ParamType["tuple[int, int]"]):
    """`LOCAL:REMOTE`, or one number for both; a LOCAL of 0 takes a free port."""

    name = "ports"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        local, colon, remote = str(value).partition(":")
        parts = (local, remote if colon else local)
        if not all(part.isascii() and part.isdigit() and int(part) <= _HIGHEST for part in parts):
            self.fail(f"{value!r} are no ports: write LOCAL:REMOTE, such as 8080:80.", param, ctx)
        if not int(parts[1]):
            self.fail(f"{value!r}: the port in the sandbox cannot be 0.", param, ctx)
        return int(parts[0]), int(parts[1])


@click.command()
@sandbox_argument
@click.argument("ports", nargs=-1, required=True, type=PortsType(), metavar="LOCAL:REMOTE…")
@gateway_option
@json_option
@click.pass_context
def forward(
    ctx: click.Context, name: str, ports: tuple[tuple[int, int], ...], gateway: str | None, as_json: bool
) -> None:
    """Lead ports of this machine to ports in sandbox NAME, on 127.0.0.1 alone, until Ctrl-C.

    A LOCAL port of 0 takes a free one. Any number of programs may use a port at the same time.
    """
    import asyncio

    with progress(as_json=as_json) as shown:
        box = opened(gateway, shown).sandbox(name)
    try:
        asyncio.run(_forward(box, ports, as_json=as_json))
    except KeyboardInterrupt:
        ctx.exit(130)


async def _forward(box: Sandbox, ports: tuple[tuple[int, int], ...], *, as_json: bool) -> None:
    import asyncio
    from contextlib import AsyncExitStack

    async with box as twin, AsyncExitStack() as stack:
        await twin.get()  # a name that is wrong is said now, not at the first connection
        opened_ones = []
        for local, remote in ports:
            made = await stack.enter_async_context(
                twin.forward(remote, local, failed=lambda error: tell(error, as_json=as_json))
            )
            host, port = made.address
            body = {"sandbox": twin.name, "address": host, "local_port": port, "remote_port": remote}
            show(body, [f"{host}:{port} leads to port {remote} of sandbox {twin.name}."], as_json=as_json)
            opened_ones.append(made)
        click.echo("Ctrl-C ends it.", err=True)
        await asyncio.gather(*(each.serve() for each in opened_ones))
