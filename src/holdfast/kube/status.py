"""Reads what an API server says of a failure: its `Status` object, or whatever came in its place.

Everything here takes text from outside and never raises: HTML, half a JSON document and binary rubbish are
all "nothing readable". Not here: what a reason means for a retry (`outcome`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from holdfast.retry import parse_retry_after

# Reasons are single CamelCase words by contract; anything else is text that could hold anything.
_REASON = re.compile(r"[A-Z][A-Za-z]{1,40}")
_LONGEST = 64 * 1024


@dataclass(frozen=True, slots=True)
class Status:
    """The readable parts of a failure answer."""

    reason: str = ""
    message: str = ""
    retry_after: float | None = None
    causes: tuple[str, ...] = ()
    """which fields, by their paths"""
    genuine: bool = False
    """whether the answer was a Kubernetes Status at all, and not the page of something in between"""


def read_status(error: Any) -> Status:
    """The Status in the body of an ApiException, or of a watch event."""
    if isinstance(error, dict):
        return _from_object(error)
    body = getattr(error, "body", None)
    if isinstance(body, bytes):
        body = body[:_LONGEST].decode("utf-8", "replace")
    if not isinstance(body, str) or len(body) > _LONGEST:
        return Status()
    try:
        return _from_object(json.loads(body))
    except (ValueError, RecursionError):
        return Status()


def _from_object(parsed: Any) -> Status:
    if not isinstance(parsed, dict) or parsed.get("kind") != "Status":
        return Status()
    reason, message, details = parsed.get("reason"), parsed.get("message"), parsed.get("details")
    details = details if isinstance(details, dict) else {}
    causes = details.get("causes")
    fields = (
        [each.get("field") for each in causes if isinstance(each, dict)] if isinstance(causes, list) else []
    )
    return Status(
        reason=reason if isinstance(reason, str) and _REASON.fullmatch(reason) else "",
        message=message if isinstance(message, str) else "",
        retry_after=parse_retry_after(details.get("retryAfterSeconds")),
        causes=tuple(field for field in fields if isinstance(field, str)),
        genuine=True,
    )


def http_status(error: Any) -> int | None:
    """The HTTP status that an error carries, if a server has sent one."""
    if type(error).__module__.startswith("aiohttp"):
        # It says 400 of its own accord when it cannot read an answer.
        return None
    status = getattr(error, "status", None)
    return status if isinstance(status, int) and not isinstance(status, bool) and status > 0 else None


def retry_after(error: BaseException) -> float | None:
    """How long the server asks to wait: the Retry-After of a 429 or 503, else the Status' own word for it."""
    if http_status(error) not in {429, 503}:
        return None
    headers = getattr(error, "headers", None)
    try:
        value = headers.get("Retry-After") if headers is not None else None
        date = headers.get("Date") if headers is not None else None
    except Exception:  # noqa: BLE001 - headers are whatever the transport made of them
        value = date = None
    asked = parse_retry_after(value, date)
    return read_status(error).retry_after if asked is None else asked
