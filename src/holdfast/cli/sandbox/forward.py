"""`holdfast sandbox forward`: forward local ports to a sandbox until Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.click_extensions import chosen_gateway, is_json_requested, is_quiet_requested
from holdfast.cli.output import print_error, print_result
from holdfast.cli.parameters import PORT_MAPPING
from holdfast.cli.sandbox.common import event_printer, open_gateway, sandbox_argument, sandbox_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.client import Sandbox
    from holdfast.errors import HoldfastError


@click.command()
@sandbox_argument
@click.argument("ports", nargs=-1, required=True, type=PORT_MAPPING, metavar="LOCAL:REMOTE…")
@sandbox_options
@click.pass_context
def forward(ctx: click.Context, name: str, ports: tuple[tuple[int, int], ...], gateway: str | None) -> None:
    """Forward ports on 127.0.0.1 to ports in sandbox NAME until Ctrl-C.

    LOCAL 0 chooses a free port. Several programs can use a port at the same time.
    """
    import asyncio
    from functools import partial

    sandbox = open_gateway(gateway, event_printer()).sandbox(name)
    on_error = partial(print_error, as_json=is_json_requested(), gateway=chosen_gateway(ctx.obj))
    try:
        asyncio.run(_forward_ports(sandbox, ports, on_error))
    except KeyboardInterrupt:
        ctx.exit(130)


async def _forward_ports(
    sandbox: Sandbox, ports: tuple[tuple[int, int], ...], on_error: Callable[[HoldfastError], None]
) -> None:
    import asyncio
    from contextlib import AsyncExitStack

    async with sandbox as client, AsyncExitStack() as stack:
        forwards = []
        for local, remote in ports:
            opened = await stack.enter_async_context(client.forward(remote, local, on_error=on_error))
            host, port = opened.address
            body = {"sandbox": client.name, "address": host, "local_port": port, "remote_port": remote}
            print_result(body, [f"Forwarding {host}:{port} to port {remote} of sandbox {client.name}."])
            forwards.append(opened)
        if not is_quiet_requested():
            click.echo("Press Ctrl-C to stop.", err=True)
        # Ctrl-C cancels this task; the exit stack then closes all listeners and their connections.
        await asyncio.gather(*(opened.serve() for opened in forwards))
