"""`holdfast image build | push | list`: the images that holdfast uses, and yours in a gateway."""

from __future__ import annotations

import click

from holdfast.cli.group import LazyGroup
from holdfast.cli.options import json_option
from holdfast.cli.progress import progress
from holdfast.cli.results import show, table

_COMMANDS = {
    "build": ("holdfast.cli.image:build", "Build the node, gateway and sandbox images."),
    "push": ("holdfast.cli.image:push", "Put local images into a running gateway."),
    "list": ("holdfast.cli.image:list_images", "List the images, and whether each is up to date."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def image() -> None:
    """Build and list the images that holdfast uses; put your own into a gateway."""


@click.command()
@click.argument("images", nargs=-1)
@click.option("--refresh", is_flag=True, help="Take new Debian packages even if nothing else changed.")
@click.option(
    "--kubernetes", metavar="MINOR", default="", help="The node image with another Kubernetes (1.33, say)."
)
@json_option
def build(images: tuple[str, ...], refresh: bool, kubernetes: str, as_json: bool) -> None:
    """Build IMAGES (node, gateway, sandbox; all of them by default) from package registries alone.

    What is up to date is not built again. A build that was interrupted goes on where it was.
    """
    from holdfast.images.build import build_images

    with progress(as_json=as_json) as shown:
        result = build_images(images, refresh=refresh, kubernetes=kubernetes, bus=shown.bus)
    count = sum(built.changed for built in result)
    line = (
        f"Built {count} of {len(result)} images."
        if count
        else "All images are up to date. Nothing was changed."
    )
    show(result, [line], as_json=as_json)


@click.command()
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@click.option("--gateway", metavar="NAME", help="Which gateway; the active one by default.")
@json_option
def push(images: tuple[str, ...], gateway: str | None, as_json: bool) -> None:
    """Put each IMAGE of this machine's engine into a running gateway, so that its pods can use it.

    An image that is there already is not sent. A push that was cut is run again and goes on.
    """
    from holdfast.gateway import commands
    from holdfast.gateway.spec import resolve_name

    name = resolve_name(gateway)
    with progress(as_json=as_json) as shown:
        result = commands.push(name, images, shown.bus)
    sent = ", ".join(result.pushed)
    line = f"In gateway {name} now: {sent}." if sent else f"Gateway {name} had all of it. Nothing was sent."
    show(result, [line], as_json=as_json)


@click.command("list")
@click.option("--check", is_flag=True, help="Exit with 1 unless every image is up to date.")
@json_option
def list_images(check: bool, as_json: bool) -> None:
    """List the images, and whether each is up to date with its sources."""
    from holdfast.images.build import image_states

    states = image_states()
    rows = [("IMAGE", "STATE", "SIZE", "ID")]
    rows += [
        (state.reference, state.state, f"{state.size / 1e6:.0f} MB" if state.size else "", state.id[7:19])
        for state in states
    ]
    show(states, table(rows), as_json=as_json)
    if check and any(state.state != "up to date" for state in states):
        click.get_current_context().exit(1)
