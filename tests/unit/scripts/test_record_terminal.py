"""The terminal picture of the documentation is drawn from its recording."""

import os
from xml.etree import ElementTree as ET

import pytest
from record_terminal import PICTURE, TEXT, commands_of, draw, record

from holdfast.cli import cli


def test_picture_is_drawn_from_the_recording():
    assert PICTURE.read_text() == draw(TEXT.read_text()), "run scripts/record_terminal.py"


def test_every_line_of_the_recording_is_in_the_picture():
    svg = ET.parse(PICTURE)
    assert [
        each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")
    ] == TEXT.read_text().splitlines()


def test_recording_consists_of_commands_with_their_output():
    text = record(["echo '<a>'", "echo b >&2"], dict(os.environ))
    assert text == "$ echo '<a>'\n<a>\n$ echo b >&2\nb\n"
    assert commands_of(text) == ["echo '<a>'", "echo b >&2"]
    assert "&lt;a&gt;" in draw(text)


def test_failed_command_is_not_recorded():
    with pytest.raises(SystemExit, match="false: exit code 1"):
        record(["false"], dict(os.environ))


def test_commands_of_the_recording_exist():
    for command in commands_of(TEXT.read_text()):
        program, group, name, *_ = command.split()
        assert (program, group) == ("holdfast", "sandbox")
        assert name in cli.get_command(None, "sandbox").list_commands(None)
