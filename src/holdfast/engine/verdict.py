"""What a probe says about the world: done, absent, partial or unknown, and why.

Not here: what follows from it (`decide`).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

JSON: TypeAlias = dict[str, Any] | list[Any] | str | int | float | bool | None
"""What can be stored: the types of JSON; tuples come back as lists."""


class Verdict(msgspec.Struct, frozen=True):
    """The answer of a probe; made with `done`, `absent`, `partial` and `unknown`."""

    state: Literal["done", "absent", "partial", "unknown"]
    reason: str = ""
    result: JSON = None


def done(reason: str = "", *, result: JSON = None) -> Verdict:
    """The effect is there, all of it; `result` is what `run` would have returned, if the probe can see it."""
    return Verdict("done", reason, result)


def absent(reason: str = "") -> Verdict:
    """Nothing of the effect is there."""
    return Verdict("absent", reason)


def partial(reason: str = "") -> Verdict:
    """Some of the effect is there, or it is not as asked for; `run` puts it right."""
    return Verdict("partial", reason)


def unknown(reason: str = "") -> Verdict:
    """Nobody can say at the moment (the other side does not answer): nothing may be done on a guess."""
    return Verdict("unknown", reason)
