"""What the API answers with; the OpenAPI document is made from these very models."""

from __future__ import annotations

import msgspec


class GatewayInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway behind this API."""

    name: str
    version: str
    """the holdfast that serves it"""
