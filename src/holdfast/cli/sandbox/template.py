"""`holdfast template create | list | get | delete`: what the sandboxes of a warm pool consist of."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click

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
from holdfast.cli.parameters import OBJECT
from holdfast.cli.sandbox.common import confirm, open_gateway
from holdfast.cli.sandbox.create import POD_PARAMETERS, create as create_sandbox, pod_options
from holdfast.errors import TemplateNotFoundError, UsageError

if TYPE_CHECKING:
    from typing import Any

    from holdfast.api import TemplateView, Workspace

_COMMANDS = {
    "create": ("holdfast.cli.sandbox.template:create", "Create a template of sandboxes."),
    "list": ("holdfast.cli.sandbox.template:list_templates", "List the templates of a gateway."),
    "get": ("holdfast.cli.sandbox.template:get", "Show a template and the pools that use it."),
    "delete": ("holdfast.cli.sandbox.template:delete", "Delete a template; sandboxes stay."),
}
_name_argument = click.argument(
    "name", type=OBJECT, metavar="NAME", shell_complete=complete_with("complete_templates")
)


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def template() -> None:
    """Manage templates: what the sandboxes of a warm pool consist of.

    A template has the options of `holdfast sandbox create` that describe a pod. Create a pool for it with
    `holdfast pool create`, and sandboxes with `holdfast sandbox create --template`.
    """


@click.command(params=[each for each in create_sandbox.params if each.name in POD_PARAMETERS])
@click.argument("name", type=OBJECT, metavar="NAME")
@gateway_option
@json_option
def create(name: str, *, image: str | None, gateway: str | None, **values: Any) -> None:
    """Create template NAME.

    If the template exists with the same options, the command changes nothing. If it exists with other
    options, the command fails.
    """
    from holdfast.sandbox import build_template_request

    options = pod_options(values)
    build_template_request(name, image=image, **options)  # report invalid options before any request
    with progress_renderer() as renderer, open_gateway(gateway, renderer.bus.emit).templates() as templates:
        view = templates.create(name, image, **options)
        is_new = templates.is_new
    state = "is created" if is_new else "exists with the same options"
    lines = [f"Template {name} {state}."]
    if not view.pools and is_new:
        lines.append(f"holdfast pool create{gateway_words()} {name} --template {name}")
    print_result(view, lines)


@click.command("list")
@gateway_option
@json_option
def list_templates(gateway: str | None) -> None:
    """List the templates of a gateway, sorted by name."""
    with progress_renderer() as renderer, open_gateway(gateway, renderer.bus.emit).templates() as templates:
        views = sorted(templates.list(), key=lambda view: view.name)
    rows = [("NAME", "IMAGE", "CPU", "MEMORY", "POOLS", "AGE")]
    rows += [
        (
            view.name, view.image or "", view.cpu or "", view.memory or "", ",".join(view.pools),
            format_age(view.created),
        )
        for view in views
    ]  # fmt: skip
    empty = name_gateway("No templates yet. Create one with `holdfast template create work`.")
    print_result({"templates": views}, format_table(rows) if views else [empty])


@click.command()
@_name_argument
@gateway_option
@json_option
def get(name: str, gateway: str | None) -> None:
    """Show template NAME and the pools that use it. Values of variables are not shown."""
    with progress_renderer() as renderer, open_gateway(gateway, renderer.bus.emit).templates() as templates:
        view = templates.get(name)
    print_result(view, [escape_control_characters(line) for line in _detail_lines(view)])


@click.command()
@_name_argument
@flag_option("--ignore-missing", text="Exit with 0 if the template does not exist.")
@flag_option("--yes", "-y", text="Do not ask for confirmation.")
@gateway_option
@json_option
def delete(name: str, *, ignore_missing: bool, yes: bool, gateway: str | None) -> None:
    """Delete template NAME. Sandboxes that were created from it stay, with their data.

    Pools that use the template keep their sandboxes, and create no more until a template of this name exists.
    """
    from holdfast.api import TemplateDeletionResult

    with progress_renderer() as renderer, open_gateway(gateway, renderer.bus.emit).templates() as templates:
        try:
            view = templates.get(name)
        except TemplateNotFoundError:
            if not ignore_missing:
                raise
            line = f"Template {name} does not exist; nothing was changed."
            print_result(TemplateDeletionResult(deleted=False), [line])
            return
        outcome = _pools_outcome(view.pools)
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError(
                    f"deleting template {name}: has to be confirmed ({outcome}); nothing was changed",
                    hint="Pass --yes to confirm.",
                )
            if not confirm(renderer, f"Delete template {name}? {outcome[:1].upper()}{outcome[1:]}."):
                raise UsageError(f"template {name}: deletion not confirmed; nothing was changed")
        result = templates.delete(name, ignore_missing=True)
    lines = [f"Template {name} is deleted."]
    if result.pools:
        outcome = _pools_outcome(result.pools)
        lines.append(f"{outcome[:1].upper()}{outcome[1:]}.")
    print_result(result, lines)


def _pools_outcome(pools: list[str]) -> str:
    if not pools:
        return "no pool uses it"
    noun, verb = ("pool", "keeps") if len(pools) == 1 else ("pools", "keep")
    return f"{noun} {', '.join(pools)} {verb} the waiting sandboxes, but cannot create more"


def _detail_lines(view: TemplateView) -> list[str]:
    policy = view.network_policy
    details = {
        "template": view.name,
        "image": view.image,
        "command": shlex.join(view.command or ()),
        "args": shlex.join(view.args or ()),
        "cpu": view.cpu,
        "memory": view.memory,
        "env": ", ".join(view.env),
        "labels": ", ".join(f"{key}={value}" for key, value in sorted(view.labels.items())),
        "workspace": _describe_workspace(view.workspace),
        "network": "not restricted" if policy is None else "restricted by a network policy",
        "pools": ", ".join(view.pools) or "none",
        "created": view.created,
    }
    return [f"{key + ':':11}{value}" for key, value in details.items() if value]


def _describe_workspace(workspace: Workspace | None) -> str:
    if workspace is None:
        return "none"
    storage_class = f", class {workspace.storage_class}" if workspace.storage_class else ""
    return f"{workspace.size}{storage_class}{'' if workspace.seed else ', empty at the start'}"
