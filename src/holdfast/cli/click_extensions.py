"""Extensions of click: lazily imported commands, shared options and parameter types, confirmation by name.

Imports click only: `holdfast --help` must not load the modules of the commands.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.checked_type import RejectedArgumentError, show_value
from holdfast.cli.parameters import GATEWAY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from click.shell_completion import CompletionItem

    from holdfast.cli.completers import Completer

F = TypeVar("F", bound=Callable[..., Any])

JSON_KEY = "json"
GATEWAY_KEY = "gateway"
FAILED_RUN_KEY = "failed_run"
GATEWAY_VARIABLE = "HOLDFAST_GATEWAY"
_QUIET_KEY = "quiet"


_OTHER_NAMES = {
    **dict.fromkeys(("rm", "remove"), ("delete", "sandbox delete", "destroy")),
    "delete": ("sandbox delete", "destroy"),
    "ls": ("list", "sandbox list"),
    "ps": ("list", "sandbox list"),
    "create": ("up", "sandbox create"),
    **{name: (f"sandbox {name}",) for name in ("connect", "cp", "exec", "forward")},
    **dict.fromkeys(("show", "describe"), ("get", "status")),
}
"""Commands of similar programs, and what the same is called here; each group has only some of these."""


class LazyGroup(click.Group):
    """A command group that imports a command when it is called.

    Args:
        lazy: maps each command's name to its location (`module:attribute`) and its help line. A command
            without a help line is hidden: only processes inside the cluster call it.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return [name for name, (_, help_line) in self._lazy.items() if help_line]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in self._lazy:
            return None
        module, _, attribute = self._lazy[name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._lazy[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete names of commands from the table: click's own method imports every command."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self._lazy[name][1]) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib

            from holdfast.errors import UsageError

            names = self.list_commands(ctx)
            matches = [each for each in _OTHER_NAMES.get(args[0], ()) if each.split()[0] in names]
            matches = matches or difflib.get_close_matches(args[0], names, n=1)
            hint = f"Did you mean {' or '.join(map(repr, matches))}?"
            hint = hint if matches else f"Run `{ctx.command_path} --help`."
            message = f"{ctx.command_path} {show_value(args[0])}: no such command"
            raise RejectedArgumentError(UsageError(message, hint=hint)) from None


def flag_option(*names: str, text: str) -> Callable[[Any], Any]:
    """A flag with its help text."""
    return click.option(*names, is_flag=True, help=text)


verbose_option = flag_option("--verbose", "-v", text="Print every step, also those that change nothing.")


def _store_flag(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    # Not reset by a subcommand without the flag: `runs --json show last` prints JSON too. All commands share
    # the object, and `run_command` reads it after they have failed.
    flags = ctx.ensure_object(dict)
    flags[param.name] = value or bool(flags.get(param.name))


quiet_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_store_flag,
    help="Print results and errors only, no progress.",
)


def json_option(command: F) -> F:
    """The options of every command that decide about its output: `--json` and `--quiet`."""
    option = click.option(
        "--json",
        JSON_KEY,
        is_flag=True,
        expose_value=False,
        callback=_store_flag,
        help="Print results and progress as JSON.",
    )
    return option(quiet_option(command))


def is_json_requested() -> bool:
    """Whether the current command was called with `--json`."""
    return _is_flag_set(JSON_KEY)


def is_quiet_requested() -> bool:
    """Whether the current command, or `holdfast` itself, was called with `--quiet`."""
    return _is_flag_set(_QUIET_KEY)


def _is_flag_set(key: str) -> bool:
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool((ctx.obj or {}).get(key))


def complete_with(name: str) -> Completer:
    """Complete values of a parameter with a function of `holdfast.cli.completers`, loaded on use."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        completer: Completer = getattr(import_module("holdfast.cli.completers"), name)
        return completer(ctx, param, incomplete)

    return complete


def _store_gateway(ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    # `run_command` reads it after the command has failed: hints have to name the same gateway.
    if value is not None:
        ctx.ensure_object(dict)[GATEWAY_KEY] = value
    return value


gateway_option = click.option(
    "--gateway",
    "-g",
    type=GATEWAY,
    metavar="GATEWAY",
    callback=_store_gateway,
    help="Name of the gateway; default: that of HOLDFAST_GATEWAY, or else the active one.",
    shell_complete=complete_with("complete_gateways"),
)


def gateway_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The gateway that a command is about, passed as `name`: NAME, or `--gateway` as in other commands."""

    @gateway_option
    @click.argument("name", type=GATEWAY, required=False, shell_complete=complete_with("complete_gateways"))
    @functools.wraps(command)
    def call(*args: Any, name: str | None, gateway: str | None, **options: Any) -> Any:
        from holdfast.errors import UsageError

        if None not in (name, gateway) and name != gateway:
            raise UsageError(f"--gateway {gateway}: not the gateway {name}", hint="Name one gateway.")
        return command(*args, name=gateway if name is None else name, **options)

    return call


def chosen_gateway(values: Mapping[str, Any]) -> str:
    """The gateway that `--gateway` or HOLDFAST_GATEWAY names; empty if neither does.

    Args:
        values: the object that the contexts of all commands share.
    """
    return str(values.get(GATEWAY_KEY) or os.environ.get(GATEWAY_VARIABLE, "").strip())


def gateway_words() -> str:
    """The option for a printed next command, such as ` --gateway dev`; empty if no gateway was chosen."""
    gateway = _chosen_gateway_of_command()
    return f" --gateway {gateway}" if gateway else ""


def name_gateway(text: str, gateway: str | None = None) -> str:
    """Add `--gateway` to the commands in a text that would use the active gateway otherwise.

    Args:
        text: a text with commands in backticks.
        gateway: the gateway that the user chose, empty for the active one; default: that of this command.
    """
    gateway = _chosen_gateway_of_command() if gateway is None else gateway
    if not gateway:
        return text
    from holdfast import client

    return client.name_gateway(text, gateway)


def _chosen_gateway_of_command() -> str:
    ctx = click.get_current_context(silent=True)
    return chosen_gateway((ctx.obj if ctx is not None else None) or {})


def confirm_by_name(gateway: str, action: str, *, yes: str | None) -> None:
    """Let the user confirm a destructive action by the gateway's name.

    Args:
        gateway: the name that the user has to type.
        action: what happens, as in "destroying gateway dev".
        yes: the value of `--yes`; the user is prompted if it is None and stdin is a terminal.

    Raises:
        UsageError: the action is not confirmed.
    """
    from holdfast.errors import UsageError

    if yes is not None:
        if yes != gateway:
            raise UsageError(
                f"--yes {yes}: not the name of gateway {gateway}; nothing was changed",
                hint=f"Pass --yes {gateway} to confirm.",
            )
        return
    if not sys.stdin.isatty():
        raise UsageError(
            f"{action}: has to be confirmed; nothing was changed", hint=f"Pass --yes {gateway} to confirm."
        )
    typed = click.prompt(f"Confirm {action}: type its name", default="", show_default=False, err=True)
    if typed != gateway:
        raise UsageError(f"{typed!r}: not the name of gateway {gateway}; nothing was changed")
