"""Small workflows that record what they did."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.events import Event, EventBus
from holdfast.workflow import FileLock, ProbeResult, SQLiteStore, Step, StepContext, Workflow, absent, done


@dataclass
class World:
    """What the effects of steps are in: a set of things, and the order in which they were made."""

    things: dict[str, Any] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    probed: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    bus: EventBus = field(default_factory=EventBus)

    def __post_init__(self) -> None:
        self.bus.subscribe(self.events.append)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Make(Step):
    """Creates a thing with the name of the step; its probe checks that the thing exists."""

    def __init__(
        self, world: World, name: str, needs: tuple[str, ...] = (), *, reads: str | None = None
    ) -> None:
        super().__init__(name, needs=needs)
        self.world = world
        self.read = reads

    def inputs(self, ctx: StepContext) -> dict[str, Any]:
        params = ctx.params or {}
        return {"colour": params[self.name]} if self.name in params else {}

    def probe(self, ctx: StepContext) -> ProbeResult:
        self.world.probed.append(self.name)
        return done("it is there") if self.name in self.world.things else absent("it is not there")

    def run(self, ctx: StepContext) -> Any:
        colour = (ctx.params or {}).get(self.name, "grey")
        seen = ctx.result(self.read) if self.read else None
        self.world.things[self.name] = colour
        self.world.made.append(self.name)
        return {"colour": colour, "seen": seen}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(tmp_path: Path) -> SQLiteStore:
    return SQLiteStore(tmp_path / "state.db")


@pytest.fixture
def lock(tmp_path: Path) -> FileLock:
    return FileLock(tmp_path / "lock")


@pytest.fixture
def chain(world: World) -> Workflow:
    """a ← b ← c, and d on its own."""
    return Workflow(
        "chain", [Make(world, "a"), Make(world, "b", ("a",)), Make(world, "c", ("b",)), Make(world, "d")]
    )


@pytest.fixture
def tmp_path(tmp_path):
    """In memory where possible: a killed process loses nothing that the kernel has."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    place = Path(tempfile.mkdtemp(prefix="holdfast-", dir=memory))
    yield place
    shutil.rmtree(place, ignore_errors=True)
