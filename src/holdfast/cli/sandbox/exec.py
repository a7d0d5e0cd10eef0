"""`holdfast sandbox exec | connect`: run a command in a sandbox and exit with its exit code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypedDict

import click

from holdfast.cli.click_extensions import flag_option, is_json_requested
from holdfast.cli.parameters import PATH, SANDBOX_PATH, SECONDS
from holdfast.cli.sandbox.common import (
    container_option,
    env_option,
    event_printer,
    open_gateway,
    sandbox_argument,
    sandbox_options,
)
from holdfast.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.client import AsyncSandbox, ExecResult, Sandbox

# `exec` replaces `/bin/sh`, so that signals and the exit code are those of the user's shell.
_SHELL_COMMAND = 'exec "$(command -v bash || command -v sh)"'
_MAX_INPUT_BYTES = 64 << 20
_MAX_PATH_LENGTH = 4096
_KILLED_EXIT_CODE = 137
# Of cgroup v2 and of cgroup v1: a node has one of the two pairs.
_MEMORY_FILES = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory.events",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    "/sys/fs/cgroup/memory/memory.oom_control",
)
_NO_MEMORY_LIMIT = 1 << 60  # cgroup v1 writes a number above this for "no limit"
_MEMORY_CHECK_TIMEOUT = 5.0


class _ExecOptions(TypedDict):
    """Options of a command that all ways to run it have."""

    env: dict[str, str]
    cwd: str | None
    container: str | None


class _ExecCommand(click.Command):
    """Options end at NAME, unless only options stand between NAME and the first `--`."""

    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._move_options_first(ctx, args))

    def _move_options_first(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move options between NAME and `--` to the front; leave the command unchanged."""
        rest = self._strip_options(ctx, args)
        before = args[: len(args) - len(rest)]
        if "--" not in rest or before[-1:] == ["--"]:
            return args
        first = rest.index("--")
        name, between, command = rest[:1], rest[1:first], rest[first + 1 :]
        if self._strip_options(ctx, between):
            return args
        return [*before, *between, "--", *name, *command]

    def _strip_options(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments without leading options and their values."""
        parsed, _, _ = self.make_parser(ctx).parse_args(list(args))
        name, command = parsed.get("name"), parsed.get("command")
        return [*([name] if isinstance(name, str) else []), *(command if isinstance(command, tuple) else ())]


@click.command("exec", cls=_ExecCommand)
@flag_option("--tty", "-t", text="Allocate a terminal for the command and send it every key.")
@click.option(
    "--stdin/--no-stdin",
    "-i/-n",
    default=None,
    help="Send stdin to the command; default: with --tty, or if stdin is a pipe or a file.",
)
@env_option
@click.option(
    "--cwd",
    metavar="PATH",
    type=SANDBOX_PATH,
    help="Working directory; a relative path starts in /sandbox.",
)
@flag_option(
    "--background",
    "-b",
    text="Print the id of the command and return; the command continues without a client.",
)
@click.option(
    "--timeout", type=SECONDS, metavar="SECONDS", help="End the command after this time; the exit code is 1."
)
@container_option
@sandbox_options
@sandbox_argument
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def exec_command(  # noqa: PLR0913 (one for each option)
    ctx: click.Context,
    name: str,
    command: tuple[str, ...],
    *,
    tty: bool,
    stdin: bool | None,
    env: tuple[tuple[str, str], ...],
    cwd: str | None,
    background: bool,
    timeout: float | None,
    container: str | None,
    gateway: str | None,
) -> None:
    """Run COMMAND in sandbox NAME and exit with its exit code.

    Everything after NAME belongs to the command. Options can also follow NAME if `--` separates them from
    the command. In a loop that reads stdin, use -n, so that the command does not consume it. Without --tty,
    Ctrl-C also ends the command in the sandbox; a second Ctrl-C does not wait for that.

    With --background, the command gets no input. Use `sandbox ps`, `sandbox output` and `sandbox kill` with
    the printed id.
    """
    from holdfast.cli.sandbox.terminal import has_piped_input

    if tty and is_json_requested():
        raise UsageError("--tty: cannot be combined with --json", hint="Omit one of them.")
    if background and (tty or stdin or timeout is not None):
        option = "--tty" if tty else "--stdin" if stdin else "--timeout"
        raise UsageError(f"{option}: cannot be combined with --background", hint="Omit one of them.")
    options = _ExecOptions(env=dict(env), cwd=cwd, container=container)
    send_stdin = stdin if stdin is not None else tty or has_piped_input()
    sandbox = open_gateway(gateway, event_printer()).sandbox(name)
    if background:
        _start_in_background(sandbox, command, options)
    elif is_json_requested():
        ctx.exit(_run_as_json(sandbox, command, options, send_stdin=send_stdin, timeout=timeout))
    else:
        ctx.exit(_run_attached(sandbox, command, options, tty=tty, stdin=send_stdin, timeout=timeout))


def _start_in_background(sandbox: Sandbox, command: tuple[str, ...], options: _ExecOptions) -> None:
    from holdfast.cli.output import print_result

    with sandbox:
        started = sandbox.exec(*command, **options, background=True)
    print_result({"id": started.id}, [started.id])


@click.command()
@click.option(
    "--shell", type=PATH, metavar="PATH", help="Path of the shell in the sandbox; default: bash, or else sh."
)
@container_option
@sandbox_options
@sandbox_argument
@click.pass_context
def connect(
    ctx: click.Context,
    name: str,
    *,
    shell: str | None,
    container: str | None,
    gateway: str | None,
) -> None:
    """Open a shell in sandbox NAME; --json applies to errors only."""
    command = (shell,) if shell else ("/bin/sh", "-c", _SHELL_COMMAND)
    sandbox = open_gateway(gateway, event_printer()).sandbox(name)
    tty = os.isatty(0) and os.isatty(1)
    options = _ExecOptions(env={}, cwd=None, container=container)
    ctx.exit(_run_attached(sandbox, command, options, tty=tty, stdin=True))


def _run_attached(
    sandbox: Sandbox,
    command: tuple[str, ...],
    options: _ExecOptions,
    *,
    tty: bool,
    stdin: bool,
    timeout: float | None = None,
) -> int:
    import asyncio

    from holdfast.cli.sandbox.terminal import attach

    async def run() -> int:
        async with (
            sandbox as client,
            client.session(*command, tty=tty, stdin=stdin, **options) as session,
        ):
            code = await attach(session, tty=tty, stdin=stdin, timeout=timeout)
            await _explain_kill(client, code, options["container"])
        return code

    # On the main thread, not on the client's loop thread: only there can a loop handle signals.
    return asyncio.run(run())


async def _exceeded_memory_limit(client: AsyncSandbox, container: str | None) -> str | None:
    """The memory limit of a container in which the kernel has killed a process for exceeding it, or None."""
    import asyncio
    from contextlib import suppress

    with suppress(HoldfastError, TimeoutError):
        async with asyncio.timeout(_MEMORY_CHECK_TIMEOUT):
            result = await client.exec("cat", *_MEMORY_FILES, container=container)
        limit, *events = result.text.splitlines() or [""]
        counts = dict(line.split(" ", 1) for line in events if " " in line)
        if limit.isdigit() and int(limit) < _NO_MEMORY_LIMIT and counts.get("oom_kill", "0") != "0":
            return f"{int(limit) >> 20}Mi"
    return None


async def _explain_kill(client: AsyncSandbox, exit_code: int, container: str | None) -> None:
    """Write to stderr that a killed command probably exceeded the memory limit of its container."""
    if exit_code != _KILLED_EXIT_CODE:
        return
    limit = await _exceeded_memory_limit(client, container)
    if limit is not None:
        click.echo(f"sandbox {client.name}: killed, probably out of memory: limit {limit}", err=True)


def _run_as_json(
    sandbox: Sandbox,
    command: tuple[str, ...],
    options: _ExecOptions,
    *,
    send_stdin: bool,
    timeout: float | None,
) -> int:
    """Run a command, print its result as JSON and return its exit code."""
    import asyncio
    import sys

    from holdfast.cli.output import print_json

    data = sys.stdin.buffer.read(_MAX_INPUT_BYTES + 1) if send_stdin else None
    if data is not None and len(data) > _MAX_INPUT_BYTES:
        raise UsageError(
            f"stdin: exceeds the {_MAX_INPUT_BYTES >> 20} MiB limit of --json; the command was not run",
            hint="Omit --json.",
        )

    async def run() -> ExecResult:
        async with sandbox as client:
            result = await client.exec(*command, stdin=data, timeout=timeout, **options)
            await _explain_kill(client, result.exit_code, options["container"])
        return result

    result = asyncio.run(run())
    stdout, stderr = (output.decode(errors="replace") for output in (result.stdout, result.stderr))
    print_json({"exit_code": result.exit_code, "stdout": stdout, "stderr": stderr})
    return result.exit_code
