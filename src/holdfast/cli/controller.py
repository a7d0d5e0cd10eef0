"""`holdfast controller …`: the reconcilers of sandboxes, pools and claims as one process."""

from __future__ import annotations

from pathlib import Path

import click

_port = click.IntRange(1, 65535)


@click.group()
def controller() -> None:
    """The controller that makes sandboxes out of Sandbox objects."""


@controller.command()
@click.option(
    "--kubeconfig",
    envvar="HOLDFAST_CONTROLLER_KUBECONFIG",
    type=click.Path(path_type=Path),
    help="The cluster to work on. Default: the one that this runs in.",
)
@click.option(
    "--namespace",
    "namespaces",
    envvar="HOLDFAST_CONTROLLER_NAMESPACES",
    multiple=True,
    help="Only these namespaces. Default: all of them.",
)
@click.option(
    "--lease-namespace",
    envvar="HOLDFAST_CONTROLLER_LEASE_NAMESPACE",
    default="default",
    show_default=True,
    help="Where the Lease is that says which one of several controllers works.",
)
@click.option(
    "--lease-name",
    envvar="HOLDFAST_CONTROLLER_LEASE_NAME",
    default="holdfast-controller",
    show_default=True,
)
@click.option(
    "--identity",
    envvar="HOLDFAST_CONTROLLER_IDENTITY",
    default="",
    help="What this one is called in the Lease. Default: a new name each time.",
)
@click.option(
    "--network-policies",
    envvar="HOLDFAST_CONTROLLER_NETWORK_POLICIES",
    type=click.Choice(["enforced", "ignored"]),
    default="enforced",
    show_default=True,
    help="What the cluster's network makes of them; where they are ignored, sandboxes say so.",
)
@click.option("--host", envvar="HOLDFAST_CONTROLLER_HOST", default="0.0.0.0", show_default=True)  # noqa: S104
@click.option("--port", envvar="HOLDFAST_CONTROLLER_PORT", type=_port, default=8082, show_default=True)
def run(
    kubeconfig: Path | None,
    namespaces: tuple[str, ...],
    lease_namespace: str,
    lease_name: str,
    identity: str,
    network_policies: str,
    host: str,
    port: int,
) -> None:
    """Work until a signal ends it; health and metrics are served on the port."""
    from holdfast.controller.run import Options
    from holdfast.controller.run import run as run_controller

    run_controller(
        Options(
            kubeconfig=str(kubeconfig) if kubeconfig else None,
            namespaces=namespaces,
            lease_namespace=lease_namespace,
            lease_name=lease_name,
            identity=identity,
            enforces_policies=network_policies == "enforced",
            host=host,
            port=port,
        )
    )
