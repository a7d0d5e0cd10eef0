"""Workflows with one flaw each: the crash matrix must find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine import Step, Workflow, absent, done

if TYPE_CHECKING:
    from pathlib import Path


def blind(world: Path) -> Workflow:
    """Its probe never sees the effect, so a kill after the effect repeats it."""

    def run(ctx):
        with (world / "ledger").open("a") as ledger:
            ledger.write("x\n")

    return Workflow("blind", [Step("pay", probe=lambda ctx: absent("cannot see"), run=run)])


def stuck(world: Path) -> Workflow:
    """It leaves something behind that stops its next run."""

    def run(ctx):
        (world / "made").mkdir()  # not tolerant of its own work
        (world / "done").write_text("x")

    return Workflow("stuck", [Step("make", probe=lambda ctx: _is(world / "done"), run=run)])


def trusting(world: Path) -> Workflow:
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


def broken(world: Path) -> Workflow:
    def fails(ctx):
        raise OSError("always")

    return Workflow("broken", [Step("a", probe=lambda ctx: absent(), run=fails)])


def _is(path: Path):
    return done("there") if path.exists() else absent("not there")
