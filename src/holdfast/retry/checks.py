"""Refuses arguments that cannot be meant, each by its name.

Not here: any default, and any check that needs to know more than one value and its name.
"""

from __future__ import annotations

import math
from typing import Any

from holdfast.errors import ArgumentError, ArgumentKindError


def seconds(argument: str, value: Any, *, zero: bool = False) -> float:
    """A time or a rate: a finite number above zero (or at least zero)."""
    number = _number(argument, value)
    if not math.isfinite(number):
        raise ArgumentError(argument, f"must be a finite number, not {value!r}")
    if number < 0 or (number == 0 and not zero):
        raise ArgumentError(argument, f"must be {'at least' if zero else 'above'} zero, not {value!r}")
    return number


def fraction(argument: str, value: Any) -> float:
    """A share between nothing and all."""
    number = _number(argument, value)
    if not 0 <= number <= 1:
        raise ArgumentError(argument, f"must be between 0 and 1, not {value!r}")
    return number


def count(argument: str, value: Any) -> int:
    """A whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentKindError(argument, f"must be a whole number, not {value!r}")
    if value < 1:
        raise ArgumentError(argument, f"must be at least 1, not {value!r}")
    return value


def _number(argument: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentKindError(argument, f"must be a number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(argument, "is too large a number") from None
