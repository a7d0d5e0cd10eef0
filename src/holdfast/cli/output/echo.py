"""Print text on stdout and stderr; the only place that decides whether escape sequences may be printed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO


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


def echo(text: str, *, err: bool = False) -> None:
    """Print a line on stdout or stderr; remove its colours if the stream does not support them."""
    click.echo(text, err=err, color=supports_escapes(sys.stderr if err else sys.stdout))


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
