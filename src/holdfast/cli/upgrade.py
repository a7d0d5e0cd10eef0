"""`holdfast upgrade`: another node image for a gateway, with a way back."""

from __future__ import annotations

import click

from holdfast.cli.options import json_option, name_argument
from holdfast.cli.progress import progress
from holdfast.cli.results import show, show_plan

_PLAN_FOUND_CHANGES = 5


@click.command()
@name_argument
@click.option("--image", help="The node image; by default the one of this version of holdfast.")
@click.option("--timeout", metavar="SECONDS", help="How long the new node may take to become ready.")
@click.option(
    "--plan", is_flag=True, help="Show what would be done and why; change nothing. Exit code 5: something."
)
@json_option
def upgrade(name: str | None, image: str | None, timeout: str | None, plan: bool, as_json: bool) -> None:
    """Bring gateway NAME to another node image, on the same data.

    The datastore is copied first. When the new node does not become healthy, the old one comes back by
    itself, with the datastore as it was; workspaces stay as they are. The same command goes on from
    wherever it stopped.
    """
    from holdfast.gateway import commands
    from holdfast.gateway.settings import resolve
    from holdfast.gateway.spec import resolve_name

    resolved = resolve({"image": image, "timeouts.node_ready": timeout})
    gateway = resolve_name(name)
    if plan:
        show_plan(commands.plan_upgrade(gateway, resolved=resolved), as_json=as_json)
        return
    with progress(as_json=as_json) as shown:
        result = commands.upgrade(gateway, shown.bus, resolved=resolved)
    line = f"Gateway {result.name} has the image {result.image} already."
    if result.upgraded_to:
        line = (
            f"Gateway {result.name} runs Kubernetes {result.upgraded_to} ({result.image}) now; "
            f"before: {result.upgraded_from}. The snapshot {result.snapshot} is kept."
        )
    show(result, [line], as_json=as_json)
