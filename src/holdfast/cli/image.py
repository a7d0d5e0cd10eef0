"""`holdfast image build | push | list`: holdfast's images, and local images in a gateway."""

from __future__ import annotations

import click

from holdfast.cli.click_extensions import LazyGroup, complete_with, flag_option, gateway_option, json_option
from holdfast.cli.output import format_table, print_result, progress_renderer

_COMMANDS = {
    "build": ("holdfast.cli.image:build", "Build the node, gateway and sandbox images."),
    "push": ("holdfast.cli.image:push", "Push local images into a running gateway."),
    "list": ("holdfast.cli.image:list_images", "List holdfast's images and whether each is up to date."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def image() -> None:
    """Build and list holdfast's images; push local images into a gateway."""


@click.command()
@click.argument("images", nargs=-1)
@flag_option("--refresh", text="Install the newest Debian packages even if nothing else changed.")
@click.option(
    "--kubernetes", metavar="MINOR", default="", help="Kubernetes version of the node image, such as 1.33."
)
@json_option
def build(images: tuple[str, ...], refresh: bool, kubernetes: str) -> None:
    """Build IMAGES (node, gateway, sandbox; default: all) from package registries.

    Images that are up to date are not rebuilt. Rerun the command to continue an interrupted build.
    """
    from holdfast.images import build_images

    with progress_renderer() as renderer:
        result = build_images(images, refresh=refresh, kubernetes=kubernetes, bus=renderer.bus)
    count = sum(built.changed for built in result)
    built = f"Built {count} of {len(result)} images."
    print_result(result, [built if count else "All images are up to date. Nothing was built."])


@click.command()
@click.argument(
    "images", nargs=-1, required=True, metavar="IMAGE...", shell_complete=complete_with("complete_images")
)
@gateway_option
@json_option
def push(images: tuple[str, ...], gateway: str | None) -> None:
    """Push each IMAGE from the local container engine into a running gateway, so that its pods can use it.

    Images that the gateway already has are not sent. Rerun the command to continue an interrupted push.
    """
    from holdfast.gateway import commands, resolve_gateway_name

    name = resolve_gateway_name(gateway)
    with progress_renderer() as renderer:
        result = commands.push(name, images, renderer.bus)
    line = f"Gateway {name} already has these images. Nothing was sent."
    if result.pushed:
        line = f"Pushed into gateway {name}: {', '.join(result.pushed)}."
    print_result(result, [line])


@click.command("list")
@flag_option("--check", text="Exit with 1 unless every image is up to date.")
@json_option
@click.pass_context
def list_images(ctx: click.Context, check: bool) -> None:
    """List holdfast's images and whether each is up to date with its sources."""
    from holdfast.images import image_states

    states = image_states()
    rows = [("IMAGE", "STATE", "SIZE", "ID")]
    rows += [
        (state.reference, state.state, f"{state.size / 1e6:.0f} MB" if state.size else "", state.id[7:19])
        for state in states
    ]
    print_result(states, format_table(rows))
    if check and any(state.state != "up to date" for state in states):
        ctx.exit(1)
