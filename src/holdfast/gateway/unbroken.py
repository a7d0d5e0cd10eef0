"""A command on another host whose connection is cut in its middle: it goes on, as if it were run again.

The lock over there goes with the connection, so nothing more is done under it. Connection and lock are taken
anew, and the whole command is begun again: it looks at everything afresh and goes on from its checkpoints.
A tunnel that is cut alone takes no lock with it: calls through it open it again by themselves (remote.py),
and only a run that ended before that is begun again.
Not here: commands on this machine, whose lock nobody can cut, and what a command does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from holdfast.engine import CommandLock, Holder
from holdfast.engine.commandlock import SILENCE
from holdfast.errors import (
    ConnectionCutError,
    EngineUnreachableError,
    HoldfastError,
    HostUnreachableError,
    HostUnusableError,
    LockedError,
    TemporaryError,
)
from holdfast.events import Bus, Event, RetryScheduled, RunStarted
from holdfast.gateway.remote import reach
from holdfast.retry import Policy, exponential

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine import Lock
    from holdfast.gateway.work import Work

R = TypeVar("R")

_BY_A_CUT = (TemporaryError, EngineUnreachableError, HostUnusableError)
"""How a run may end whose connection is gone; what was refused for another reason is refused again."""

_ANEW = exponential(0.5, cap=10.0)


def unbroken(make: Callable[[], Work], do: Callable[[Work, Bus], R], bus: Bus) -> R:
    """Do a command, and again where its connection was cut; as often as `attempts.engine_call` says."""
    runs: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, RunStarted):
            runs.append(event.run)

    heard, attempt = Bus(bus.emit, hear), 0
    while True:
        work, attempt = make(), attempt + 1
        try:
            return do(work, heard)
        except HoldfastError as error:
            if not _was_cut(error, attempt) or attempt >= work.settings.attempts.engine_call:
                raise
        reason = f"the connection to {work.place.remote} was cut; it is made anew, and the command goes on"
        bus.emit(RetryScheduled(operation="connect", attempt=attempt, delay=0.0, reason=reason))
        patient = Policy(
            attempts=None,
            # The other side keeps the lock of a connection that was cut without a word for that silence.
            deadline=SILENCE + work.settings.timeouts.ssh,
            backoff=_ANEW,
            retry_on=TemporaryError,
            on_retry=bus.emit,
            operation="connect",
        )
        patient.call(_take_anew, work, runs)


def cut_short(error: HoldfastError, lock: Lock, work: Work) -> ConnectionCutError | None:
    """What a run really ended with, if its lock was lost with the connection, or its tunnel was down.

    Whatever failed after a cut says nothing about the gateway, and nobody may judge by it; raises what keeps
    the tunnel from being opened again, if time does not mend it.
    """
    if not isinstance(lock, CommandLock) or not isinstance(error, _BY_A_CUT):
        return None
    if not lock.lost and not _had_no_way(work):
        return None
    what = "the connection" if lock.lost else "the tunnel"
    return ConnectionCutError(
        f"{what} to {work.place.remote} was cut: {error.message}",
        hint="Nothing is lost. The same command goes on when the connection holds.",
    )


def _had_no_way(work: Work) -> bool:
    """Whether the tunnel was open in this run and had to be opened again, now or between two tries.

    Where a person has to change something before it can be, that is what the run ended with.
    """
    tunnel = work.place.tunnel
    if tunnel is None or not tunnel.was_open:
        return False
    try:
        opened = reach(work)
    except TemporaryError:
        return True  # it is down, and cannot be opened yet
    was_cut, tunnel.was_cut = tunnel.was_cut, False
    return opened or was_cut


def _was_cut(error: HoldfastError, attempt: int) -> bool:
    """A host that was never reached is not cut off; one that was, and is away again, is."""
    if isinstance(error, ConnectionCutError) or isinstance(error.cause, ConnectionCutError):
        return True
    return attempt > 1 and isinstance(error, HostUnreachableError)


def _take_anew(work: Work, runs: list[str]) -> None:
    """Connect, and see that the lock can be had; raises `LockedError` where somebody else has it by now."""
    lock = work.place.lock(work.name)
    try:
        lock.acquire(Holder.me("connect", runs[-1] if runs else ""))
    except LockedError as error:
        # It is emptied just before it is let go: nobody's name in it is no other run's.
        holder = lock.holder()
        if holder is not None and holder.run not in runs:
            raise
        raise TemporaryError(
            f"{work.place.remote} has not noticed yet that the connection was cut: {error.message}"
        ) from error
    lock.release()
