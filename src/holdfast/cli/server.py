"""`holdfast server run`: the gateway's own API; started in the cluster, so it is no word for people."""

from __future__ import annotations

from pathlib import Path

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
def run(
    name: str, certificate: Path, key: Path, client_ca: Path, host: str, port: int, health_port: int
) -> None:
    """Serve the API with mutual TLS until a signal ends it."""
    from holdfast.server.serve import ServerOptions, serve

    serve(
        ServerOptions(
            name=name,
            certificate=certificate,
            key=key,
            client_ca=client_ca,
            host=host,
            port=port,
            health_port=health_port,
        )
    )
