"""`holdfast pool create | list | get | scale | wait | delete`: sandboxes that wait ready for use."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

import click

from holdfast.api import UpdateStrategy
from holdfast.cli.checked_type import ChoiceType
from holdfast.cli.click_extensions import (
    LazyGroup,
    complete_with,
    flag_option,
    gateway_option,
    gateway_words,
    json_option,
    name_gateway,
)
from holdfast.cli.output import (
    escape_control_characters,
    format_age,
    format_table,
    print_result,
    progress_renderer,
)
from holdfast.cli.parameters import OBJECT, POOL_SIZE
from holdfast.cli.sandbox.common import (
    confirm,
    open_gateway,
    progress_step,
    timeout_option,
    wait_option,
)
from holdfast.errors import PoolNotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.api import PoolDeletionResult, PoolView
    from holdfast.cli.output import ProgressRenderer
    from holdfast.client import Pools

_COMMANDS = {
    "create": ("holdfast.cli.sandbox.pool:create", "Create a pool of a template and wait until it is ready."),
    "list": ("holdfast.cli.sandbox.pool:list_pools", "List the pools of a gateway."),
    "get": ("holdfast.cli.sandbox.pool:get", "Show the current state of a pool."),
    "scale": ("holdfast.cli.sandbox.pool:scale", "Change the number of sandboxes that wait."),
    "wait": ("holdfast.cli.sandbox.pool:wait", "Wait until the sandboxes of a pool are ready."),
    "delete": (
        "holdfast.cli.sandbox.pool:delete",
        "Delete a pool; sandboxes that were created from it stay.",
    ),
}
_STRATEGY = ChoiceType(lambda: get_args(UpdateStrategy), example="Recreate")
_name_argument = click.argument(
    "name", type=OBJECT, metavar="NAME", shell_complete=complete_with("complete_pools")
)


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def pool() -> None:
    """Manage warm pools: sandboxes of a template that wait ready for use.

    `holdfast sandbox create --template` takes a sandbox from a pool, and the pool creates another one.
    """


def _pool_options(command: Callable[..., Any]) -> Callable[..., Any]:
    return gateway_option(json_option(command))


@contextmanager
def _open_pools(gateway: str | None) -> Iterator[tuple[Pools, ProgressRenderer]]:
    """Yield the pools of an existing gateway, and the renderer of their events."""
    with progress_renderer() as renderer, open_gateway(gateway, renderer.bus.emit).pools() as pools:
        yield pools, renderer


@click.command()
@click.argument("name", type=OBJECT, metavar="NAME")
@click.option(
    "--template", type=OBJECT, metavar="TEMPLATE",
    help="Template of the sandboxes; default: that with the pool's name.",
    shell_complete=complete_with("complete_templates"),
)  # fmt: skip
@click.option(
    "--size", type=POOL_SIZE, default=1, show_default=True, metavar="NUMBER",
    help="Number of sandboxes that wait; 0 creates each sandbox on demand.",
)  # fmt: skip
@click.option(
    "--update-strategy", type=_STRATEGY,
    default="OnReplenish", show_default=True,
    help="When the template changes, keep waiting sandboxes until they are used, or recreate them.",
)  # fmt: skip
@wait_option("all sandboxes are ready")
@timeout_option
@_pool_options
def create(
    name: str,
    *,
    template: str | None,
    size: int,
    update_strategy: UpdateStrategy,
    wait: bool,
    timeout: float,
    gateway: str | None,
) -> None:
    """Create pool NAME and wait until its sandboxes are ready.

    If the pool exists with the same options, the command changes nothing. If it exists with other options,
    the command fails. holdfast's own image is pushed into the gateway if it is missing there.
    """
    from holdfast.sandbox import build_pool_request

    template = template or name
    # Report invalid options before any request.
    build_pool_request(name, template, size=size, update_strategy=update_strategy)
    with _open_pools(gateway) as (pools, renderer):
        with progress_step(renderer, "create-pool", f"Pool {name}") as step:
            view = pools.create(name, template, size=size, update_strategy=update_strategy)
            step.note = "created" if pools.is_new else "exists with the same options"
        if wait:
            view = _wait_until_ready(renderer, pools, name, timeout)
    next_command = f"holdfast sandbox create{gateway_words()} work --template {template}"
    print_result(view, [_summary(view), next_command])


@click.command("list")
@_pool_options
def list_pools(gateway: str | None) -> None:
    """List the pools of a gateway, sorted by name."""
    with _open_pools(gateway) as (pools, _):
        views = sorted(pools.list(), key=lambda view: view.name)
    rows = [("NAME", "TEMPLATE", "READY", "AVAILABLE", "UPDATE STRATEGY", "REASON", "AGE")]
    rows += [
        (
            view.name, view.template, f"{view.ready}/{view.size}", str(view.available), view.update_strategy,
            view.reason, format_age(view.created),
        )
        for view in views
    ]  # fmt: skip
    empty = name_gateway("No pools yet. Create a template, then `holdfast pool create work`.")
    print_result({"pools": views}, format_table(rows) if views else [empty])


@click.command()
@_name_argument
@_pool_options
def get(name: str, gateway: str | None) -> None:
    """Show the current state of pool NAME and the sandboxes that were created from it."""
    with _open_pools(gateway) as (pools, _):
        view = pools.get(name)
    # Messages can contain output of programs in the sandboxes.
    print_result(view, [escape_control_characters(line) for line in _detail_lines(view)])


@click.command()
@_name_argument
@click.argument("size", type=POOL_SIZE, metavar="SIZE")
@wait_option("all sandboxes are ready")
@timeout_option
@_pool_options
def scale(name: str, size: int, *, wait: bool, timeout: float, gateway: str | None) -> None:
    """Change the number of sandboxes that wait in pool NAME to SIZE; sandboxes in use are not affected."""
    with _open_pools(gateway) as (pools, renderer):
        view = pools.scale(name, size)
        if wait:
            view = _wait_until_ready(renderer, pools, name, timeout)
    print_result(view, [_summary(view)])


@click.command()
@_name_argument
@timeout_option
@_pool_options
def wait(name: str, timeout: float, gateway: str | None) -> None:
    """Wait until as many sandboxes of pool NAME are ready as its size says."""
    with _open_pools(gateway) as (pools, renderer):
        view = _wait_until_ready(renderer, pools, name, timeout)
    print_result(view, [_summary(view)])


@click.command()
@_name_argument
@flag_option("--ignore-missing", text="Exit with 0 if the pool does not exist.")
@flag_option("--yes", "-y", text="Do not ask for confirmation.")
@_pool_options
def delete(name: str, *, ignore_missing: bool, yes: bool, gateway: str | None) -> None:
    """Delete pool NAME and the sandboxes that wait in it.

    Sandboxes that were created from the pool stay, with their data.
    """
    from holdfast.api import PoolDeletionResult

    with _open_pools(gateway) as (pools, renderer):
        try:
            view = pools.get(name)
        except PoolNotFoundError:
            if not ignore_missing:
                raise
            line = f"Pool {name} does not exist; nothing was changed."
            print_result(PoolDeletionResult(deleted=False), [line])
            return
        if not yes:
            _confirm_deletion(renderer, view)
        result = pools.delete(name, ignore_missing=True)
    print_result(result, [_deletion_summary(name, result)])


def _confirm_deletion(renderer: ProgressRenderer, view: PoolView) -> None:
    waiting = f"its {view.available} waiting sandboxes are deleted, and {_describe_remaining(view.sandboxes)}"
    if not sys.stdin.isatty():
        raise UsageError(
            f"deleting pool {view.name}: has to be confirmed ({waiting}); nothing was changed",
            hint="Pass --yes to confirm.",
        )
    if not confirm(renderer, f"Delete pool {view.name}? {waiting[:1].upper()}{waiting[1:]}."):
        raise UsageError(f"pool {view.name}: deletion not confirmed; nothing was changed")


def _describe_remaining(sandboxes: list[str]) -> str:
    return f"the sandboxes {', '.join(sandboxes)} stay" if sandboxes else "no sandbox in use came from it"


def _deletion_summary(name: str, result: PoolDeletionResult) -> str:
    if not result.deleted:
        return f"Pool {name} does not exist."
    kept = f" Sandboxes that came from it stay: {', '.join(result.sandboxes)}." if result.sandboxes else ""
    return f"Pool {name} and its waiting sandboxes are deleted.{kept}"


def _wait_until_ready(renderer: ProgressRenderer, pools: Pools, name: str, timeout: float) -> PoolView:
    from holdfast.client import summarize

    with progress_step(renderer, "wait-pool", f"Pool {name}: ready") as step:
        return pools.wait(name, timeout=timeout, on_change=lambda view: step.progress(summarize(view)))


def _summary(view: PoolView) -> str:
    return f"Pool {view.name} is {str(view.phase).lower()}: {view.ready} of {view.size} sandboxes are ready."


def _detail_lines(view: PoolView) -> list[str]:
    details = {
        "pool": view.name,
        "phase": f"{view.phase} ({view.reason})" if view.reason else str(view.phase),
        "message": view.message,
        "template": view.template,
        "image": view.image or "unknown: the template does not exist",
        "size": str(view.size),
        "ready": str(view.ready),
        "available": str(view.available),
        "update": view.update_strategy,
        "sandboxes": ", ".join(view.sandboxes),
        "created": view.created,
    }
    return [f"{key + ':':11}{value}" for key, value in details.items() if value]
