"""REST model of the Kubernetes events of a sandbox."""

from __future__ import annotations

import msgspec


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """A Kubernetes event of a sandbox, its SandboxClaim, its pod or its workspace.

    Attributes:
        type: `Normal` or `Warning`.
        reason: short reason, such as `FailedScheduling`.
        message: description for people.
        object: kind of the object, such as `Pod`.
        count: how often the event occurred.
        last_seen: time of the last occurrence.
    """

    type: str
    reason: str = ""
    message: str = ""
    object: str = ""
    count: int = 1
    last_seen: str | None = None
