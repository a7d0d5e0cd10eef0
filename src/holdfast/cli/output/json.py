"""JSON output: one object per line."""

from __future__ import annotations

from typing import Any

import click
import msgspec


def print_json(value: Any, *, err: bool = False) -> None:
    """Print a value as one line of JSON on stdout, or on stderr."""
    click.echo(msgspec.json.encode(value).decode(), err=err)


def print_json_error(code: str, message: str, hint: str, exit_code: int) -> None:
    """Print an error event on stderr."""
    body = {"event": "error", "code": code, "error": message, "hint": hint, "exit_code": exit_code}
    print_json(body, err=True)
