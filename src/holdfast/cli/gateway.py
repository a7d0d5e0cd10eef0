"""`holdfast up | stop | start | restart | destroy`: the commands that change a gateway."""

from __future__ import annotations

import sys

import click

from holdfast.cli.options import PortType, json_option, name_argument
from holdfast.cli.progress import progress
from holdfast.cli.results import show, show_plan
from holdfast.errors import UsageError


@click.command()
@name_argument
@click.option("--image", help="The node image; by default the one that `holdfast image build` makes.")
@click.option(
    "--port", type=PortType(), help="Port of the API on 127.0.0.1: a number, or auto (the default)."
)
@click.option("--listen", metavar="ADDRESS", help="Address to open the ports on; 127.0.0.1 by default.")
@click.option(
    "--gpus", metavar="IDS", help="GPUs for the node: all, none, or device ids with commas between them."
)
@click.option(
    "--push-image",
    "push_images",
    multiple=True,
    metavar="IMAGE",
    help="A local image to put into the node; may be given more than once.",
)
@click.option(
    "--remote", metavar="USER@HOST", help="Make it on another host, by ssh; later commands go there too."
)
@click.option("--timeout", metavar="SECONDS", help="How long the node may take to become ready.")
@click.option(
    "--recreate", is_flag=True, help="Make container and network anew, whatever they are like. Data stays."
)
@click.option(
    "--wipe", is_flag=True, help="Begin anew WITHOUT the data: every workspace is removed. No way back."
)
@click.option("--yes", metavar="NAME", help="Do not ask before --wipe; takes the gateway's exact name.")
@click.option(
    "--plan", is_flag=True, help="Show what would be done and why; change nothing. Exit code 5: something."
)
@json_option
def up(  # noqa: PLR0913, PLR0917 (one for each option)
    name: str | None,
    image: str | None,
    port: int | str | None,
    listen: str | None,
    gpus: str | None,
    push_images: tuple[str, ...],
    remote: str | None,
    timeout: str | None,
    recreate: bool,
    wipe: bool,
    yes: str | None,
    plan: bool,
    as_json: bool,
) -> None:
    """Bring gateway NAME up: create it, resume it or repair it.

    The same command goes on from wherever an earlier one stopped. Nothing that is there and fits is touched.
    """
    from holdfast.gateway import commands
    from holdfast.gateway.settings import resolve
    from holdfast.gateway.spec import resolve_name
    from holdfast.gateway.work import Asked

    resolved = resolve(
        {
            "image": image,
            "port": port,
            "listen": listen,
            "gpus": gpus,
            "push_images": push_images or None,
            "timeouts.node_ready": timeout,
        }
    )
    gateway = resolve_name(name, for_up=True)
    asked = Asked(remote=remote, recreate=recreate, wipe=wipe)
    if plan:
        show_plan(commands.plan_up(gateway, resolved=resolved, asked=asked), as_json=as_json)
        return
    if wipe:
        _confirm(gateway, f"wiping gateway {gateway} and ALL its data", yes=yes)
    with progress(as_json=as_json) as shown:
        result = commands.up(gateway, shown.bus, resolved=resolved, asked=asked)
    changed = "" if result.changed else " Nothing had to be changed."
    show(
        result,
        [
            f"Gateway {result.name} is ready at {result.server}.{changed}",
            f"kubectl --kubeconfig {result.kubeconfig} get nodes",
        ],
        as_json=as_json,
    )


@click.command()
@name_argument
@json_option
def stop(name: str | None, as_json: bool) -> None:
    """Stop gateway NAME: pods first, the datastore last. All data stays."""
    from holdfast.gateway import commands
    from holdfast.gateway.spec import resolve_name

    with progress(as_json=as_json) as shown:
        result = commands.stop(resolve_name(name), shown.bus)
    line = (
        f"Gateway {result.name} is stopped."
        if result.changed
        else f"Gateway {result.name} was stopped already."
    )
    show(result, [line], as_json=as_json)


@click.command()
@name_argument
@json_option
def start(name: str | None, as_json: bool) -> None:
    """Start gateway NAME and wait until it is ready; its pods come back with their data."""
    from holdfast.gateway import commands
    from holdfast.gateway.spec import resolve_name

    with progress(as_json=as_json) as shown:
        result = commands.start(resolve_name(name), shown.bus)
    show(result, [f"Gateway {result.name} is ready at {result.server}."], as_json=as_json)


@click.command()
@name_argument
@json_option
def restart(name: str | None, as_json: bool) -> None:
    """Stop gateway NAME and start it again."""
    from holdfast.gateway import commands
    from holdfast.gateway.spec import resolve_name

    gateway = resolve_name(name)
    with progress(as_json=as_json) as shown:
        result = commands.restart(gateway, shown.bus)
    show(result, [f"Gateway {result.name} is ready at {result.server}."], as_json=as_json)


@click.command()
@name_argument
@click.option(
    "--data", is_flag=True, help="Remove the volume too, with every workspace on it. There is no way back."
)
@click.option("--yes", metavar="NAME", help="Do not ask; takes the gateway's exact name.")
@json_option
def destroy(name: str | None, data: bool, yes: str | None, as_json: bool) -> None:
    """Take gateway NAME away: container and network. Its data stays unless --data names it."""
    from holdfast.gateway import commands
    from holdfast.gateway.spec import read_metadata, resolve_name

    gateway = resolve_name(name)
    known = read_metadata(gateway)
    what = "with ALL its data" if data else "(its data stays)"
    _confirm(gateway, f"destroying gateway {gateway} {what}", yes=yes)
    with progress(as_json=as_json) as shown:
        result = commands.destroy(gateway, with_data=data, bus=shown.bus)
    again = f"holdfast up {gateway}{f' --remote {known.remote}' if known and known.remote else ''}"
    kept = "" if data else f" Its data is kept: `{again}` brings it back."
    line = (
        f"Gateway {gateway} is gone.{kept}" if result.changed else f"There was no gateway {gateway} any more."
    )
    show(result, [line], as_json=as_json)


def _confirm(gateway: str, doing: str, *, yes: str | None) -> None:
    if yes is not None:
        if yes != gateway:
            raise UsageError(
                f"--yes says {yes!r}, but the gateway is {gateway!r}; nothing was changed",
                hint=f"Write --yes {gateway} if that is the one.",
            )
        return
    if not sys.stdin.isatty():
        raise UsageError(
            f"{doing} has to be confirmed; nothing was changed",
            hint=f"Write --yes {gateway}.",
        )
    typed = click.prompt(f"This is {doing}. Type its name", default="", show_default=False, err=True)
    if typed != gateway:
        raise UsageError("that is not its name; nothing was changed")
