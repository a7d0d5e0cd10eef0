"""`holdfast status | list | logs | kubeconfig`: read-only commands about gateways."""

from __future__ import annotations

import click

from holdfast.cli.click_extensions import flag_option, is_json_requested, json_option, name_argument
from holdfast.cli.output import format_table, print_result
from holdfast.errors import GatewayNotFoundError


@click.command()
@name_argument
@json_option
@click.pass_context
def status(ctx: click.Context, name: str | None) -> None:
    """Show the current state of gateway NAME; exit with 0 if it is ready, else with 1."""
    from holdfast.gateway import commands, resolve_gateway_name

    current = commands.status(resolve_gateway_name(name))
    fields = [
        ("gateway", current.name), ("state", current.state), ("problem", current.problem),
        ("node", current.node), ("host", current.remote), ("tunnel", current.tunnel),
        ("server", current.server), ("kubernetes", current.kubernetes), ("image", current.image),
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
    from holdfast.gateway import active_gateway, known_gateway_names, known_gateways

    active = active_gateway()
    gateways = known_gateways()
    damaged = sorted(set(known_gateway_names()) - {gateway.name for gateway in gateways})
    rows = [("NAME", "ACTIVE", "SERVER", "KUBERNETES", "IMAGE", "CREATED")]
    rows += [
        (
            gateway.name, "*" if gateway.name == active else "", gateway.server, gateway.kubernetes,
            gateway.image, gateway.created_at,
        )
        for gateway in gateways
    ]  # fmt: skip
    lines = format_table(rows) if gateways else []
    lines += [f"{name}: its metadata is damaged. Run `holdfast doctor {name} --fix`." for name in damaged]
    lines = lines or ["No gateways yet. Run `holdfast up` to create one."]
    print_result({"active": active, "gateways": gateways, "damaged": damaged}, lines)


@click.command()
@name_argument
@click.option("--component", help="Print the log of one component of the node, such as etcd or kubelet.")
@click.option("--tail", type=click.IntRange(min=0), default=200, show_default=True, help="Number of lines.")
@flag_option("--follow", "-f", text="Keep printing new lines until Ctrl-C.")
@json_option
def logs(name: str | None, component: str | None, tail: int, follow: bool) -> None:
    """Print the logs of the node of gateway NAME, running or stopped."""
    from holdfast.gateway import Gateway, resolve_gateway_name

    gateway = Gateway(resolve_gateway_name(name))
    for line in gateway.logs(component=component, tail=tail, follow=follow):
        print_result({"line": line}, [line])


@click.command()
@name_argument
@flag_option("--path", "only_path", text="Print the path of the file instead of its content.")
@flag_option("--merge", text="Merge it into $KUBECONFIG or ~/.kube/config as the current context.")
@json_option
def kubeconfig(name: str | None, only_path: bool, merge: bool) -> None:
    """Print the kubeconfig of gateway NAME, or merge it into your own."""
    from holdfast.gateway import (
        GatewayFiles,
        kubeconfig_context,
        merge_into,
        resolve_gateway_name,
        user_kubeconfig_path,
    )

    gateway = resolve_gateway_name(name)
    path = GatewayFiles(gateway).kubeconfig
    if not path.exists():
        raise GatewayNotFoundError(f"gateway {gateway}: no kubeconfig", hint=f"Run `holdfast up {gateway}`.")
    _ensure_tunnel(gateway)
    result = {"path": str(path), "context": kubeconfig_context(gateway)}
    if merge:
        target = user_kubeconfig_path()
        merge_into(target, path.read_bytes(), name=gateway)
        lines = [f"Merged into {target} as {kubeconfig_context(gateway)}."]
        print_result({**result, "merged": str(target)}, lines)
    elif only_path or is_json_requested():
        print_result(result, [str(path)])
    else:
        click.echo(path.read_text(), nl=False)


def _ensure_tunnel(gateway: str) -> None:
    """Reopen the tunnel to a gateway on another host; an unreachable host is only a warning."""
    from holdfast.errors import HoldfastError
    from holdfast.gateway import GatewayContext, ensure_tunnel, read_metadata

    metadata = read_metadata(gateway)
    if metadata is None or not metadata.remote:
        return
    try:
        ensure_tunnel(GatewayContext(gateway))
    except HoldfastError as error:
        click.echo(f"tunnel to {metadata.remote}: down: {error.message}", err=True)
