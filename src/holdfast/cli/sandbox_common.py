"""What the sandbox commands share: which gateway is meant, bringing it up, and showing what is under way.

Not here: what any command does.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from holdfast.errors import HoldfastError, UnknownGatewayError
from holdfast.events import StepFailed, StepFinished, StepProgress, StepStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.cli.progress import Progress
    from holdfast.events import Bus
    from holdfast.gateway.facade import Gateway
    from holdfast.sandbox.sdk import Access

gateway_option = click.option(
    "--gateway", "-g", metavar="GATEWAY", help="The gateway; the active one by default."
)
sandbox_argument = click.argument("name", metavar="NAME")
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=180.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait; a state that cannot get better ends it at once.",
)

_CHECK_SECONDS = 3.0
_TELL_EVERY = 0.25


def opened(gateway: str | None, shown: Progress) -> Gateway:
    """The gateway that is meant; it must be known, and is not brought up."""
    from holdfast.gateway.facade import Gateway
    from holdfast.gateway.spec import resolve_name

    return Gateway(resolve_name(gateway), listener=shown)


def brought_up(gateway: str | None, shown: Progress, *, bootstrap: bool) -> Gateway:
    """The gateway that is meant, answering: brought up, resumed or repaired first where it does not."""
    from holdfast.gateway import commands
    from holdfast.gateway.facade import Gateway
    from holdfast.gateway.spec import resolve_name

    name = resolve_name(gateway, for_up=True)
    if not _answers(name):
        if not bootstrap:
            raise UnknownGatewayError(
                f"gateway {name} is not up",
                hint=f"Bring it up: holdfast up {name}. Without --no-bootstrap this command does it.",
            )
        commands.up(name, shown.bus)
    return Gateway(name, listener=shown)


def _answers(name: str) -> bool:
    """Whether the gateway's API answers to this machine's certificates."""
    from holdfast.gateway.api_access import api_access
    from holdfast.kube.reach import ApiRefusedError, ApiUnreachableError, answers

    try:
        access: Access = api_access(name)
        answers(
            access.url, "/v1/gateway", ca=access.ca, certificate=access.certificate, key=access.key,
            timeout=_CHECK_SECONDS,
        )  # fmt: skip
    except (UnknownGatewayError, ApiUnreachableError, ApiRefusedError):
        return False
    return True


class Stage:
    """One thing that a command is at: says how far it is, and what came of it."""

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self._name = name
        self._told = 0.0
        self.note = ""
        """what came of it, in few words"""
        self.put_off = ""
        """why it is left for now without being a failure"""

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Tell what it is at; not more often than anybody can read."""
        now = time.monotonic()
        if now - self._told >= _TELL_EVERY:
            self._told = now
            self._bus.emit(StepProgress(step=self._name, message=message, fraction=fraction))


@contextmanager
def stage(shown: Progress, name: str, title: str) -> Iterator[Stage]:
    """Show one thing while it is done, with its seconds, as the steps of a gateway are shown."""
    bus = shown.bus
    began = time.monotonic()
    bus.emit(StepStarted(step=name, title=title))
    made = Stage(bus, name)
    try:
        yield made
    except BaseException as error:
        if made.put_off:
            seconds = time.monotonic() - began
            bus.emit(StepFinished(step=name, title=title, seconds=seconds, note=made.put_off))
            raise
        code, said = "interrupted", type(error).__name__
        if isinstance(error, HoldfastError):
            code, said = error.code, error.message
        seconds = time.monotonic() - began
        bus.emit(StepFailed(step=name, title=title, seconds=seconds, code=code, error=said))
        raise
    bus.emit(StepFinished(step=name, title=title, seconds=time.monotonic() - began, note=made.note))
