"""Where a gateway's API is, and with which certificates it is met: values that are handed down.

Not here: where they come from (the gateway floor), and the connection itself (connection.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One gateway's API as it is reached from here; certificates are PEM texts and are never shown."""

    gateway: str
    url: str
    ca: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)


Find: TypeAlias = Callable[[], Access]
"""Finds the way anew: asked before the first call, and after one that did not get through. May block."""
