"""Print text on stdout and stderr; the only place that decides whether escape sequences may be printed."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

_KEPT_CONTROLS = re.compile(r"(\n|\t|\x1b\[(?:0|1|2|3[1-6])m)")


def supports_escapes(stream: TextIO | None) -> bool:
    """Whether colours and cursor movements may be written to a stream.

    Only to a terminal, and not if NO_COLOR, CI or TERM=dumb is set.
    """
    # A closed stream is None.
    return (
        stream is not None
        and stream.isatty()
        and not os.environ.get("NO_COLOR")
        and not os.environ.get("CI")
        and os.environ.get("TERM", "dumb") not in {"", "dumb", "unknown"}
    )


def escape_control_characters(text: str) -> str:
    """Escape what a terminal would interpret, in text that programs in a sandbox can influence."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def escape_except_styles(text: str) -> str:
    """Escape control characters, except line ends, tabs and the colours that holdfast itself prints."""
    # `split` with a group: every second part is a separator.
    parts = _KEPT_CONTROLS.split(text)
    return "".join(part if index % 2 else escape_control_characters(part) for index, part in enumerate(parts))


def echo(text: str, *, err: bool = False) -> None:
    """Print a line on stdout or stderr; remove its colours if the stream does not support them."""
    shown = escape_except_styles(text)
    click.echo(shown, err=err, color=supports_escapes(sys.stderr if err else sys.stdout))


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Deliver Ctrl-C after the block: half-written escape sequences would leave the terminal unusable."""
    # None: the handler is not from Python and could not be restored.
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    received: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if received:
            signal.raise_signal(signal.SIGINT)
