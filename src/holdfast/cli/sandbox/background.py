"""`holdfast sandbox ps | output | kill`: commands that `sandbox exec --background` has started."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.click_extensions import flag_option, is_json_requested
from holdfast.cli.output import escape_control_characters, format_table, print_result
from holdfast.cli.parameters import COMMAND_ID, SIGNAL
from holdfast.cli.sandbox.common import container_option, open_sandbox, sandbox_argument, sandbox_options

if TYPE_CHECKING:
    from holdfast.client import BackgroundCommand, CommandView

_STDERR = 2
_id_argument = click.argument("command_id", type=COMMAND_ID, metavar="ID")


@click.command("ps")
@container_option
@sandbox_options
@sandbox_argument
def list_commands(name: str, *, container: str | None, gateway: str | None) -> None:
    """List the background commands of sandbox NAME, the newest last."""
    with open_sandbox(name, gateway) as (sandbox, _):
        views = sandbox.commands(container=container)
    rows = [("ID", "STATE", "EXIT CODE", "STARTED", "COMMAND"), *(_row(view) for view in views)]
    lines = format_table(rows) if views else [f"Sandbox {name} has no background commands."]
    print_result({"commands": views}, lines)


def _row(view: CommandView) -> tuple[str, ...]:
    code = "" if view.exit_code is None else str(view.exit_code)
    command = escape_control_characters(shlex.join(view.command))
    return (view.id, view.state, code, f"{view.started:%Y-%m-%d %H:%M:%S}", command)


@click.command()
@flag_option("--follow", "-f", text="Print new output until the command ends, and exit with its exit code.")
@container_option
@sandbox_options
@sandbox_argument
@_id_argument
@click.pass_context
def output(
    ctx: click.Context,
    name: str,
    command_id: str,
    *,
    follow: bool,
    container: str | None,
    gateway: str | None,
) -> None:
    """Print the output of background command ID in sandbox NAME, from its beginning.

    Its standard error output goes to stderr.
    """
    with open_sandbox(name, gateway) as (sandbox, _):
        command = sandbox.command(command_id, container=container)
        if is_json_requested():
            code = _print_as_json(command, follow=follow)
        else:
            try:
                _copy_output(command, follow=follow)
            except KeyboardInterrupt:
                if not follow:
                    raise
                ctx.exit(130)
            code = command.poll() if follow else None
    ctx.exit(code or 0)


def _copy_output(command: BackgroundCommand, *, follow: bool) -> None:
    for channel, data in command.output(follow=follow):
        stream = sys.stderr.buffer if channel == _STDERR else sys.stdout.buffer
        stream.write(data)
        stream.flush()


def _print_as_json(command: BackgroundCommand, *, follow: bool) -> int | None:
    if follow:
        command.wait()
    view = command.get()
    stdout, stderr = (output.decode(errors="replace") for output in (command.stdout(), command.stderr()))
    result = {"state": view.state, "exit_code": view.exit_code, "stdout": stdout, "stderr": stderr}
    print_result(result, [])
    return view.exit_code if follow else None


@click.command()
@click.option(
    "--signal",
    "-s",
    metavar="SIGNAL",
    type=SIGNAL,
    help="Send only this signal, such as INT; default: TERM, and KILL after 2 seconds.",
)
@container_option
@sandbox_options
@sandbox_argument
@_id_argument
def kill(
    name: str, command_id: str, *, signal: str | None, container: str | None, gateway: str | None
) -> None:
    """End background command ID in sandbox NAME with its child processes."""
    with open_sandbox(name, gateway) as (sandbox, _):
        is_sent = sandbox.command(command_id, container=container).kill(signal)
    done = f"received {signal}" if signal else "was ended"
    line = f"Command {command_id} {done if is_sent else 'had ended before'}."
    print_result({"id": command_id, "signalled": is_sent}, [line])
