"""A workflow of fifty steps in layers; each step appends a line to a ledger that its probe reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.workflow import Step, Workflow, absent, done

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 50
WIDTH = 5


class LedgerStep(Step):
    """Appends its name to the ledger: twice would be seen."""

    def __init__(self, world: Path, number: int) -> None:
        layer = number // WIDTH
        above = range((layer - 1) * WIDTH, layer * WIDTH) if layer else range(0)
        super().__init__(f"enter-{number:02}", needs=[f"enter-{n:02}" for n in above])
        self.ledger = world / f"ledger-{number % WIDTH}"
        self.other = f"enter-{above[0]:02}" if layer else None

    def probe(self, ctx):
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return done("entered", result=self.name) if self.name in lines else absent("not entered")

    def run(self, ctx):
        if self.other is not None:
            assert ctx.result(self.other) == self.other
        with self.ledger.open("a") as ledger:
            ledger.write(f"{self.name}\n")
        return self.name


def build(world: Path) -> Workflow:
    return Workflow("fifty", [LedgerStep(world, number) for number in range(COUNT)])


def observe(world: Path) -> list[str]:
    """Every line of every ledger; the order within a ledger is given by the layers."""
    return [path.read_text() for path in sorted(world.glob("ledger-*"))]
