"""`holdfast secret create | list | get | delete`: values that sandboxes use and nobody can read back."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from holdfast.cli.checked_type import CheckedType, InvalidValueError
from holdfast.cli.click_extensions import (
    LazyGroup,
    complete_with,
    flag_option,
    gateway_option,
    json_option,
    name_gateway,
)
from holdfast.cli.output import format_age, format_table, print_result, progress_renderer
from holdfast.cli.parameters import EXISTING_FILE, OBJECT, SECRET_KEY
from holdfast.errors import SecretNotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from holdfast.api import SecretResult, SecretView
    from holdfast.cli.output import ProgressRenderer
    from holdfast.client import Secrets

_COMMANDS = {
    "create": ("holdfast.cli.secret:create", "Create a secret, or replace its values."),
    "list": ("holdfast.cli.secret:list_secrets", "List secrets with the names of their keys."),
    "get": ("holdfast.cli.secret:get", "Show the keys of a secret and the sandboxes that use it."),
    "delete": ("holdfast.cli.secret:delete", "Delete a secret."),
}
_STDIN = Path("-")


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def secret() -> None:
    """Manage values that sandboxes use: passwords, tokens, keys, certificates.

    `sandbox create --secret NAME` passes all keys of a secret as environment variables, and `--secret
    NAME:/path` as files. No command prints the values.
    """


class _VariableType(CheckedType[str]):
    """The name of a variable of this command."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        # The part after = is not shown: it may be the value itself.
        name, equals, _ = str(value).partition("=")
        return super().convert(f"{name}=…" if equals else name, param, ctx)


def _parse_variable_name(text: str) -> str:
    if _read_variable(text) is None:
        raise InvalidValueError("not a variable of this command")
    return text


def _parse_key_file(text: str) -> tuple[str, Path]:
    key, equals, path = text.partition("=")
    if not equals:
        raise InvalidValueError("not KEY=FILE")
    return SECRET_KEY.parse(key), EXISTING_FILE.parse(path)


_VARIABLE_NAME = _VariableType(_parse_variable_name, "the name of a variable that is set", example="PATH")
_KEY_FILE = CheckedType(_parse_key_file, "KEY=FILE with a file that exists", example="KEY=/dev/null")

_name_argument = click.argument(
    "name", type=OBJECT, metavar="NAME", shell_complete=complete_with("complete_secrets")
)


def _secret_options(command: Callable[..., Any]) -> Callable[..., Any]:
    return gateway_option(json_option(command))


@contextmanager
def _open_secrets(gateway: str | None) -> Iterator[tuple[Secrets, ProgressRenderer]]:
    """Yield the secrets of an existing gateway, and the renderer of its events."""
    from holdfast.gateway import Gateway, resolve_gateway_name

    with progress_renderer() as renderer:
        opened = Gateway(resolve_gateway_name(gateway), listener=renderer.bus.emit)
        with opened.secrets() as secrets:
            yield secrets, renderer


@secret.command()
@click.argument("name", type=OBJECT, metavar="NAME")
@click.argument("values", nargs=-1, metavar="", type=click.UNPROCESSED)
@click.option(
    "--from-env-file", "env_files", type=EXISTING_FILE, multiple=True, metavar="FILE",
    help="File with KEY=VALUE lines; - for standard input, which is the default. Can be repeated.",
)  # fmt: skip
@click.option(
    "--from-file", "files", type=_KEY_FILE, multiple=True, metavar="KEY=FILE",
    help="File whose content is the value of KEY. Can be repeated.",
)  # fmt: skip
@click.option(
    "--from-env", "variables", type=_VARIABLE_NAME, multiple=True, metavar="VARIABLE",
    help="Environment variable of this command; its name is the key. Can be repeated.",
)  # fmt: skip
@click.option(
    "--from-stdin", "stdin_key", type=SECRET_KEY, metavar="KEY",
    help="Take standard input, without its last line break, as the value of KEY; a terminal asks for it.",
)  # fmt: skip
@flag_option("--replace", text="Replace the values of an existing secret that differs.")
@_secret_options
def create(
    name: str,
    *,
    values: tuple[str, ...],
    env_files: tuple[Path, ...],
    files: tuple[tuple[str, Path], ...],
    variables: tuple[str, ...],
    stdin_key: str | None,
    replace: bool,
    gateway: str | None,
) -> None:
    """Create secret NAME from files, variables or standard input; never from arguments.

    If the secret exists with the same values, nothing changes. If it exists with other values, the command
    fails unless --replace is given.
    """
    from holdfast.client import build_secret_request

    if values:
        # Not quoted: the arguments may be values.
        raise UsageError(
            f"secret {name}: values as arguments are visible to other users of this machine",
            hint="Pass KEY=VALUE lines on standard input, or use --from-env, --from-file or --from-stdin.",
        )
    if not (env_files or files or variables or stdin_key):
        env_files = (_STDIN,)
    if stdin_key is not None and _STDIN in env_files:
        raise UsageError("--from-stdin: cannot be combined with --from-env-file -", hint="Omit one of them.")
    data = _collect_values(env_files, files, variables, stdin_key)
    build_secret_request(name, data)  # report invalid keys before any access to the network
    with _open_secrets(gateway) as (secrets, _):
        result = secrets.create(name, data, replace=replace)
    print_result(result, list(_creation_lines(result)))


def _creation_lines(result: SecretResult) -> Iterator[str]:
    view = result.secret
    effect = "exists with the same values" if result.effect == "unchanged" else f"is {result.effect}"
    yield f"Secret {view.name} {effect}: {', '.join(view.keys)}."
    if result.effect == "replaced" and view.sandboxes:
        yield (
            f"Used by {', '.join(view.sandboxes)}: mounted files change within two minutes, environment "
            "variables at the next resume."
        )


def _collect_values(
    env_files: tuple[Path, ...],
    files: tuple[tuple[str, Path], ...],
    variables: tuple[str, ...],
    stdin_key: str | None,
) -> dict[str, bytes]:
    values: dict[str, bytes] = {}

    def add(key: str, value: bytes, source: str) -> None:
        if key in values:
            raise UsageError(f"{source}: the key {key!r} is given twice", hint="Give each key once.")
        values[key] = value

    for path in env_files:
        for key, value in _parse_env_file(path):
            add(key, value, f"--from-env-file {path}")
    for key, path in files:
        add(key, _read_file(path, "--from-file"), f"--from-file {key}")
    for variable in variables:
        add(variable, _read_variable(variable) or b"", f"--from-env {variable}")
    if stdin_key is not None:
        add(stdin_key, _read_stdin_value(stdin_key), f"--from-stdin {stdin_key}")
    return values


def _read_variable(name: str) -> bytes | None:
    return os.environb.get(name.encode(errors="surrogateescape"))


def _read_file(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UsageError(
            f"{option} {str(path)!r}: {reason}", hint="Pass a file that you can read."
        ) from error


def _parse_env_file(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the KEY=VALUE lines of a file; errors name the line but do not quote it."""
    if path == _STDIN:
        if _stdin().isatty():
            click.echo("Enter KEY=VALUE lines, then press Ctrl-D.", err=True)
        content = _stdin().read()
    else:
        content = _read_file(path, "--from-env-file")
    source = "standard input" if path == _STDIN else str(path)
    for number, line in enumerate(content.splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        key, equals, value = text.partition(b"=")
        if not (key.strip() and equals):
            raise UsageError(
                f"--from-env-file: {source}: line {number} is not KEY=VALUE",
                hint="Write one KEY=VALUE in each line.",
            )
        yield key.strip().decode(errors="replace"), value


def _read_stdin_value(key: str) -> bytes:
    if _stdin().isatty():
        return str(click.prompt(key, hide_input=True, err=True)).encode()
    return _stdin().read().removesuffix(b"\n").removesuffix(b"\r")


def _stdin() -> BinaryIO:
    return sys.stdin.buffer


@secret.command("list")
@_secret_options
def list_secrets(gateway: str | None) -> None:
    """List the secrets of a gateway with the names of their keys, without the values."""
    with _open_secrets(gateway) as (secrets, _):
        views = secrets.list()
    rows = [("NAME", "KEYS", "SANDBOXES", "AGE")]
    rows += [
        (view.name, ",".join(view.keys), ",".join(view.sandboxes), format_age(view.created)) for view in views
    ]
    empty = name_gateway("No secrets yet. Create one with `holdfast secret create work --from-env TOKEN`.")
    print_result({"secrets": views}, format_table(rows) if views else [empty])


@secret.command()
@_name_argument
@_secret_options
def get(name: str, gateway: str | None) -> None:
    """Show the keys of secret NAME and the sandboxes that use it; the values cannot be read."""
    with _open_secrets(gateway) as (secrets, _):
        view = secrets.get(name)
    fields = [
        ("secret", view.name), ("keys", ", ".join(view.keys)), ("created", view.created),
        ("sandboxes", ", ".join(view.sandboxes) or "none"),
    ]  # fmt: skip
    print_result(view, [f"{key:<10} {value}" for key, value in fields if value])


@secret.command()
@_name_argument
@flag_option("--ignore-missing", text="Exit with 0 if the secret does not exist.")
@flag_option("--yes", "-y", text="Do not ask for confirmation.")
@_secret_options
def delete(name: str, *, ignore_missing: bool, yes: bool, gateway: str | None) -> None:
    """Delete secret NAME. Sandboxes that use it keep running, but cannot be resumed without it."""
    from holdfast.api import SecretDeletion

    with _open_secrets(gateway) as (secrets, renderer):
        try:
            view = secrets.get(name)
        except SecretNotFoundError:
            if not ignore_missing:
                raise
            print_result(
                SecretDeletion(deleted=False), [f"Secret {name} does not exist; nothing was changed."]
            )
            return
        if not yes:
            _confirm_deletion(renderer, view)
        deletion = secrets.delete(name, ignore_missing=True)
    print_result(deletion, [f"Secret {name} is deleted.", *_user_lines(deletion.sandboxes)])


def _confirm_deletion(renderer: ProgressRenderer, view: SecretView) -> None:
    users = " ".join(_user_lines(view.sandboxes)) or "No sandbox uses it."
    if not sys.stdin.isatty():
        raise UsageError(
            f"deleting secret {view.name}: has to be confirmed ({users}); nothing was changed",
            hint="Pass --yes to confirm.",
        )
    question = f"Delete secret {view.name} with the keys {', '.join(view.keys)}? {users}"
    with renderer.pause():
        is_confirmed = click.confirm(question, default=False, err=True)
    if not is_confirmed:
        raise UsageError(f"secret {view.name}: deletion not confirmed; nothing was changed")


def _user_lines(sandboxes: list[str]) -> list[str]:
    return [f"Used by {', '.join(sandboxes)}: they cannot be resumed without it."] if sandboxes else []
