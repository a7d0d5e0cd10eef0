"""`holdfast image build | save | load | push | list`: holdfast's images, and local images in a gateway."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from holdfast.cli.click_extensions import (
    LazyGroup,
    complete_with,
    flag_option,
    gateway_option,
    is_json_requested,
    json_option,
)
from holdfast.cli.output import format_table, print_result, progress_renderer
from holdfast.cli.parameters import EXISTING_FILE, FILE, HOLDFAST_IMAGE, IMAGE, KUBERNETES

_COMMANDS = {
    "build": ("holdfast.cli.image:build", "Build the node, gateway and sandbox images."),
    "save": ("holdfast.cli.image:save", "Save built images to an archive for other machines."),
    "load": ("holdfast.cli.image:load", "Load the images of an archive."),
    "push": ("holdfast.cli.image:push", "Push local images into a running gateway."),
    "list": ("holdfast.cli.image:list_images", "List holdfast's images and whether each is up to date."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def image() -> None:
    """Build, save, load and list holdfast's images; push local images into a gateway."""


_STREAM = Path("-")
_image_names = click.argument("images", type=HOLDFAST_IMAGE, nargs=-1)


@click.command()
@_image_names
@flag_option("--refresh", text="Install the newest Debian packages even if nothing else changed.")
@click.option(
    "--kubernetes",
    type=KUBERNETES,
    metavar="MINOR",
    help="Kubernetes version of the node image, such as 1.33.",
)
@json_option
def build(images: tuple[str, ...], refresh: bool, kubernetes: str | None) -> None:
    """Build IMAGES from package registries: node, gateway and sandbox by default, or sandbox-full.

    Images that are up to date are not rebuilt. Rerun the command to continue an interrupted build.
    """
    from holdfast.gateway import read_proxy, resolve_settings
    from holdfast.images import build_images

    proxy = read_proxy(resolve_settings().settings.proxy)
    with progress_renderer() as renderer:
        result = build_images(
            images,
            refresh=refresh,
            kubernetes=kubernetes or "",
            proxy=proxy.variables if proxy else None,
            secrets=proxy.secrets if proxy else (),
            bus=renderer.bus,
        )
    count = sum(built.changed for built in result)
    built = f"Built {count} of {len(result)} images."
    print_result(result, [built if count else "All images are up to date. Nothing was built."])


@click.command()
@click.argument("file", type=FILE)
@_image_names
@json_option
def save(file: Path, images: tuple[str, ...]) -> None:
    """Save IMAGES to FILE, or to standard output if FILE is -.

    The default is node, gateway and sandbox. `holdfast image load` loads the archive on another machine with
    the same architecture and the same version of holdfast.
    """
    from holdfast.images import save_images

    if file == _STREAM:
        _check_output_is_free()
    with progress_renderer() as renderer:
        target = sys.stdout.buffer if file == _STREAM else file
        result = save_images(target, images, bus=renderer.bus)
    if file != _STREAM:
        names = ", ".join(saved.reference for saved in result.images)
        print_result(result, [f"Saved to {file}, {result.size / 1e6:.0f} MB: {names}."])


def _check_output_is_free() -> None:
    from holdfast.errors import UsageError

    if is_json_requested():
        raise UsageError("standard output: needed for the archive", hint="Omit --json, or name a file.")
    if sys.stdout.isatty():
        raise UsageError("standard output: a terminal", hint="Name a file, or redirect the output.")


@click.command()
@click.argument("file", type=EXISTING_FILE)
@json_option
def load(file: Path) -> None:
    """Load the images of FILE, which `holdfast image save` created; - reads standard input.

    Images that the container engine already has are not loaded again. Nothing is loaded from a damaged
    archive.
    """
    from holdfast.images import load_images

    with progress_renderer() as renderer:
        result = load_images(sys.stdin.buffer if file == _STREAM else file, bus=renderer.bus)
    loaded = [image.reference for image in result if image.changed]
    line = "The container engine already has these images. Nothing was loaded."
    print_result(result, [f"Loaded {', '.join(loaded)}." if loaded else line])


@click.command()
@click.argument(
    "images",
    type=IMAGE,
    nargs=-1,
    required=True,
    metavar="IMAGE...",
    shell_complete=complete_with("complete_images"),
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
@flag_option("--check", text="Exit with 1 unless node, gateway and sandbox are up to date.")
@json_option
@click.pass_context
def list_images(ctx: click.Context, check: bool) -> None:
    """List holdfast's images and whether each is up to date with its sources.

    An optional image that does not exist yet is `not built`; build it by name.
    """
    from holdfast.images import image_states

    states = image_states()
    rows = [("IMAGE", "STATE", "SIZE", "ID")]
    rows += [
        (state.reference, state.state, f"{state.size / 1e6:.0f} MB" if state.size else "", state.id[7:19])
        for state in states
    ]
    print_result(states, format_table(rows))
    if check and any(state.state != "up to date" for state in states if not state.optional):
        ctx.exit(1)
