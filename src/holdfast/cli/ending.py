"""How a command ends: every error becomes one clear line with a code and a hint, and an exit code.

0 done · 1 failed, run again to go on · 2 usage · 3 needs a person · 4 locked · 5 --plan found changes ·
130 interrupted. Only a defect in holdfast itself shows a traceback's last line, and says where the rest is.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast import home
from holdfast.errors import CancelledError, DiskFullError, HoldfastError, PermanentError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEFECT = 1
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def exit_code_of(command: click.Command, args: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; nothing escapes but the end of the program."""
    words = list(sys.argv[1:] if args is None else args)
    as_json = "--json" in words
    try:
        outcome = command.main(words, prog_name="holdfast", standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (a tired user gets no traceback)
        return _ended_by(error, as_json=as_json)
    return outcome if isinstance(outcome, int) else 0


def _ended_by(error: BaseException, *, as_json: bool) -> int:
    told = _about_our_files(error)
    if told is not None:
        return _ended_by(told, as_json=as_json)
    if isinstance(error, HoldfastError):
        tell(error, as_json=as_json)
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return _ended_by(CancelledError("interrupted"), as_json=as_json)
    if isinstance(error, click.ClickException):
        _tell_usage(error, as_json=as_json)
        return error.exit_code
    _tell_defect(error, as_json=as_json)
    return _DEFECT


def _about_our_files(error: BaseException) -> HoldfastError | None:
    """A full disk, or a folder of ours that cannot be used: for a person to mend, and no defect."""
    if not isinstance(error, OSError):
        return None
    if error.errno in _FULL:
        return DiskFullError(f"no space is left for {error.filename or 'a file'} on this machine")
    if not isinstance(error.filename, str | bytes):
        return None
    path, roots = Path(os.fsdecode(error.filename)), (home.config_dir(), home.state_dir(), home.cache_dir())
    if not any(path.is_relative_to(root) or root.is_relative_to(path) for root in roots):
        return None
    return PermanentError(
        f"{path} cannot be used: {error.strerror}",
        hint="Make it yours and writable, or name another place: HOLDFAST_HOME for what holdfast remembers, "
        "HOLDFAST_CACHE for what it builds. Then run the same command again.",
    )


def tell(error: HoldfastError, *, as_json: bool) -> None:
    """Print an error of ours on stderr."""
    if as_json:
        _tell_json(error.code, error.message, error.hint, error.exit_code)
        return
    click.echo(click.style("x ", fg="red", bold=True) + f"{error.message} [{error.code}]", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)


def _tell_usage(error: click.ClickException, *, as_json: bool) -> None:
    if as_json:
        _tell_json("usage", error.format_message(), "", error.exit_code)
    else:
        error.show()


def _tell_defect(error: BaseException, *, as_json: bool) -> None:
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="holdfast-", suffix=".trace", delete=False) as file:
        traceback.print_exception(error, file=file)
    hint = (
        f"This is a defect in holdfast; please report it with {file.name}. Running the command again is safe."
    )
    tell(HoldfastError(f"{type(error).__name__}: {error}", hint=hint), as_json=as_json)


def _tell_json(code: str, message: str, hint: str, exit_code: int) -> None:
    import msgspec

    body = {"event": "error", "code": code, "error": message, "hint": hint, "exit_code": exit_code}
    click.echo(msgspec.json.encode(body).decode(), err=True)
