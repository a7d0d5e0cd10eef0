"""When a sandbox that nobody uses is to sleep: so long after its last use, where it asks for that.

Use is what somebody has noted on the sandbox: whoever lets people in does that. Where nobody notes it, nobody
knows, and the sandbox stays awake. Not here: noting the use, and what sleeping means (decide.py).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.sandbox.api import IDLE_SUSPEND_AFTER, LAST_USED, Condition

if TYPE_CHECKING:
    from collections.abc import Mapping

SOONEST_LOOK = 1.0
_MOST_DIGITS = 9


def seconds_until_sleep(sandbox: Mapping[str, Any], now: datetime) -> float | None:
    """How long it may still be idle; 0 when it is to sleep, None where that is not asked for or not ready."""
    idle, since = idle_seconds(sandbox), _ready_since(sandbox)
    used = _time((sandbox["metadata"].get("annotations") or {}).get(LAST_USED))
    if idle is None or since is None or used is None:
        return None
    # The last moments that can be written leave no room to add to them.
    left = idle - (now - max(since, used)).total_seconds()
    return 0.0 if left <= 0 else max(SOONEST_LOOK, left)


def idle_seconds(sandbox: Mapping[str, Any]) -> int | None:
    """How long it may be idle; None where it may for ever."""
    text = (sandbox["metadata"].get("annotations") or {}).get(IDLE_SUSPEND_AFTER, "")
    if not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        return None
    return int(text) or None


def _ready_since(sandbox: Mapping[str, Any]) -> datetime | None:
    for row in (sandbox.get("status") or {}).get("conditions") or ():
        if row.get("type") == Condition.READY and row.get("status") == "True":
            return _time(row.get("lastTransitionTime"))
    return None


def _time(text: str | None) -> datetime | None:
    """A moment with its zone; what is no such thing counts as nothing, for people write annotations too."""
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None
