"""`holdfast sandbox exec | connect`: a command in a sandbox; its exit code is ours."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option
from holdfast.cli.progress import progress
from holdfast.cli.results import show
from holdfast.cli.sandbox_common import gateway_option, opened, sandbox_argument
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.sandbox.sdk import ExecResult, Sandbox

_SHELL = 'exec "$(command -v bash || command -v sh)"'
_LONGEST_INPUT = 64 << 20

container_option = click.option(
    "--container", "-c", metavar="CONTAINER", help="Which one, where there are several."
)


class _Exec(click.Command):
    """NAME ends our options, unless only some more of them stand between it and the first `--`."""

    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._options_first(ctx, args))

    def _options_first(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The same words with what is ours in front; those of the command stay as they are."""
        rest = self._without_options(ctx, args)
        before = args[: len(args) - len(rest)]
        if "--" not in rest or before[-1:] == ["--"]:
            return args
        first = rest.index("--")
        name, between, command = rest[:1], rest[1:first], rest[first + 1 :]
        if self._without_options(ctx, between):
            return args
        return [*before, *between, "--", *name, *command]

    def _without_options(self, ctx: click.Context, words: list[str]) -> list[str]:
        """What is left from the first word on that is neither an option of ours nor the value of one."""
        found, _, _ = self.make_parser(ctx).parse_args(list(words))
        name, command = found.get("name"), found.get("command")
        return [*([name] if isinstance(name, str) else []), *(command if isinstance(command, tuple) else ())]


@click.command("exec", cls=_Exec)
@click.option("--tty", "-t", is_flag=True, help="Give the command a terminal; every key goes to it.")
@click.option(
    "--stdin/--no-stdin",
    "-i/-n",
    default=None,
    help="Send our input along; by default with --tty, and when something is piped in.",
)
@container_option
@gateway_option
@json_option
@sandbox_argument
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def execute(
    ctx: click.Context,
    name: str,
    command: tuple[str, ...],
    *,
    tty: bool,
    stdin: bool | None,
    container: str | None,
    gateway: str | None,
    as_json: bool,
) -> None:
    """Run COMMAND in sandbox NAME; its exit code is the exit code.

    All that follows NAME is the command's own. Options may stand behind NAME too, if -- follows them: then
    the command begins there. Without --tty, a Ctrl-C ends this side only: the command in the sandbox may go
    on.
    """
    from holdfast.cli.sandbox_terminal import has_input

    if tty and as_json:
        raise UsageError("--tty and --json exclude each other")
    sends = stdin if stdin is not None else tty or has_input()
    with progress(as_json=as_json) as shown:
        box = opened(gateway, shown).sandbox(name)
        if as_json:
            ended = _collected(box, command, sends=sends, container=container)
            _show(ended)
            ctx.exit(ended.exit_code)
    ctx.exit(_attached(box, command, tty=tty, stdin=sends, container=container))


@click.command()
@click.option("--shell", metavar="PATH", help="The shell; bash by default, or sh where there is none.")
@container_option
@gateway_option
@json_option
@sandbox_argument
@click.pass_context
def connect(
    ctx: click.Context,
    name: str,
    *,
    shell: str | None,
    container: str | None,
    gateway: str | None,
    as_json: bool,
) -> None:
    """Open a shell in sandbox NAME; --json is for what goes wrong, the shell stays a shell."""
    words = (shell,) if shell else ("/bin/sh", "-c", _SHELL)
    with progress(as_json=as_json) as shown:
        box = opened(gateway, shown).sandbox(name)
    tty = os.isatty(0) and os.isatty(1)
    ctx.exit(_attached(box, words, tty=tty, stdin=True, container=container))


def _attached(box: Sandbox, words: tuple[str, ...], *, tty: bool, stdin: bool, container: str | None) -> int:
    import asyncio

    from holdfast.cli.sandbox_terminal import attached

    async def all_of_it() -> int:
        async with box as twin, twin.session(*words, tty=tty, stdin=stdin, container=container) as session:
            return await attached(session, tty=tty, stdin=stdin)

    return asyncio.run(all_of_it())


def _collected(box: Sandbox, words: tuple[str, ...], *, sends: bool, container: str | None) -> ExecResult:
    import sys

    data = sys.stdin.buffer.read(_LONGEST_INPUT + 1) if sends else None
    if data is not None and len(data) > _LONGEST_INPUT:
        raise UsageError(
            f"with --json no more than {_LONGEST_INPUT >> 20} MiB can be piped in; nothing was run",
            hint="Leave out --json.",
        )
    with box:
        return box.exec(*words, stdin=data, container=container)


def _show(ended: ExecResult) -> None:
    body = {
        "exit_code": ended.exit_code,
        "stdout": ended.stdout.decode(errors="replace"),
        "stderr": ended.stderr.decode(errors="replace"),
    }
    show(body, [], as_json=True)
