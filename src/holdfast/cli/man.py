"""`holdfast man show | install`: manual pages with the texts of `--help`, generated from the commands."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tempfile
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast import __file__ as package_file, __version__
from holdfast.cli.checked_type import show_value
from holdfast.cli.click_extensions import LazyGroup, complete_with, is_json_requested, json_option
from holdfast.cli.completion import read_installed
from holdfast.cli.output import print_result
from holdfast.cli.parameters import DIRECTORY
from holdfast.errors import PermanentError, ToolNotFoundError, UsageError
from holdfast.home import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMANDS = {
    "show": ("holdfast.cli.man:show", "Show the manual page of a command."),
    "install": ("holdfast.cli.man:install", "Install the manual pages for your user."),
}
_SECTION = "1"
# The first line of a page: a file without it is not replaced.
_MARKER = '.\\" This file belongs to holdfast and is replaced when the pages are installed again.\n'
_LINE_LENGTH = 78
_ESCAPES = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"})
_LITERAL = "\b\n"
"""Start of a paragraph of a help text whose lines click prints unchanged."""


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def man() -> None:
    """Show or install manual pages with the texts of --help."""


@click.command()
@click.argument("words", metavar="[COMMAND]...", nargs=-1, shell_complete=complete_with("complete_commands"))
@json_option
def show(words: tuple[str, ...]) -> None:
    """Show the manual page of COMMAND, such as `sandbox delete`; default: that of holdfast.

    In a pipe or a file, print the source of the page, in the format of man(7).
    """
    pages = {context.command_path: context for context in _contexts()}
    context = pages.get(" ".join(("holdfast", *words)))
    if context is None:
        raise UsageError(
            f"command {show_value(' '.join(words))}: does not exist",
            hint="Run `holdfast --help` to list all commands.",
        )
    name, source = _page_name(context), _MARKER + _render_page(context)
    if sys.stdout.isatty() and not is_json_requested():
        _open_viewer(name, source)
        return
    print_result({"name": name, "source": source}, source.splitlines())


@click.command()
@click.option(
    "--dir", "directory", type=DIRECTORY, metavar="DIRECTORY",
    help="Directory for the pages; default: ~/.local/share/man/man1.",
)  # fmt: skip
@json_option
def install(directory: Path | None) -> None:
    """Install a manual page for holdfast and for each command.

    A file of another program is not replaced. Pages of commands that no longer exist are removed.
    """
    directory = directory or _default_directory()
    pages = {_file_name(context): _MARKER + _render_page(context) for context in _contexts()}
    hint = "Move it away, then run `holdfast man install` again."
    try:
        installed = {path.name: read_installed(path, _MARKER, hint) for path in _page_files(directory, pages)}
        for name in installed.keys() - pages.keys():
            (directory / name).unlink()
        changed = [name for name, source in pages.items() if installed.get(name) != source]
        for name in changed:
            # Through a link, such as one into a directory with configuration files.
            write_atomic((directory / name).resolve(), pages[name], mode=0o644)
    except OSError as error:
        raise PermanentError(
            f"{error.filename or directory}: {error.strerror}", hint="Choose another directory with --dir."
        ) from error
    done = f"Installed {len(changed)} of {len(pages)} pages in {directory}."
    print_result(
        {"directory": str(directory), "pages": list(pages), "changed": changed},
        [
            done if changed else f"The {len(pages)} pages in {directory} are up to date.",
            *_reading_instructions(directory),
        ],
    )


def _reading_instructions(directory: Path) -> list[str]:
    if directory.name != f"man{_SECTION}":
        return [f"Read one with `man -l {directory / 'holdfast-up.1'}`."]
    return [
        "Read them with `man holdfast` or `man holdfast-sandbox-delete`.",
        f"If man does not find them: export MANPATH={directory.parent}:",
    ]


def _default_directory() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "man" / "man1"


def _page_files(directory: Path, pages: dict[str, str]) -> Iterator[Path]:
    """The files of all pages, and of pages that an earlier version has installed."""
    yield from (directory / name for name in pages)
    for path in sorted(directory.glob(f"holdfast-*.{_SECTION}")):
        if path.name not in pages and path.read_text(errors="replace").startswith(_MARKER):
            yield path


def _open_viewer(name: str, source: str) -> None:
    # A file, not a pipe: the viewer reads the keyboard.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.{_SECTION}"
        path.write_text(source)
        try:
            exit_code = subprocess.run(["man", "-l", str(path)], check=False).returncode
        except FileNotFoundError:
            raise ToolNotFoundError(
                "man: not found on this machine", hint="Install the package man-db, or use --help."
            ) from None
    click.get_current_context().exit(exit_code)


def _contexts() -> Iterator[click.Context]:
    """The contexts of `holdfast` and all its public commands, parents first."""
    from holdfast.cli import cli

    yield from _subcontexts(click.Context(cli, info_name="holdfast", **cli.context_settings))


def _subcontexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    for name, command in _subcommands(context):
        settings = command.context_settings
        yield from _subcontexts(click.Context(command, info_name=name, parent=context, **settings))


def _subcommands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield name, command


def _page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _file_name(context: click.Context) -> str:
    return f"{_page_name(context)}.{_SECTION}"


def _render_page(context: click.Context) -> str:
    """Return the source of a page, in the format of man(7)."""
    command, name = context.command, _page_name(context)
    # The texts change when holdfast is installed. With today's date, a second run would change all pages.
    installed = datetime.fromtimestamp(Path(package_file).stat().st_mtime, UTC)
    lines = [
        f'.TH {name.upper()} {_SECTION} {installed:%Y-%m-%d} "holdfast {__version__}" "holdfast manual"',
        ".SH NAME",
        *_wrap(f"{name} - {_summary(command)}"),
        ".SH SYNOPSIS",
        f".B {_escape(context.command_path)}",
        *_wrap(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *_description(command),
        ".SH OPTIONS",
    ]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record:
            lines += _entry(*record)
    subcommands = list(_subcommands(context))
    if subcommands:
        lines.append(".SH COMMANDS")
        for word, subcommand in subcommands:
            lines += _entry(word, f"{_summary(subcommand)}.")
    lines += [".SH SEE ALSO", *_references(context, [word for word, _ in subcommands])]
    return "\n".join(lines) + "\n"


def _summary(command: click.Command) -> str:
    return command.get_short_help_str(limit=1000).rstrip(".")


def _description(command: click.Command) -> Iterator[str]:
    text = inspect.cleandoc((command.help or "").partition("\f")[0])
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith(_LITERAL):
            literal = paragraph.removeprefix(_LITERAL).splitlines()
            yield from (".nf", *map(_source_line, map(_escape, literal)), ".fi")
        else:
            yield from _wrap(paragraph)


def _entry(term: str, text: str) -> list[str]:
    return [".TP", f".B {_escape(term)}", *_wrap(text)]


def _references(context: click.Context, subcommands: list[str]) -> list[str]:
    name = _page_name(context)
    names = [f"{name}-{word}" for word in subcommands]
    if context.parent is not None:
        names.insert(0, _page_name(context.parent))
    return [f".BR {_escape(each)} ({_SECTION}){',' if each != names[-1] else ''}" for each in names]


def _wrap(text: str) -> list[str]:
    """Escape a paragraph, and break it into lines of source."""
    escaped = _escape(" ".join(text.split()))
    lines = textwrap.wrap(escaped, _LINE_LENGTH, break_long_words=False, break_on_hyphens=False)
    return list(map(_source_line, lines))


def _escape(text: str) -> str:
    """Escape what man(7) interprets, or prints as a typographic character."""
    return text.translate(_ESCAPES)


def _source_line(line: str) -> str:
    """A dot at the start of a line begins a request."""
    return f"\\&{line}" if line.startswith(".") else line
