"""Why something stored is not good, as a code for programs and a sentence for people.

Not here: how anything is judged. A sentence names files, secrets, names and dates, never contents.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Code: TypeAlias = Literal[
    "absent",
    "incomplete",
    "unreadable",
    "too-open",
    "key-mismatch",
    "foreign-ca",
    "no-ca",
    "wrong-use",
    "missing-name",
    "expired",
    "near-expiry",
    "from-the-future",
    "weak-key",
    "weak-signature",
]
"""`absent` is no fault but a beginning; `from-the-future` may as well be a clock that is off."""


class Reason(msgspec.Struct, frozen=True):
    """One thing that is wrong, in words."""

    code: Code
    text: str

    def __str__(self) -> str:
        return self.text


class Judgement(msgspec.Struct, frozen=True):
    """What was found wrong; nothing at all means good."""

    reasons: tuple[Reason, ...] = ()

    @property
    def good(self) -> bool:
        return not self.reasons

    @property
    def codes(self) -> frozenset[Code]:
        return frozenset(reason.code for reason in self.reasons)

    def __str__(self) -> str:
        return "; ".join(reason.text for reason in self.reasons) or "good"
