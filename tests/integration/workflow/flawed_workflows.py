"""Workflows with one flaw each, which the crash matrix must detect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.workflow import Step, Workflow, absent, done

if TYPE_CHECKING:
    from pathlib import Path


def probe_misses_effect(world: Path) -> Workflow:
    """Its probe never sees the effect, so a kill after the effect repeats it."""

    def run(ctx):
        with (world / "ledger").open("a") as ledger:
            ledger.write("x\n")

    return Workflow("blind", [Step("pay", probe=lambda ctx: absent("cannot see"), run=run)])


def blocks_its_rerun(world: Path) -> Workflow:
    """It leaves something behind that stops its next run."""

    def run(ctx):
        (world / "made").mkdir()  # fails if the directory exists
        (world / "done").write_text("x")

    return Workflow("stuck", [Step("make", probe=lambda ctx: _is(world / "done"), run=run)])


def probe_accepts_partial_effect(world: Path) -> Workflow:
    """Its probe takes half of the effect for all of it, so the world ends up different."""

    def run(ctx):
        (world / "file").write_text("")
        (world / "file").write_text("content")

    return Workflow("trusting", [Step("write", probe=lambda ctx: _is(world / "file"), run=run)])


def two_effects(world: Path) -> Workflow:
    """It has two effects in one step; the world's own count sees the first one twice."""

    def run(ctx):
        with (world / "mails").open("a") as mails:
            mails.write("sent\n")
        (world / "noted").write_text("x")

    return Workflow("two-effects", [Step("mail-and-note", probe=lambda ctx: _is(world / "noted"), run=run)])


def good(world: Path) -> Workflow:
    def write(ctx):
        (world / "a").write_text("a")

    return Workflow("good", [Step("a", probe=lambda ctx: _is(world / "a"), run=write)])


def some_steps_done(world: Path) -> Workflow:
    """Its first step has nothing to do from the start."""

    def write(ctx):
        (world / "a").write_text("a")

    there = Step("there", probe=lambda ctx: done("it always was"), run=lambda ctx: None)
    return Workflow("partly", [there, Step("a", probe=lambda ctx: _is(world / "a"), run=write)])


def all_steps_done(world: Path) -> Workflow:
    return Workflow("there", [Step("there", probe=lambda ctx: done("it was"), run=lambda ctx: None)])


def only_at_first(world: Path) -> Workflow:
    """Its step has something to do in the first two worlds only, so that the kills never come."""
    (world.parent.parent / "worlds").mkdir(parents=True, exist_ok=True)
    (world.parent.parent / "worlds" / world.parent.name).touch()
    late = len(list((world.parent.parent / "worlds").iterdir())) > 2
    return Workflow(
        "first", [Step("a", probe=lambda ctx: done() if late else absent(), run=lambda ctx: None)]
    )


def undeclared_input(world: Path) -> Workflow:
    """It does not say that its step reads the colour, so a changed one is not seen."""

    def paint(ctx):
        (world / "colour").write_text(ctx.params["colour"])

    return Workflow("forgetful", [Step("paint", probe=lambda ctx: _is(world / "colour"), run=paint)])


def appends_on_change(world: Path) -> Workflow:
    """Its second step adds a line whenever the first has changed, and does not look whether it is there."""

    def paint(ctx):
        (world / "colour").write_text(ctx.params["colour"])

    def enlist(ctx):
        with (world / "list").open("a") as lines:
            lines.write("x\n")

    def painted(ctx):
        path = world / "colour"
        return done() if path.exists() and path.read_text() == ctx.params["colour"] else absent()

    return Workflow(
        "appending",
        [
            Step("paint", inputs=lambda ctx: dict(ctx.params), probe=painted, run=paint),
            Step("enlist", needs=["paint"], probe=lambda ctx: _is(world / "list"), run=enlist),
        ],
    )


def always_fails(world: Path) -> Workflow:
    def fails(ctx):
        raise OSError("always")

    return Workflow("broken", [Step("a", probe=lambda ctx: absent(), run=fails)])


not_importable = lambda world: good(world)  # noqa: E731, PLW0108  as a user may write it


def _is(path: Path):
    return done("there") if path.exists() else absent("not there")
