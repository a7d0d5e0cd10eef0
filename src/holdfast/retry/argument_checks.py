"""Checks of single arguments; each raises an error that names the argument."""

from __future__ import annotations

import math
from typing import Any

from holdfast.errors import ArgumentTypeError, InvalidArgumentError


def check_seconds(argument: str, value: Any, *, zero: bool = False) -> float:
    """Check a duration or rate: a finite number above zero, or at least zero."""
    number = _check_number(argument, value)
    if not math.isfinite(number):
        raise InvalidArgumentError(argument, f"must be a finite number, not {value!r}")
    if number < 0 or (number == 0 and not zero):
        raise InvalidArgumentError(argument, f"must be {'at least' if zero else 'above'} zero, not {value!r}")
    return number


def check_fraction(argument: str, value: Any) -> float:
    """Check a number between 0 and 1."""
    number = _check_number(argument, value)
    if not 0 <= number <= 1:
        raise InvalidArgumentError(argument, f"must be between 0 and 1, not {value!r}")
    return number


def check_count(argument: str, value: Any) -> int:
    """Check an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(argument, f"must be a whole number, not {value!r}")
    if value < 1:
        raise InvalidArgumentError(argument, f"must be at least 1, not {value!r}")
    return value


def _check_number(argument: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(argument, f"must be a number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise InvalidArgumentError(argument, "is too large") from None
