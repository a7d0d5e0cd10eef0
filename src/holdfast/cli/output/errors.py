"""Translate exceptions into an error message with a code and a hint, and into the exit code.

Exit codes: 0 success; 1 failed, rerun the same command to continue; 2 usage error; 3 manual action required,
see the hint; 4 another run holds the gateway; 5 `--plan` found changes; 130 interrupted.
"""

from __future__ import annotations

import os
import re
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.exceptions import NoArgsIsHelpError

from holdfast import home
from holdfast.cli.checked_type import RejectedArgumentError, show_value
from holdfast.cli.click_extensions import FAILED_RUN_KEY, JSON_KEY, chosen_gateway, name_gateway
from holdfast.cli.output.text import defer_interrupts, echo, escape_control_characters
from holdfast.errors import DiskFullError, HoldfastError, OperationCancelledError, PermanentError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_MAX_WORD_LENGTH = 60
_JSON_OPTION = re.compile("(?:^| )(?:--json|-o ?json|--output[ =]json)(?: |$)")


def run_command(command: click.Command, args: Sequence[str] | None = None) -> int:
    """Run a command line, print its error if it fails, and return its exit code.

    Args:
        command: the root command.
        args: the arguments; default: those of the process.
    """
    arguments = list(sys.argv[1:] if args is None else args)
    flags: dict[str, Any] = {}
    try:
        result = command.main(arguments, prog_name="holdfast", standalone_mode=False, obj=flags)
    except SystemExit:
        # click exits after EPIPE. With `... | head -1` that is not a failure of the command.
        if _is_stdout_closed():
            return 0
        raise
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (users get a message, not a traceback)
        # click may have rejected the arguments before it processed the flag.
        ours = arguments[: [*arguments, "--"].index("--")]
        is_unprocessed = isinstance(error, click.ClickException) and _JSON_OPTION.search(" ".join(ours))
        # The command has ended: another Ctrl-C must not hide how.
        exit_code = OperationCancelledError.exit_code
        with suppress(KeyboardInterrupt), defer_interrupts():
            as_json = bool(is_unprocessed) or flags.get(JSON_KEY, False)
            if isinstance(error, click.UsageError) and error.ctx is None:
                error.ctx = _command_context(command, ours)
            run = str(flags.get(FAILED_RUN_KEY, ""))
            exit_code = _handle_error(error, as_json=as_json, gateway=chosen_gateway(flags), run=run)
        return exit_code
    return result if isinstance(result, int) else 0


def _command_context(command: click.Command, arguments: Sequence[str]) -> click.Context:
    """The context of the command that the arguments name; some errors of click have none."""
    ctx = click.Context(command, info_name="holdfast")
    for word in arguments:
        found = ctx.command.get_command(ctx, word) if isinstance(ctx.command, click.Group) else None
        if found is not None:
            ctx = click.Context(found, parent=ctx, info_name=word)
    return ctx


def _is_stdout_closed() -> bool:
    """Whether stdout is a pipe that no process reads."""
    poll = select.poll()
    poll.register(1, 0)
    return bool(poll.poll(0))


def _handle_error(error: BaseException, *, as_json: bool, gateway: str, run: str) -> int:
    if isinstance(error, NoArgsIsHelpError) and not as_json:
        error.show()
        return error.exit_code
    if isinstance(error, click.ClickException):
        error = _translate_click_error(error)
    elif isinstance(error, KeyboardInterrupt | click.Abort):
        error = OperationCancelledError("interrupted")
    elif isinstance(error, OSError):
        error = _translate_os_error(error) or error
    if not isinstance(error, HoldfastError):
        error = _internal_error(error)
    print_error(error, as_json=as_json, gateway=gateway, run=run)
    return error.exit_code


def _translate_click_error(error: click.ClickException) -> UsageError:
    """One line for what click rejects itself, such as an unknown option; a long word is shortened."""
    if isinstance(error, RejectedArgumentError):
        return error.error
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    message = error.format_message().rstrip(".")
    words = [word if len(word) <= _MAX_WORD_LENGTH else show_value(word) for word in message.split(" ")]
    message = escape_control_characters(" ".join(words))
    if ctx is None:
        return UsageError(message)
    message = f"{ctx.command_path}: {message[:1].lower()}{message[1:]}"
    return UsageError(message, hint=f"Run `{ctx.command_path} --help`.")


def _translate_os_error(error: OSError) -> HoldfastError | None:
    """Recognize a full disk and an unusable holdfast directory; other OS errors are defects."""
    if error.errno in home.NO_SPACE_ERRNOS:
        return DiskFullError(f"{error.filename or 'file system'}: no space left on this machine")
    if not isinstance(error.filename, str | bytes):
        return None
    path, roots = Path(os.fsdecode(error.filename)), (home.config_dir(), home.state_dir(), home.cache_dir())
    if not any(path.is_relative_to(root) or root.is_relative_to(path) for root in roots):
        return None
    return PermanentError(
        f"{path}: {error.strerror}",
        hint="Make it writable for your user, or set HOLDFAST_HOME (configuration and state) or "
        "HOLDFAST_CACHE (images) to another directory. Then run the same command again.",
    )


def print_error(error: HoldfastError, *, as_json: bool, gateway: str, run: str = "") -> None:
    """Print an error on stderr.

    Args:
        error: the error.
        as_json: whether to print it as JSON.
        gateway: the gateway that the user chose for this command, which commands in the hint have to name;
            empty for the active one.
        run: the recorded run that failed; empty if there is none.
    """
    hint = name_gateway(error.hint, gateway)
    if as_json:
        from holdfast.cli.output.plain import print_json

        body = {"event": "error", "code": error.code, "error": error.message, "hint": hint}
        print_json({**body, "exit_code": error.exit_code, "run": run}, err=True)
        return
    print_error_line(f"{error.message} [{error.code}]")
    if hint:
        echo(f"  {hint}", err=True)
    if run and not isinstance(error, OperationCancelledError):
        echo(f"  Run `holdfast timeline {run}` to see what the command did, step by step.", err=True)


def print_error_line(text: str) -> None:
    """Print a line with the mark of an error on stderr."""
    echo(click.style("x ", fg="red", bold=True) + text, err=True)


def _internal_error(error: BaseException) -> HoldfastError:
    """Write the traceback to a file and return the error that names it."""
    import tempfile
    import traceback

    # The file has mode 0600: the messages in a traceback may quote private data.
    with tempfile.NamedTemporaryFile("w", prefix="holdfast-", suffix=".trace", delete=False) as file:
        traceback.print_exception(error, file=file)
    hint = f"Report this defect of holdfast and attach {file.name}. It is safe to run the command again."
    return HoldfastError(f"{type(error).__name__}: {error}", hint=hint)
