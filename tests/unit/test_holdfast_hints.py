"""Every hint that names a command is executed by a test, in the situation that prints it."""

import re

from tests.support.hints import COMMAND, executed_templates, hint_templates, string_templates

from holdfast.cli import cli

NOT_EXECUTED = {
    "sudo": "changes the packages, groups or services of the machine",
    "pip": "changes the environment of the tests",
    "docker image prune": "asks, and removes images of other tests",
    "ssh": "asks on a terminal, or fails in the situation that prints it",
    "HOLDFAST_WORKLOADS=true holdfast up": "changes what the gateway of other tests runs",
    "holdfast logs {} --component": "no test can make the API server of a running node hang",
    "holdfast restart {}": "needs a node with an API server whose certificate is about to expire",
    "holdfast image build": "the tests need the images that it has built",
    "holdfast image save": "runs on the machine that has the images",
}
"""Beginnings of commands that no test executes, with the reason."""


def is_executable(template):
    commands = COMMAND.findall(template)
    return not any(f"{command} ".startswith(f"{each} ") for command in commands for each in NOT_EXECUTED)


def test_every_hint_with_a_command_is_executed_by_a_test():
    executed = executed_templates()
    missing = {
        place: hint
        for hint, place in hint_templates().items()
        if hint not in executed and is_executable(hint)
    }
    assert missing == {}, "pass the template to execute_hint in a test that provokes the error"


def test_every_executed_hint_exists():
    assert executed_templates() - set(hint_templates()) == set()


def test_commands_in_texts_are_in_backticks():
    """A reader and a test have to see where a command ends."""
    names = "|".join(cli.list_commands(None))
    bare = re.compile(rf"[\w.:;,] holdfast (?:{names})\b")
    found = {
        place: text for text, place in string_templates().items() if bare.search(re.sub("`[^`]*`", "", text))
    }
    assert found == {}


def test_commands_in_texts_can_be_pasted():
    """A command of the tree begins with the name of the program."""
    names = "|".join(name for name in cli.list_commands(None) if name != "man")  # also another program
    unnamed = re.compile(rf"\b(?:Run|Use|with|and) `(?:{names})\b")
    assert {place: text for text, place in string_templates().items() if unnamed.search(text)} == {}
