"""HTML elements from plain values: the only place that escapes text.

Records contain text of other programs: log lines, error messages, names. Such text is never markup, contains
no control character, and cannot change the direction of the text around it.
"""

from __future__ import annotations

import re
from string import Template
from typing import TypeAlias

_ANSI_ESCAPE = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_VOID_TAGS = {"meta", "input", "br"}
_ATTRIBUTE = re.compile(r"[A-Za-z_:][A-Za-z0-9_:-]*")
_COMMAND = re.compile(r"`([^`]+)`")


class Markup(str):
    """Text that is HTML already; only this module and constants create it."""

    __slots__ = ()


Content: TypeAlias = "Markup | str | int | float | list[Markup] | None"


def escape(text: str) -> Markup:
    """Return text as HTML, without terminal colours; other control characters are shown as `\\x1b`."""
    text = _ANSI_ESCAPE.sub("", text)
    if not text.isprintable():
        text = "".join(
            character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
            for character in text
        )
    return Markup(text.translate(_HTML))


def render_content(content: Content) -> str:
    """Return content as HTML: markup as it is, everything else escaped."""
    if content is None:
        return ""
    if isinstance(content, Markup):
        return content
    if isinstance(content, list):
        return "".join(map(render_content, content))
    return escape(str(content))


def element(tag: str, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """Return an HTML element.

    Args:
        tag: name of the element.
        content: markup, or values to escape.
        attributes: `class_` is `class`, and `_` in other names is `-`. None and False leave an attribute out.
    """
    parts = [tag]
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        if not _ATTRIBUTE.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid attribute name")
        if value is True:
            parts.append(name)
        elif value is not None and value is not False:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            parts.append(f'{name}="{escape(text)}"')
    opening = f"<{' '.join(parts)}>"
    return Markup(
        opening if tag in _VOID_TAGS else f"{opening}{''.join(map(render_content, content))}</{tag}>"
    )


def fill_template(template: Markup, **values: Content) -> Markup:
    """Return a template with its `$name` placeholders replaced: markup as it is, everything else escaped."""
    return Markup(
        Template(template).substitute({name: render_content(each) for name, each in values.items()})
    )


def join_markup(parts: list[Markup], separator: str = "") -> Markup:
    """Return several pieces of markup as one."""
    return Markup(separator.join(parts))


def with_commands(text: str) -> Markup:
    """Return a sentence as HTML, with commands between backticks as code."""
    parts = _COMMAND.split(text)
    return join_markup(
        [element("code", part) if index % 2 else escape(part) for index, part in enumerate(parts)]
    )
