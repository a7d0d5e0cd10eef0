"""Kubernetes' quantities as numbers: `500m`, `2Gi`, `1e3`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_FORM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)")
_UNITS = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}  # fmt: skip


def amount(quantity: Any) -> Decimal | None:
    """How much it is; None for what is no quantity, or below zero."""
    found = _FORM.fullmatch(str(quantity))
    if found is None:
        return None
    digits, exponent, unit = found.groups()
    factor = Decimal(10) ** int(exponent) if exponent is not None else _UNITS[unit or ""]
    return Decimal(digits) * factor
