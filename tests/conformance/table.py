"""The published sandbox API as a table: one entry per row of the contract, and what shows that it holds.

A row observes what a scenario leaves behind on a real API server, with holdfast's controller at work. A row
of `NODE_ROWS` needs a kubelet or a network. A row of `TESTS_OF_ROWS` is about another program, and names the
tests that show it. A row of `MISSING` is not implemented: the suite runs it where it can, and fails as soon
as it passes, so that the list only becomes shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Seen = dict[str, Any]
"""What a scenario has observed, by a name"""


@dataclass(frozen=True)
class Row:
    """One row of the contract.

    Attributes:
        section: section of the contract.
        subject: what the row is about; unique within the section.
        scenario: the scenario that creates the situation.
        observe: what it shows.
        expected: the value of the contract: an exact text, or another value.
    """

    section: str
    subject: str
    scenario: str
    observe: Callable[[Seen], Any]
    expected: Any

    @property
    def name(self) -> str:
        return f"{self.section}: {self.subject}"


def said(what: str, kind: str) -> Callable[[Seen], str | None]:
    """A condition in one line: `False SandboxExpired: Sandbox has expired`."""

    def observe(seen: Seen) -> str | None:
        rows = (seen[what].get("status") or {}).get("conditions") or ()
        texts = [f"{row['status']} {row['reason']}: {row['message']}" for row in rows if row["type"] == kind]
        return texts[0] if texts else None

    return observe


def value(what: str, *path: str) -> Callable[[Seen], Any]:
    """A value in an object; None if it has none."""

    def observe(seen: Seen) -> Any:
        found = seen[what]
        for key in path:
            found = (found or {}).get(key) if isinstance(found, dict | None) else found[int(key)]
        return found

    return observe


def label(what: str, key: str) -> Callable[[Seen], Any]:
    return value(what, "metadata", "labels", key)


def annotation(what: str, key: str) -> Callable[[Seen], Any]:
    return value(what, "metadata", "annotations", key)


def owner(what: str) -> Callable[[Seen], tuple[Any, ...]]:
    """Kind, name and the two flags of the only owner."""

    def observe(seen: Seen) -> tuple[Any, ...]:
        (found,) = seen[what]["metadata"]["ownerReferences"]
        return found["kind"], found["name"], found["controller"], found["blockOwnerDeletion"]

    return observe
