"""`holdfast up` and `holdfast upgrade`: bring a gateway to a state, or print the plan for it."""

from __future__ import annotations

from typing import Any

import click

from holdfast import gateway  # its exports are imported on first use
from holdfast.cli.click_extensions import (
    complete_with,
    confirm_by_name,
    flag_option,
    gateway_argument,
    json_option,
    verbose_option,
)
from holdfast.cli.output import print_plan, print_result, steps_renderer
from holdfast.cli.parameters import ADDRESS, GATEWAY, GPUS, IMAGE, PORT_OR_AUTO, REMOTE, SETTING_SECONDS

_plan_option = flag_option(
    "--plan", text="Print what would change, and change nothing. Exit code 5: there are changes."
)


@click.command()
@gateway_argument
@click.option(
    "--image", type=IMAGE, help="Node image; default: the gateway's current image, or else holdfast's own.",
    shell_complete=complete_with("complete_images"),
)  # fmt: skip
@click.option(
    "--port",
    type=PORT_OR_AUTO,
    help="Port of the Kubernetes API on this machine: a number, or auto (default).",
)
@click.option(
    "--listen",
    type=ADDRESS,
    metavar="ADDRESS",
    help="Address that the ports are published on; default: 127.0.0.1.",
)
@click.option(
    "--gpus", type=GPUS, metavar="IDS", help="GPUs of the node: all, none, or comma-separated device IDs."
)
@click.option(
    "--push-image", "push_images", type=IMAGE, multiple=True, metavar="IMAGE",
    help="Local image to push into the node; can be repeated.",
    shell_complete=complete_with("complete_images"),
)  # fmt: skip
@click.option(
    "--remote", type=REMOTE, metavar="USER@HOST", help="Create the gateway on another host, over ssh."
)
@click.option(
    "--timeout", type=SETTING_SECONDS, metavar="SECONDS", help="Time limit for the node to become ready."
)
@flag_option("--recreate", text="Recreate the container and the network; keep the data.")
@flag_option("--wipe", text="Recreate the gateway WITHOUT its data; this deletes every workspace.")
@click.option(
    "--yes", type=GATEWAY, metavar="NAME", help="Confirm --wipe with the exact name of the gateway."
)
@flag_option("--use", text="Make the gateway the active one even if another one is active.")
@_plan_option
@verbose_option
@json_option
def up(  # noqa: PLR0913 (one for each option)
    name: str | None,
    *,
    timeout: str | None,
    push_images: tuple[str, ...],
    remote: str | None,
    recreate: bool,
    wipe: bool,
    yes: str | None,
    use: bool,
    plan: bool,
    verbose: bool,
    **settings: Any,
) -> None:
    """Create, resume or repair gateway NAME.

    Rerun the command after a failure: it continues where it stopped. Parts that match the settings stay
    unchanged.
    """
    settings |= {"push_images": push_images or None, "timeouts.node_ready": timeout}
    resolved = gateway.resolve_settings(settings)
    name = gateway.resolve_gateway_name(name, for_up=True)
    options = gateway.UpOptions(remote=remote, recreate=recreate, wipe=wipe, use=use)
    if plan:
        print_plan(gateway.commands.plan_up(name, resolved=resolved, options=options), verbose=verbose)
        return
    if wipe:
        confirm_by_name(name, f"wiping gateway {name} and ALL its data", yes=yes)
    with steps_renderer(verbose=verbose) as renderer:
        result = gateway.commands.up(name, renderer.bus, resolved=resolved, options=options)
    if result.changed:
        lines = [
            f"Gateway {result.name} is ready at {result.server}.",
            f"kubectl --kubeconfig {result.kubeconfig} get nodes",
        ]
    else:
        lines = [f"Gateway {result.name} is ready at {result.server}. Nothing had to be changed."]
    lines += result.notes
    active = gateway.active_gateway()
    if active not in (None, result.name):
        lines.append(f"Gateway {active} stays active. Run `holdfast use {result.name}` to change that.")
    print_result(result, lines)


@click.command()
@gateway_argument
@click.option(
    "--image", type=IMAGE, help="Node image; default: the image of this holdfast version.",
    shell_complete=complete_with("complete_images"),
)  # fmt: skip
@click.option(
    "--timeout", type=SETTING_SECONDS, metavar="SECONDS", help="Time limit for the new node to become ready."
)
@_plan_option
@verbose_option
@json_option
def upgrade(name: str | None, image: str | None, timeout: str | None, plan: bool, verbose: bool) -> None:
    """Upgrade gateway NAME to another node image and keep its data.

    The command copies the datastore first. If the new node does not become healthy, it rolls back to the old
    node and that copy; workspaces stay unchanged. Rerun the command after a failure: it continues where it
    stopped.
    """
    resolved = gateway.resolve_settings({"image": image, "timeouts.node_ready": timeout})
    name = gateway.resolve_gateway_name(name)
    if plan:
        print_plan(gateway.commands.plan_upgrade(name, resolved=resolved), verbose=verbose)
        return
    with steps_renderer(verbose=verbose) as renderer:
        result = gateway.commands.upgrade(name, renderer.bus, resolved=resolved)
    line = f"Gateway {result.name} already runs the image {result.image}."
    if result.upgraded_to:
        line = (
            f"Gateway {result.name} was upgraded from Kubernetes {result.upgraded_from} to "
            f"{result.upgraded_to} ({result.image}). The snapshot {result.snapshot} is kept."
        )
    print_result(result, [line])
