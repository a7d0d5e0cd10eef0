"""What every benchmark prints: one JSON object a line, with its baseline from the same run.

`name, value, unit, baseline, ratio, target, ok`: the ratio is value over baseline.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def claim(
    name: str,
    value: float,
    unit: str,
    *,
    baseline: tuple[str, float] | None = None,
    at_most: float | None = None,
    at_least: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One claim; a target is a bound on the ratio, or on the value if it has no baseline."""
    ratio = value / baseline[1] if baseline and baseline[1] else None
    judged = value if ratio is None else ratio
    ok = (at_most is None or judged <= at_most) and (at_least is None or judged >= at_least)
    target = f"<= {at_most}" if at_most is not None else f">= {at_least}" if at_least is not None else None
    return {
        "name": name,
        "value": round(value, 4),
        "unit": unit,
        "baseline": {"what": baseline[0], "value": round(baseline[1], 4)} if baseline else None,
        "ratio": None if ratio is None else round(ratio, 3),
        "target": target,
        "ok": ok,
        **more,
    }


def report(claims: Iterable[dict[str, Any]]) -> int:
    """Print every claim as it comes; the exit code says whether all are ok."""
    all_ok = True
    for one in claims:
        print(json.dumps(one), flush=True)
        all_ok &= bool(one["ok"])
    return 0 if all_ok else 1
