"""`holdfast completion install | show`: shell completion for bash, zsh and fish."""

from __future__ import annotations

import os
from pathlib import Path

import click

from holdfast.cli.checked_type import ChoiceType
from holdfast.cli.click_extensions import LazyGroup, json_option
from holdfast.cli.output import print_result
from holdfast.errors import PermanentError, UsageError
from holdfast.home import write_atomic

_COMMANDS = {
    "install": ("holdfast.cli.completion:install", "Install the completion script for your user."),
    "show": ("holdfast.cli.completion:show", "Print the completion script."),
}
_SHELLS = ("bash", "zsh", "fish")
_COMPLETE_VARIABLE = "_HOLDFAST_COMPLETE"
# The last line of an installed script: a file without it is not replaced.
_MARKER = "# This file belongs to holdfast and is replaced when it is installed again.\n"


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def completion() -> None:
    """Complete commands, options and names with the Tab key in bash, zsh and fish."""


def _shell_of_user(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    if value is not None:
        return value
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in _SHELLS:
        raise UsageError(
            "SHELL: names none of bash, zsh and fish",
            hint="Name the shell, as in `holdfast completion show bash`.",
        )
    return shell


_shell_argument = click.argument(
    "shell",
    type=ChoiceType(lambda: _SHELLS, example="bash"),
    required=False,
    callback=_shell_of_user,
    metavar="[SHELL]",
)


@click.command()
@_shell_argument
@json_option
def show(shell: str) -> None:
    """Print the completion script for SHELL (bash, zsh or fish); default: the shell in $SHELL."""
    script = _completion_script(shell)
    print_result({"shell": shell, "script": script}, [script.rstrip()])


@click.command()
@_shell_argument
@json_option
def install(shell: str) -> None:
    """Install the completion script for SHELL (bash, zsh or fish); default: the shell in $SHELL.

    The script goes to the directory of your user from which the shell loads completions. A file of another
    program is not replaced.
    """
    path, script = _script_path(shell), f"{_completion_script(shell)}{_MARKER}"
    hint = f"Move it away, then run `holdfast completion install {shell}` again."
    current = read_installed(path, _MARKER, hint)
    if current != script:
        # Through a link, such as one into a directory with configuration files.
        write_atomic(path.resolve(), script, mode=0o644)
    outcome = f"{path} is up to date." if current == script else f"Installed {path}."
    print_result(
        {"shell": shell, "path": str(path), "changed": current != script},
        [outcome, *_next_steps(shell, path)],
    )


def _completion_script(shell: str) -> str:
    from click.shell_completion import get_completion_class

    from holdfast.cli import cli

    shell_class = get_completion_class(shell)
    if shell_class is None:
        raise TypeError(f"click does not support {shell}")
    return shell_class(cli, {}, "holdfast", _COMPLETE_VARIABLE).source()


def _script_path(shell: str) -> Path:
    """Where the shell looks for completions of a user; zsh has no such directory, ~/.zfunc is usual."""
    environment, home = os.environ, Path.home()
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    if shell == "bash":
        folder = Path(environment.get("BASH_COMPLETION_USER_DIR") or data / "bash-completion")
        return folder / "completions" / "holdfast"
    if shell == "zsh":
        return Path(environment.get("ZDOTDIR") or home) / ".zfunc" / "_holdfast"
    return config / "fish" / "completions" / "holdfast.fish"


def read_installed(path: Path, marker: str, hint: str) -> str | None:
    """Return the content of a file that holdfast has installed; None if there is none.

    Args:
        path: the file.
        marker: the line that all files of holdfast contain.
        hint: what the user has to do about a file of another program.

    Raises:
        PermanentError: the file does not belong to holdfast, or is not readable.
    """
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PermanentError(f"{path}: {error.strerror}; nothing was changed") from error
    if marker not in text:
        raise PermanentError(f"{path}: belongs to another program; nothing was changed", hint=hint)
    return text


def _next_steps(shell: str, path: Path) -> list[str]:
    if shell == "bash":
        return [
            "Start a new shell to use it.",
            "Without the package bash-completion, first add this line to ~/.bashrc:",
            f"  source {path}",
        ]
    if shell == "zsh":
        # Sourced, not found through fpath: click's script then completes nothing at every second Tab.
        return [
            "Add these lines to ~/.zshrc if they are missing, then start a new shell:",
            "  autoload -Uz compinit && compinit",
            f"  source {path}",
        ]
    return ["Start a new shell to use it."]
