"""How long a pool waits before it replaces a sandbox that ended: longer each time.

What ends as soon as it runs would else be made and deleted without a pause. The count is a note on the
sandbox itself, and the time is that of its end, so that a controller that is started anew goes on where the
last one was: one that crashes again and again makes no storm of pods. What it may forget are the
counts of what it had just deleted, if it dies before the creates that follow. Not here: what has ended
(pool.py).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.retry import exponential
from holdfast.sandbox.api import REPLACED, TEMPLATE_HASH, Condition
from holdfast.sandbox.blueprint import template_hash
from holdfast.sandbox.status import condition

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAUSES = exponential(2.0, cap=300.0, jitter=0.0)
_STEADY = timedelta(seconds=900)
"""One that lived for so long was well: its end counts as the first one."""
_WHOLE_SECOND = timedelta(seconds=1)
"""Times are noted without their fraction: the end was at most so much later."""


def seconds_left(ended: Mapping[str, Any], template: Mapping[str, Any], now: datetime) -> float:
    """Seconds until one that ended may be replaced; 0 when that is now, as it is for the first one."""
    count, at = _count(ended, template), _ended_at(ended)
    if not count or at is None:
        return 0.0
    pause = timedelta(seconds=_PAUSES.delay(count, 0.0, float))
    return max(0.0, (at + _WHOLE_SECOND + pause - now).total_seconds())


def count_after(ended: Mapping[str, Any], template: Mapping[str, Any]) -> int:
    """How many ended in a row before the one that takes this one's place."""
    return _count(ended, template) + 1


def _count(ended: Mapping[str, Any], template: Mapping[str, Any]) -> int:
    """How many ended before it; none where it lived long, or the template is another one by now."""
    metadata = ended["metadata"]
    text = (metadata.get("annotations") or {}).get(REPLACED, "0")
    made_from = (metadata.get("labels") or {}).get(TEMPLATE_HASH)
    at, born = _ended_at(ended), metadata.get("creationTimestamp")
    if at is not None and born and at - datetime.fromisoformat(born) >= _STEADY:
        return 0
    known = text.isascii() and text.isdigit() and made_from == template_hash(template)
    return int(text) if known else 0


def _ended_at(ended: Mapping[str, Any]) -> datetime | None:
    text = condition(ended, Condition.FINISHED).get("lastTransitionTime")
    return datetime.fromisoformat(text) if text else None
