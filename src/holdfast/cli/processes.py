"""`holdfast server run` and `holdfast controller run`: the processes that run inside a gateway."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.click_extensions import MAX_PORT

if TYPE_CHECKING:
    from collections.abc import Callable

_PATH = click.Path(path_type=Path)
_PORT = click.IntRange(1, MAX_PORT)
_ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 (a Service in front of the pod decides who can connect)


def _option(process: str, flag: str, help_line: str, **settings: Any) -> Callable[[Any], Any]:
    """An option that can also be set by `HOLDFAST_<PROCESS>_<FLAG>`."""
    variable = f"HOLDFAST_{process}_{flag}".upper().replace("-", "_")
    shows_default = bool(settings.get("default"))
    return click.option(f"--{flag}", envvar=variable, help=help_line, show_default=shows_default, **settings)


_server_option = partial(_option, "server")
_controller_option = partial(_option, "controller")


@click.group()
def server() -> None:
    """Run the HTTPS API of a gateway."""


@server.command("run")
@_server_option("name", "Name of the gateway.", required=True)
@_server_option("certificate", "Certificate of the server (PEM file).", type=_PATH, required=True)
@_server_option("key", "Private key of the server (PEM file).", type=_PATH, required=True)
@_server_option(
    "client-ca", "CA that must have issued the client certificates (PEM file).", type=_PATH, required=True
)
@_server_option("host", "Address to listen on.", default=_ALL_ADDRESSES)
@_server_option("port", "Port of the HTTPS API.", type=_PORT, default=8443)
@_server_option("health-port", "Port of the health checks and the metrics.", type=_PORT, default=8081)
@_server_option("namespace", "Namespace of the sandboxes.", default="default")
@_server_option(
    "kubeconfig", "Kubeconfig of the cluster; default: the cluster this process runs in.", type=_PATH
)
@_server_option("workspace-size", "Size of a workspace if a request names none.", default="2Gi")
@_server_option("storage-class", "Storage class of such a workspace; default: the cluster's default.")
@_server_option("proxy-secret", "Secret with the proxy settings of sandboxes; default: none.")
@_server_option("ca-config-map", "ConfigMap with the CA bundle of sandboxes; default: none.")
@_server_option("endpoint", "URL at which sandboxes reach this API.")
@_server_option(
    "requests-per-second", "Request rate limit per client.", type=click.FloatRange(min=0.1), default=50.0
)
@_server_option("streams", "Limit of concurrent streams per client.", type=click.IntRange(min=1), default=64)
def _run_server(
    requests_per_second: float,
    streams: int,
    workspace_size: str,
    storage_class: str | None,
    proxy_secret: str | None,
    ca_config_map: str | None,
    **options: Any,
) -> None:
    """Serve the API with mutual TLS until a signal arrives."""
    from holdfast.api import Workspace
    from holdfast.sandbox import HostSettings
    from holdfast.server import ClientLimits, ServerOptions, serve

    limits = ClientLimits(
        requests_per_second=requests_per_second, burst=max(1, round(2 * requests_per_second)), streams=streams
    )
    workspace = Workspace(size=workspace_size, storage_class=storage_class)
    host_settings = HostSettings(proxy_secret=proxy_secret, ca_config_map=ca_config_map)
    serve(ServerOptions(limits=limits, workspace=workspace, host_settings=host_settings, **options))


@click.group()
def controller() -> None:
    """Run the controller of sandboxes, warm pools and SandboxClaims."""


@controller.command("run")
@_controller_option(
    "kubeconfig", "Kubeconfig of the cluster; default: the cluster this process runs in.", type=_PATH
)
@click.option(
    "--namespace", "namespaces", envvar="HOLDFAST_CONTROLLER_NAMESPACES", multiple=True,
    help="Namespace to watch, can be repeated; default: all namespaces.",
)  # fmt: skip
@_controller_option("lease-namespace", "Namespace of the Lease for leader election.", default="default")
@_controller_option("lease-name", "Name of the Lease for leader election.", default="holdfast-controller")
@_controller_option("identity", "Holder identity in the Lease; default: a random name.", default="")
@_controller_option(
    "network-policies",
    "Whether the cluster network enforces network policies; if not, sandboxes report it.",
    type=click.Choice(["enforced", "ignored"]),
    default="enforced",
)
@_controller_option("host", "Address of the health checks and the metrics.", default=_ALL_ADDRESSES)
@_controller_option("port", "Port of the health checks and the metrics.", type=_PORT, default=8082)
def _run_controller(kubeconfig: Path | None, network_policies: str, **options: Any) -> None:
    """Reconcile until a signal arrives; serve health checks and metrics."""
    from holdfast.controller import ControllerOptions, run_controller

    run_controller(
        ControllerOptions(
            kubeconfig=str(kubeconfig) if kubeconfig else None,
            enforces_policies=network_policies == "enforced",
            **options,
        )
    )
