"""Interrupt a command at a step: it emits an event for every step, and the test acts on that event."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.gateway import TestGateway
    from tests.support.holdfast_cli import HoldfastCli

STARTED, FINISHED = "step.started", "step.finished"


def run_and_act_at(
    holdfast: HoldfastCli, step: str, action: Callable[[], object], *words: str, moment: str = STARTED
) -> tuple[int, str]:
    """Run a command and act at an event; return the exit code and the later events."""
    running = holdfast.start(*words, "--json")
    try:
        for line in running.stderr or ():
            event = json.loads(line)
            if (event.get("event"), event.get("step")) == (moment, step):
                action()
                break
        else:
            raise AssertionError(f"holdfast {' '.join(words)} ended without {moment} of {step}")
        _, rest = running.communicate(timeout=240)
    finally:
        running.kill()
        running.wait()
    return running.returncode, rest


def kill_at(gateway: TestGateway, step: str, moment: str, *words: str) -> None:
    """Run a command and kill it at an event of a step; fail if the event does not occur.

    Its stdout is blocked, so it cannot end before the kill, not even in its last step.
    """
    told: list[tuple[str | None, str | None]] = []
    holdfast = gateway.holdfast
    with _full_pipe() as stdout:
        child = subprocess.Popen(
            holdfast.argv(*words, "--json"), env=holdfast.environment, stdout=stdout,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            for line in child.stderr or ():
                event = json.loads(line)
                told.append((event.get("event"), event.get("step")))
                if told[-1] == (moment, step) or told[-1][0] in ("run.finished", "run.failed"):
                    break
        finally:
            child.send_signal(signal.SIGKILL)
            child.communicate(timeout=120)
    assert told[-1:] == [(moment, step)], f"it was to be killed at {moment} of {step}: {told}"
    assert child.returncode == -signal.SIGKILL


@contextmanager
def _full_pipe() -> Iterator[int]:
    """The end of a pipe that takes nothing more: who prints to it waits."""
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        try:
            while True:
                os.write(writing, bytes(4096))
        except BlockingIOError:
            os.set_blocking(writing, True)
        yield writing
    finally:
        os.close(reading)
        os.close(writing)
