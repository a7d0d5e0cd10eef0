"""`holdfast start | stop | restart | destroy`: change the state of an existing gateway."""

from __future__ import annotations

import click

from holdfast.cli.click_extensions import confirm_by_name, flag_option, json_option, name_argument
from holdfast.cli.output import print_result, progress_renderer


@click.command()
@name_argument
@json_option
def stop(name: str | None) -> None:
    """Stop gateway NAME: first its pods, then the datastore. All data is kept."""
    from holdfast.gateway import commands, resolve_gateway_name

    with progress_renderer() as renderer:
        result = commands.stop(resolve_gateway_name(name), renderer.bus)
    state = "is stopped" if result.changed else "was already stopped"
    print_result(result, [f"Gateway {result.name} {state}."])


@click.command()
@name_argument
@json_option
def start(name: str | None) -> None:
    """Start gateway NAME and wait until it is ready; its pods restart with their data."""
    from holdfast.gateway import commands, resolve_gateway_name

    with progress_renderer() as renderer:
        result = commands.start(resolve_gateway_name(name), renderer.bus)
    print_result(result, [f"Gateway {result.name} is ready at {result.server}."])


@click.command()
@name_argument
@json_option
def restart(name: str | None) -> None:
    """Stop gateway NAME, start it and wait until it is ready."""
    from holdfast.gateway import commands, resolve_gateway_name

    with progress_renderer() as renderer:
        result = commands.restart(resolve_gateway_name(name), renderer.bus)
    print_result(result, [f"Gateway {result.name} is ready at {result.server}."])


@click.command()
@name_argument
@flag_option("--data", text="Also delete the volume with every workspace on it.")
@click.option("--yes", metavar="NAME", help="Confirm with the exact name of the gateway.")
@json_option
def destroy(name: str | None, data: bool, yes: str | None) -> None:
    """Remove the container and the network of gateway NAME; keep its data unless --data is given."""
    from holdfast.gateway import commands, read_metadata, resolve_gateway_name

    gateway = resolve_gateway_name(name)
    metadata = read_metadata(gateway)
    scope = "with ALL its data" if data else "(its data is kept)"
    confirm_by_name(gateway, f"destroying gateway {gateway} {scope}", yes=yes)
    with progress_renderer() as renderer:
        result = commands.destroy(gateway, with_data=data, bus=renderer.bus)
    remote = f" --remote {metadata.remote}" if metadata and metadata.remote else ""
    kept = "" if data else f" Its data is kept. Run `holdfast up {gateway}{remote}` to use it again."
    line = f"Gateway {gateway} is removed.{kept}" if result.changed else f"Gateway {gateway} does not exist."
    print_result(result, [line])
