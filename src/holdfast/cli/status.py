"""`holdfast status | list | logs | kubeconfig | version`: commands that change nothing."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import click

from holdfast import (
    __version__,
    gateway,  # its exports are imported on first use
)
from holdfast.cli.checked_type import integer
from holdfast.cli.click_extensions import flag_option, gateway_argument, is_json_requested, json_option
from holdfast.cli.output import JSON_SCHEMA_VERSION, format_table, print_result
from holdfast.cli.parameters import OBJECT

if TYPE_CHECKING:
    from holdfast.errors import HoldfastError


@click.command()
@gateway_argument
@json_option
@click.pass_context
def status(ctx: click.Context, name: str | None) -> None:
    """Show the current state of gateway NAME; exit with 0 if it is ready, else with 1."""
    current = gateway.commands.status(gateway.resolve_gateway_name(name))
    if current.state == "absent":
        gateway.check_recorded(current.name)
    fields = [
        ("gateway", current.name), ("state", current.state), ("problem", current.problem),
        ("node", current.node), ("host", current.remote), ("tunnel", current.tunnel),
        ("server", current.server), ("api", current.api), ("kubernetes", current.kubernetes),
        ("image", current.image),
        ("container", current.container), ("since", current.since[:19].replace("T", " ")),
        ("data", "on its volume" if current.data else "none"), ("kubeconfig", current.kubeconfig),
        ("context", current.context if current.kubeconfig else ""),
        *(("note", note) for note in current.notes),
    ]  # fmt: skip
    print_result(current, [f"{key:<11} {value}" for key, value in fields if value])
    ctx.exit(0 if current.state == "ready" else 1)


@click.command("list")
@json_option
def list_gateways() -> None:
    """List the gateways known on this machine, without their current state (see `status`)."""
    active = gateway.active_gateway()
    known = gateway.known_gateways()
    damaged = sorted(set(gateway.known_gateway_names()) - {metadata.name for metadata in known})
    rows = [("NAME", "ACTIVE", "SERVER", "KUBERNETES", "IMAGE", "CREATED")]
    rows += [
        (
            metadata.name, "*" if metadata.name == active else "", metadata.server, metadata.kubernetes,
            metadata.image, metadata.created_at,
        )
        for metadata in known
    ]  # fmt: skip
    lines = format_table(rows) if known else []
    lines += [f"{name}: its metadata is damaged. Run `holdfast doctor {name} --fix`." for name in damaged]
    lines = lines or ["No gateways yet. Run `holdfast up` to create one."]
    print_result({"active": active, "gateways": known, "damaged": damaged}, lines)


@click.command()
@gateway_argument
@click.option(
    "--component", type=OBJECT, help="Print the log of one component of the node, such as etcd or kubelet."
)
@click.option("--tail", type=integer(0), default=200, show_default=True, help="Number of lines.")
@flag_option("--follow", "-f", text="Keep printing new lines until Ctrl-C.")
@json_option
def logs(name: str | None, component: str | None, tail: int, follow: bool) -> None:
    """Print the logs of the node of gateway NAME, running or stopped."""
    selected = gateway.Gateway(gateway.resolve_gateway_name(name))
    for line in selected.logs(component=component, tail=tail, follow=follow):
        print_result({"line": line}, [line])


@click.command()
@gateway_argument
@flag_option("--path", "only_path", text="Print the path of the file instead of its content.")
@flag_option("--merge", text="Merge it into $KUBECONFIG or ~/.kube/config as the current context.")
@json_option
def kubeconfig(name: str | None, only_path: bool, merge: bool) -> None:
    """Print the kubeconfig of gateway NAME, or merge it into your own."""
    name = gateway.resolve_gateway_name(name)

    def print_warning(error: HoldfastError) -> None:
        # The address of a gateway that cannot be reached now may still be right later.
        click.echo(f"tunnel to gateway {name}: down: {error.message}", err=True)

    get_path = gateway.merge_kubeconfig if merge else gateway.current_kubeconfig
    target = get_path(name, on_unreachable=print_warning)
    path, context = gateway.GatewayFiles(name).kubeconfig, gateway.kubeconfig_context(name)
    result = {"path": str(path), "context": context}
    if merge:
        print_result({**result, "merged": str(target)}, [f"Merged into {target} as {context}."])
    elif only_path or is_json_requested():
        print_result(result, [str(path)])
    else:
        click.echo(path.read_text(), nl=False)


@click.command()
@json_option
def version() -> None:
    """Show the versions of holdfast, Python, the node image contract and the JSON output."""
    versions = {
        "holdfast": __version__,
        "python": platform.python_version(),
        "node_contract": gateway.CONTRACT_VERSION,
        "json_schema": JSON_SCHEMA_VERSION,
    }
    print_result(versions, [f"{name.replace('_', ' '):<13} {value}" for name, value in versions.items()])
