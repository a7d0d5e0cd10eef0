"""The middle of a command: it tells of every step, so a test can act at just that moment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.commands import Holdfast

STARTED, FINISHED = "step.started", "step.finished"


def act_at(
    holdfast: Holdfast, step: str, act: Callable[[], object], *words: str, moment: str = STARTED
) -> tuple[int, str]:
    """Run a command to its end and act as soon as it tells of that moment; exit code and what came after."""
    running = holdfast.start(*words, "--json")
    try:
        for line in running.stderr or ():
            event = json.loads(line)
            if (event.get("event"), event.get("step")) == (moment, step):
                act()
                break
        else:
            raise AssertionError(f"holdfast {' '.join(words)} ended without {moment} of {step}")
        _, rest = running.communicate(timeout=240)
    finally:
        running.kill()
        running.wait()
    return running.returncode, rest
