"""Commands and imports in the documentation exist, and every code block is executed or has a reason."""

import ast
import os
import shlex
from importlib import import_module

import click
import pytest
from tests.support.documentation import (
    ASKS,
    EXECUTABLE,
    EXECUTED_ELSEWHERE,
    NOT_EXECUTED,
    NOT_EXECUTED_COMMANDS,
    OTHER_LANGUAGES,
    PYTHON_SETUP,
    ROOT,
    SHELL_SETUP,
    WITHOUT_GATEWAY,
    blocks_for_gateway,
    code_blocks,
    run_block,
)

from holdfast.cli import cli
from holdfast.cli.checked_type import RejectedArgumentError

BLOCKS = {block.name: block for block in code_blocks() if block.language in EXECUTABLE}
OPERATORS = {"|", "||", "&&", ";", "do", "done"}


def simple_commands(line):
    """The words of each command of a line, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands, is_file = [[]], False
    for token in lexer:
        if token in OPERATORS:
            commands.append([])
        elif token in ("<", ">"):
            is_file = True
        elif not is_file:
            commands[-1].append(token)
        else:
            is_file = False
    return commands


def holdfast_commands():
    """(place, words) of each `holdfast` command in a block."""
    for block in BLOCKS.values():
        for line in block.text.splitlines() if block.language != "python" else ():
            if block.language == "sh" or line.startswith("$ "):
                for words in simple_commands(line.removeprefix("$ ")):
                    if words[:1] == ["holdfast"]:
                        yield f"{block.page}: {line}", words[1:]


def imported_names():
    """(place, module, name or None) of each import of holdfast in a block."""
    for block in BLOCKS.values():
        for node in ast.walk(ast.parse(block.text)) if block.language == "python" else ():
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("holdfast"):
                yield from ((block.name, node.module, alias.name) for alias in node.names)


def test_every_block_has_a_language():
    known = (*EXECUTABLE, *OTHER_LANGUAGES)
    unknown = [f"{each.page}:{each.line}" for each in code_blocks() if each.language not in known]
    assert unknown == [], f"write one of {known} behind the fence"


def test_every_block_is_executed_in_one_way():
    named = [*WITHOUT_GATEWAY, *EXECUTED_ELSEWHERE, *NOT_EXECUTED]
    assert [name for name in named if name not in BLOCKS] == [], "these blocks do not exist (any more)"
    assert len(named) == len(set(named))
    on_gateway = {each.name for each in blocks_for_gateway()}
    assert [name for name in (*SHELL_SETUP, *PYTHON_SETUP) if name not in on_gateway | set(named)] == []


def test_tests_that_execute_blocks_exist():
    assert [test for test in EXECUTED_ELSEWHERE.values() if not (ROOT / test).is_file()] == []


def test_commands_that_are_left_out_exist():
    commands = [f"holdfast {shlex.join(words)} " for _, words in holdfast_commands()]
    unused = [
        each for each in (*NOT_EXECUTED_COMMANDS, *ASKS) if not any(f"{each} " in one for one in commands)
    ]
    assert unused == []


def usage_error(words):
    """Why a command line is invalid; empty if it is valid, or if only a value is not, such as a file."""
    group = cli
    while isinstance(group, click.Group):
        if not words:
            return "" if group.invoke_without_command else "no subcommand"
        name, *words = words
        command = group.get_command(click.Context(group), name)
        if command is None:
            return "" if group.invoke_without_command else f"no command {name}"
        group = command
    try:
        group.make_context("holdfast", words)
    except RejectedArgumentError:
        return ""
    except click.UsageError as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize(("place", "words"), list(holdfast_commands()))
def test_command_of_a_block_exists(place, words):
    assert usage_error(words) == "", place


def test_commands_that_do_not_exist_are_found():
    assert "No such option" in usage_error(["sandbox", "list", "--wide"])
    assert usage_error(["sandbox", "enter", "a"]) == "no command enter"
    assert "Missing argument" in usage_error(["sandbox", "create"])
    assert usage_error(["sandbox", "create", "a", "--memory", "512Mi"]) == ""


@pytest.mark.parametrize(("place", "module", "name"), list(imported_names()))
def test_import_of_a_block_exists(place, module, name):
    assert hasattr(import_module(module), name), place


@pytest.mark.parametrize("name", WITHOUT_GATEWAY)
def test_block_without_gateway_is_executed(name, tmp_path):
    block = BLOCKS[name]
    ended = run_block(block, tmp_path, {**os.environ, "HOLDFAST_HOME": str(tmp_path / "home")})
    if block.language == "python":
        assert ended.returncode == 0, ended.stderr
    else:
        printed = "".join(line + "\n" for line in block.text.splitlines() if not line.startswith("$ "))
        assert ended.stdout + ended.stderr == printed
