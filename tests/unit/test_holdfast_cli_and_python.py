"""Commands and the Python API can do the same things, except what docs/reference/cli-and-python.md lists."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import click
import pytest
from tests.support.command_tree import all_commands

from holdfast import Gateway, client, images
from holdfast.api import PoolOptions, SandboxOptions, SandboxUpdateOptions, TemplateOptions
from holdfast.client import (
    BackgroundCommand,
    ExecSession,
    Files,
    Pools,
    Sandbox,
    Sandboxes,
    Secrets,
    Templates,
)
from holdfast.gateway.gateway import GatewayOptions

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli-and-python.md").read_text()
COMMANDS = {" ".join(path): command for path, command in all_commands()}
OUTPUT_AND_OBJECT = {"json", "quiet", "verbose", "gateway", "yes", "name"}
"""Parameters of commands that decide about the output, confirm, or choose the object."""

OPTION_TYPES = {
    f"Unpack[{options.__name__}]": options
    for options in (GatewayOptions, SandboxOptions, SandboxUpdateOptions, TemplateOptions, PoolOptions)
}
CLIENTS = (Sandbox, Sandboxes, Files, BackgroundCommand, ExecSession, Templates, Pools, Secrets)
CLASSES = {each.__name__: each for each in (Gateway, *CLIENTS)}


def table(title):
    """The rows of the table in a section, as lists of the code words in each cell."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [[re.findall("`([^`]+)`", cell) for cell in row] for row in rows[2:]]


EQUIVALENTS = {row[0][0]: row[1] for row in table("Commands")}
RENAMED = [(row[0][0], row[1][0], row[2][0]) for row in table("Options with another name")]
ONLY_CLI = [word for row in table("Only on the command line") for word in row[0]]
ONLY_PYTHON = [word for row in table("Only in Python") for word in row[0]]


def resolve(name):
    first, _, rest = name.partition(".")
    if first in CLASSES:
        return getattr(CLASSES[first], rest)
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def parameters_of(name):
    """The parameters of a function or method, with the keys of its options."""
    function = resolve(name)
    if not callable(function):
        return set()  # a property
    found = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= set(OPTION_TYPES[parameter.annotation].__annotations__)
        elif parameter.name != "self":
            found.add(parameter.name)
    return found


def option_names(command):
    """The options as `--name` and the arguments as `NAME`, with the name of the parameter."""
    names = {}
    for parameter in COMMANDS[command].params:
        if isinstance(parameter, click.Option):
            option = max(parameter.opts, key=len)
            names[option] = option.lstrip("-").replace("-", "_")
        else:
            # The placeholder, unless it shows a form such as LOCAL:REMOTE.
            shown = parameter.make_metavar(click.Context(COMMANDS[command])).strip("[].…")
            names[shown if shown.isalpha() else parameter.name.upper()] = parameter.name
    return {shown: name for shown, name in names.items() if name not in OUTPUT_AND_OBJECT}


def public_members(cls):
    return {name for name, _ in inspect.getmembers(cls) if not name.startswith("_")}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_equivalent(command):
    assert (command in EQUIVALENTS) != (command in ONLY_CLI), (
        f"holdfast {command}: name its Python equivalent in docs/reference/cli-and-python.md"
    )


@pytest.mark.parametrize("command", EQUIVALENTS)
def test_options_and_parameters_are_the_same(command):
    renamed = [(option, parameter) for name, option, parameter in RENAMED if name == command]
    options, parameters = option_names(command), set().union(*map(parameters_of, EQUIVALENTS[command]))
    covered = {parameter for _, parameter in renamed}
    for option, name in options.items():
        if f"{command} {option}" in ONLY_CLI:
            continue
        if name in parameters:
            covered.add(name)
        else:
            assert option in (shown for shown, _ in renamed), (
                f"holdfast {command} {option}: has no parameter in {EQUIVALENTS[command]}"
            )
    documented = {parameter for parameter in parameters if f"{command} {parameter}" in ONLY_PYTHON}
    chosen = {parameter.name for parameter in COMMANDS[command].params} & {"name"}
    missing = parameters - covered - documented - chosen
    assert missing == set(), (
        f"holdfast {command}: has no option for these parameters of {EQUIVALENTS[command]}"
    )
    assert covered & documented == set(), "exceptions that are not needed"


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_has_a_command(name):
    named = {each for names in EQUIVALENTS.values() for each in names} | set(ONLY_PYTHON)
    missing = {f"{name}.{member}" for member in public_members(CLASSES[name])} - named
    if name == "Gateway":
        missing.discard("Gateway.name")
    assert missing == set(), "name the command of each method in docs/reference/cli-and-python.md"


def test_every_function_for_images_has_a_command():
    named = {each for names in EQUIVALENTS.values() for each in names}
    functions = {name for name in images.__all__ if inspect.isfunction(getattr(images, name))}
    assert {f"holdfast.images.{name}" for name in functions - {"node_binary_path"}} <= named


def test_page_names_what_exists():
    for names in EQUIVALENTS.values():
        for name in names:
            resolve(name)
    for command, option, parameter in RENAMED:
        assert option in option_names(command), (command, option)
        assert parameter in set().union(*map(parameters_of, EQUIVALENTS[command])), (command, parameter)
    for name in ONLY_CLI:
        command, _, option = name.rpartition(" ")
        is_option = option.startswith("--") or option.isupper()
        assert option in option_names(command) if is_option else name in COMMANDS, name
    for name in ONLY_PYTHON:
        command, _, parameter = name.rpartition(" ")
        if command:
            assert parameter in set().union(*map(parameters_of, EQUIVALENTS[command])), name
        else:
            resolve(name)


def test_public_classes_of_clients_are_compared():
    """A new client class needs rows too."""
    clients = {
        name for name in client.__all__ if not name.startswith("Async") and hasattr(client, f"Async{name}")
    }
    assert clients == {each.__name__ for each in CLIENTS}
