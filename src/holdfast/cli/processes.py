"""`holdfast server run` and `holdfast controller run`: the processes that run inside a gateway."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holdfast.api import PUBLISHED_NAMESPACE
from holdfast.cli.checked_type import CheckedType, ChoiceType, InvalidValueError, integer, matching
from holdfast.cli.parameters import ADDRESS, FILE, OBJECT, PORT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The settings of a gateway, from which these values come, allow more than requests do.
_SIZE = matching(
    "[0-9]{1,12}([.][0-9]{1,6})?([KMGTPE]i|[kMGTPE])?", "not a size", "an amount such as 10Gi", example="10Gi"
)
_CLASS = matching(
    "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "not a valid name", "the name of a storage class", example="main"
)
_NAME = matching(
    "[A-Za-z0-9_.][A-Za-z0-9_.-]{0,199}", "not a valid name", "the name of a gateway", example="dev"
)
_NODE = matching(
    "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "not a valid name", "the name of a node", example="main"
)
_DOMAIN = matching(
    "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "not a domain", "a domain such as cluster.local", example="main"
)
_URL = matching("https?://[!-~]{1,2000}", "not a URL", "a URL such as https://host:1", example="https://host")
_RATE_PATTERN = "[1-9][0-9]{0,8}([.][0-9]{1,6})?|0[.][1-9][0-9]{0,5}"
_RATE = matching(_RATE_PATTERN, "not a rate", "a number of at least 0.1", example="50")
_ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 (a Service in front of the pod decides who can connect)


def _parse_node_address(text: str) -> str:
    import ipaddress

    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        raise InvalidValueError("not an IP address") from None


_NODE_ADDRESS = CheckedType(_parse_node_address, "an IPv4 or IPv6 address", example="127.0.0.1")


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
@_server_option("name", "Name of the gateway.", type=_NAME, required=True)
@_server_option("certificate", "Certificate of the server (PEM file).", type=FILE, required=True)
@_server_option("key", "Private key of the server (PEM file).", type=FILE, required=True)
@_server_option(
    "client-ca",
    "CA that must have issued the client certificates (PEM file).",
    type=FILE,
    required=True,
)
@_server_option("host", "Address to listen on.", type=ADDRESS, default=_ALL_ADDRESSES)
@_server_option("port", "Port of the HTTPS API.", type=PORT, default=8443)
@_server_option("health-port", "Port of the health checks and the metrics.", type=PORT, default=8081)
@_server_option("namespace", "Namespace of the sandboxes.", type=OBJECT, default="default")
@_server_option(
    "kubeconfig", "Kubeconfig of the cluster; default: the cluster this process runs in.", type=FILE
)
@_server_option("workspace-size", "Size of a workspace if a request names none.", type=_SIZE, default="2Gi")
@_server_option(
    "storage-class", "Storage class of such a workspace; default: the cluster's default.", type=_CLASS
)
@_server_option("proxy-secret", "Secret with the proxy settings of sandboxes; default: none.", type=OBJECT)
@_server_option("ca-config-map", "ConfigMap with the CA bundle of sandboxes; default: none.", type=OBJECT)
@_server_option("node", "Node that this process and the sandboxes run on.", type=_NODE)
@_server_option(
    "node-address", "IP address of that node, at which its kubelet reports statistics.", type=_NODE_ADDRESS
)
@_server_option("endpoint", "URL at which sandboxes reach this API.", type=_URL)
@_server_option("requests-per-second", "Request rate limit per client.", type=_RATE, default="50")
@_server_option("streams", "Limit of concurrent streams per client.", type=integer(1), default=64)
def _run_server(
    requests_per_second: str,
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

    rate = float(requests_per_second)
    limits = ClientLimits(requests_per_second=rate, burst=max(1, round(2 * rate)), streams=streams)
    workspace = Workspace(size=workspace_size, storage_class=storage_class)
    host_settings = HostSettings(proxy_secret=proxy_secret, ca_config_map=ca_config_map)
    serve(ServerOptions(limits=limits, workspace=workspace, host_settings=host_settings, **options))


@click.group()
def controller() -> None:
    """Run the controller of sandboxes, warm pools and SandboxClaims."""


@controller.command("run")
@_controller_option(
    "kubeconfig", "Kubeconfig of the cluster; default: the cluster this process runs in.", type=FILE
)
@click.option(
    "--namespace", "namespaces", envvar="HOLDFAST_CONTROLLER_NAMESPACES", type=OBJECT,
    multiple=True, help="Namespace to watch, can be repeated; default: all namespaces.",
)  # fmt: skip
@_controller_option(
    "lease-namespace",
    "Namespace of the Lease for leader election; by default that of the published controller.",
    type=OBJECT,
    default=PUBLISHED_NAMESPACE,
)
@_controller_option("identity", "Holder identity in the Lease; default: a random name.", type=OBJECT)
@_controller_option(
    "network-policies",
    "Whether the cluster network enforces network policies; if not, sandboxes report it.",
    type=ChoiceType(lambda: ("enforced", "ignored"), example="enforced"),
    default="enforced",
)
@_controller_option(
    "cluster-domain", "Domain of the cluster's Services.", type=_DOMAIN, default="cluster.local"
)
@_controller_option(
    "policy-labels",
    "Whether SandboxClaims may add labels by which a network policy of a template allows connections.",
    type=ChoiceType(lambda: ("allowed", "rejected"), example="rejected"),
    default="allowed",
)
@_controller_option(
    "host", "Address of the health checks and the metrics.", type=ADDRESS, default=_ALL_ADDRESSES
)
@_controller_option("port", "Port of the health checks and the metrics.", type=PORT, default=8082)
def _run_controller(
    kubeconfig: Path | None, network_policies: str, policy_labels: str, **options: Any
) -> None:
    """Reconcile until a signal arrives; serve health checks and metrics."""
    from holdfast.controller import ControllerOptions, run_controller

    run_controller(
        ControllerOptions(
            kubeconfig=str(kubeconfig) if kubeconfig else None,
            enforces_policies=network_policies == "enforced",
            rejects_policy_labels=policy_labels == "rejected",
            **options,
        )
    )
