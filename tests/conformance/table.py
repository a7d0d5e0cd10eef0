"""The published sandbox API as a table: one entry per row of the contract, and what shows that it holds.

A `Row` observes what a scenario leaves behind on a real API server, with holdfast's controller at work. A
`TestedRow` needs more than that, or another situation, and names the tests that show it. An `UntestedRow` is
not implemented, or nothing can show it here. A row of `MISSING` is not implemented, but has a scenario: the
suite fails as soon as it passes, so that the list only becomes shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Seen = dict[str, Any]
"""What a scenario has observed, by a name"""


SECTIONS = (
    "1 kinds", "1 validation", "2 hash", "2 annotations",
    "3 status", "3 Ready", "3 Suspended", "3 PodScheduled", "3 Finished", "3 fields", "3 errors",
    "4 PVC", "4 pod", "4 Service", "5 life cycle", "6 template", "7 member", "7 replacement", "7 status",
    "8 one pass", "8 adoption", "8 cold start", "8 additionalPodMetadata", "8 Ready",
    "9 events", "10 metrics", "11 tracing", "12 Lease", "12 flags", "13 router", "14 runtime", "14 sandboxd",
    "15 clients",
)  # fmt: skip
"""The sections of the contract, by number and subject"""


class Need(Enum):
    """What a row needs that the controller on an API server does not have."""

    NODE = "a node"
    RACE = "two writers"
    TIME = "minutes"
    SITUATION = "another situation"
    PROGRAM = "another program"


@dataclass(frozen=True)
class TestedRow:
    """A row that other tests show.

    Attributes:
        section: section of the contract.
        subject: what the row is about; unique within the section.
        need: what the tests have.
        tests: node ids of the tests.
    """

    __test__ = False  # for pytest

    section: str
    subject: str
    need: Need
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.section}: {self.subject}"


@dataclass(frozen=True)
class UntestedRow:
    """A row that no test shows.

    Attributes:
        section: section of the contract.
        subject: what the row is about; unique within the section.
        reason: why no test shows it.
    """

    section: str
    subject: str
    reason: str

    @property
    def name(self) -> str:
        return f"{self.section}: {self.subject}"


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
