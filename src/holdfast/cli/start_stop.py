"""`holdfast start | stop | restart | use | destroy`: change the state of an existing gateway."""

from __future__ import annotations

import click

from holdfast import gateway  # its exports are imported on first use
from holdfast.cli.click_extensions import (
    confirm_by_name,
    flag_option,
    gateway_argument,
    json_option,
    verbose_option,
)
from holdfast.cli.output import print_result, steps_renderer
from holdfast.cli.parameters import GATEWAY


@click.command()
@gateway_argument
@verbose_option
@json_option
def stop(name: str | None, verbose: bool) -> None:
    """Stop gateway NAME: first its pods, then the datastore. All data is kept."""
    with steps_renderer(verbose=verbose) as renderer:
        result = gateway.commands.stop(gateway.resolve_gateway_name(name), renderer.bus)
    state = "is stopped" if result.changed else "was already stopped"
    print_result(result, [f"Gateway {result.name} {state}."])


@click.command()
@gateway_argument
@verbose_option
@json_option
def start(name: str | None, verbose: bool) -> None:
    """Start gateway NAME and wait until it is ready; its pods restart with their data."""
    with steps_renderer(verbose=verbose) as renderer:
        result = gateway.commands.start(gateway.resolve_gateway_name(name), renderer.bus)
    print_result(result, [f"Gateway {result.name} is ready at {result.server}."])


@click.command()
@gateway_argument
@verbose_option
@json_option
def restart(name: str | None, verbose: bool) -> None:
    """Stop gateway NAME, start it and wait until it is ready."""
    with steps_renderer(verbose=verbose) as renderer:
        result = gateway.commands.restart(gateway.resolve_gateway_name(name), renderer.bus)
    print_result(result, [f"Gateway {result.name} is ready at {result.server}."])


@click.command()
@gateway_argument
@json_option
def use(name: str | None) -> None:
    """Make gateway NAME the active one, or print the active one.

    Commands without the name of a gateway use the active one, unless HOLDFAST_GATEWAY names another one.
    """
    requested = gateway.requested_gateway_name(None)
    if name is not None:
        gateway.use_gateway(name)
    active = gateway.active_gateway()
    line = active or "No gateway is active."
    print_result({"active": active}, [f"Gateway {active} is active." if name else line])
    if requested not in (None, active):
        click.echo(f"HOLDFAST_GATEWAY={requested} takes precedence.", err=True)


@click.command()
@gateway_argument
@flag_option("--data", text="Also delete the volume with every workspace on it.")
@click.option("--yes", type=GATEWAY, metavar="NAME", help="Confirm with the exact name of the gateway.")
@verbose_option
@json_option
def destroy(name: str | None, data: bool, yes: str | None, verbose: bool) -> None:
    """Remove the container and the network of gateway NAME; keep its data unless --data is given."""
    name = gateway.resolve_gateway_name(name)
    # Read first: `destroy` removes the metadata.
    metadata = gateway.read_metadata(name)
    if not gateway.commands.exists(name):
        _report_missing(name)
        return
    scope = "with ALL its data" if data else "(its data is kept)"
    confirm_by_name(name, f"destroying gateway {name} {scope}", yes=yes)
    with steps_renderer(verbose=verbose) as renderer:
        result = gateway.commands.destroy(name, with_data=data, bus=renderer.bus)
    remote = f" --remote {metadata.remote}" if metadata and metadata.remote else ""
    kept = "" if data else f" Its data is kept. Run `holdfast up {name}{remote}` to use it again."
    line = f"Gateway {name} is removed.{kept}" if result.changed else f"Gateway {name} does not exist."
    print_result(result, [line])


def _report_missing(name: str) -> None:
    """Report that there is nothing to destroy: an error, unless this machine has destroyed the gateway."""
    if not gateway.GatewayFiles(name).state.exists():
        gateway.check_recorded(name)
    result = gateway.commands.GatewayResult(name=name, run="", changed=())
    print_result(result, [f"Gateway {name} does not exist."])
