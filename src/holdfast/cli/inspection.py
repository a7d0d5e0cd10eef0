"""`holdfast status | list | logs | kubeconfig`: the commands that only look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, name_argument
from holdfast.cli.results import show, table
from holdfast.errors import UnknownGatewayError

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@name_argument
@json_option
@click.pass_context
def status(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """Show how gateway NAME is right now. Exit code 0 when it is ready, else 1."""
    from holdfast.gateway import commands
    from holdfast.gateway.spec import resolve_name

    seen = commands.status(resolve_name(name))
    facts = [
        ("gateway", seen.name), ("state", seen.state), ("problem", seen.problem), ("node", seen.node),
        ("host", seen.remote), ("tunnel", seen.tunnel),
        ("server", seen.server), ("kubernetes", seen.kubernetes), ("image", seen.image),
        ("container", seen.container), ("since", seen.since[:19].replace("T", " ")),
        ("data", "on its volume" if seen.data else "none"), ("kubeconfig", seen.kubeconfig),
        ("context", seen.context if seen.kubeconfig else ""), *(("note", each) for each in seen.notes),
    ]  # fmt: skip
    show(seen, [f"{key:<11} {value}" for key, value in facts if value], as_json=as_json)
    ctx.exit(0 if seen.state == "ready" else 1)


@click.command("list")
@json_option
def list_gateways(as_json: bool) -> None:
    """List the gateways known on this machine; does not ask the engine (`status` does)."""
    from holdfast.gateway.spec import active_name, known_gateways, known_names

    active = active_name()
    known, names = known_gateways(), known_names()
    damaged = sorted(set(names) - {gateway.name for gateway in known})
    rows = [("NAME", "ACTIVE", "SERVER", "KUBERNETES", "IMAGE", "CREATED")]
    rows += [
        (
            gateway.name, "*" if gateway.name == active else "", gateway.server, gateway.kubernetes,
            gateway.image, gateway.created_at,
        )
        for gateway in known
    ]  # fmt: skip
    lines = table(rows) if known else []
    lines += [
        f"{name}: its metadata cannot be read. Mend it: holdfast doctor {name} --fix" for name in damaged
    ]
    lines = lines or ["No gateways yet. Bring one up: holdfast up"]
    show({"active": active, "gateways": known, "damaged": damaged}, lines, as_json=as_json)


@click.command()
@name_argument
@click.option("--component", help="One part of the node (etcd, kubelet, …) instead of the node's own lines.")
@click.option("--tail", type=click.IntRange(min=0), default=200, show_default=True, help="How many lines.")
@click.option("--follow", "-f", is_flag=True, help="Go on as lines come; Ctrl-C ends it.")
@json_option
def logs(name: str | None, component: str | None, tail: int, follow: bool, as_json: bool) -> None:
    """Show what gateway NAME's node prints, running or stopped."""
    from holdfast.gateway.logs import node_lines
    from holdfast.gateway.spec import resolve_name
    from holdfast.gateway.work import Work

    for line in node_lines(Work(resolve_name(name)), component=component, tail=tail, follow=follow):
        show({"line": line}, [line], as_json=as_json)


@click.command()
@name_argument
@click.option("--path", "only_path", is_flag=True, help="Print the file's path instead of its content.")
@click.option("--merge", is_flag=True, help="Merge it into KUBECONFIG or ~/.kube/config and make it current.")
@json_option
def kubeconfig(name: str | None, only_path: bool, merge: bool, as_json: bool) -> None:
    """Print the kubeconfig of gateway NAME, or merge it into your own."""
    from holdfast.gateway.identity import context_name
    from holdfast.gateway.kubeconfig import default_target, merge_into
    from holdfast.gateway.spec import GatewayFiles, resolve_name

    gateway = resolve_name(name)
    path: Path = GatewayFiles(gateway).kubeconfig
    if not path.exists():
        raise UnknownGatewayError(
            f"there is no kubeconfig of gateway {gateway}", hint=f"`holdfast up {gateway}` writes it."
        )
    _within_reach(gateway)
    result = {"path": str(path), "context": context_name(gateway)}
    if merge:
        target = default_target()
        merge_into(target, path.read_bytes(), name=gateway)
        show(
            {**result, "merged": str(target)},
            [f"Merged into {target} as {context_name(gateway)}."],
            as_json=as_json,
        )
    elif only_path or as_json:
        show(result, [str(path)], as_json=as_json)
    else:
        click.echo(path.read_text(), nl=False)


def _within_reach(gateway: str) -> None:
    """Open the tunnel of a gateway on another host again; a host that is away is told, and the file shown."""
    from holdfast.errors import HoldfastError
    from holdfast.gateway.remote import reach
    from holdfast.gateway.spec import read_metadata
    from holdfast.gateway.work import Work

    known = read_metadata(gateway)
    if known is None or not known.remote:
        return
    try:
        reach(Work(gateway))
    except HoldfastError as error:
        click.echo(f"The tunnel to {known.remote} is down: {error.message}", err=True)
