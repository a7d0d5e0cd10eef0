"""`holdfast server run`: the gateway's own API; started in the cluster, so it is no word for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

_file = click.Path(path_type=Path)
_port = click.IntRange(1, 65535)


@click.group()
def server() -> None:
    """The gateway's own HTTPS API."""


@server.command()
@click.option("--name", envvar="HOLDFAST_SERVER_NAME", required=True, help="The gateway's name.")
@click.option("--certificate", envvar="HOLDFAST_SERVER_CERTIFICATE", type=_file, required=True)
@click.option("--key", envvar="HOLDFAST_SERVER_KEY", type=_file, required=True)
@click.option(
    "--client-ca",
    envvar="HOLDFAST_SERVER_CLIENT_CA",
    type=_file,
    required=True,
    help="The CA that a client's certificate must come from.",
)
@click.option("--host", envvar="HOLDFAST_SERVER_HOST", default="0.0.0.0", show_default=True)  # noqa: S104
@click.option("--port", envvar="HOLDFAST_SERVER_PORT", type=_port, default=8443, show_default=True)
@click.option(
    "--health-port", envvar="HOLDFAST_SERVER_HEALTH_PORT", type=_port, default=8081, show_default=True
)
@click.option(
    "--namespace",
    envvar="HOLDFAST_SERVER_NAMESPACE",
    default="default",
    show_default=True,
    help="Where the sandboxes are.",
)
@click.option(
    "--kubeconfig",
    envvar="HOLDFAST_SERVER_KUBECONFIG",
    type=_file,
    help="The cluster; without it, the one that the server runs in.",
)
@click.option(
    "--workspace-size",
    envvar="HOLDFAST_SERVER_WORKSPACE_SIZE",
    default="2Gi",
    show_default=True,
    help="Of a workspace whose maker does not say.",
)
@click.option(
    "--storage-class",
    envvar="HOLDFAST_SERVER_STORAGE_CLASS",
    help="Of such a workspace; without it, the cluster's default.",
)
@click.option("--endpoint", envvar="HOLDFAST_SERVER_ENDPOINT", help="Where sandboxes reach this API.")
@click.option(
    "--requests-per-second",
    envvar="HOLDFAST_SERVER_REQUESTS_PER_SECOND",
    type=click.FloatRange(min=0.1),
    default=50.0,
    show_default=True,
    help="Of each client.",
)
@click.option(
    "--streams",
    envvar="HOLDFAST_SERVER_STREAMS",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Open at the same time, of each client.",
)
def run(
    requests_per_second: float,
    streams: int,
    workspace_size: str,
    storage_class: str | None,
    **options: Any,
) -> None:
    """Serve the API with mutual TLS until a signal ends it."""
    from holdfast.sandbox.wire import Workspace
    from holdfast.server.limits import Limits
    from holdfast.server.serve import ServerOptions, serve

    limits = Limits(
        requests_per_second=requests_per_second, burst=max(1, round(2 * requests_per_second)), streams=streams
    )
    workspace = Workspace(size=workspace_size, storage_class=storage_class)
    serve(ServerOptions(limits=limits, workspace=workspace, **options))
