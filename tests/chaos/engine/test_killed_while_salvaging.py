"""SIGKILL at every line of a salvage: no record is lost that could be saved, and what was lost is told."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
from collections import Counter

import pytest

from holdfast.engine import FileLock, SQLiteStore, Step, Workflow, files, salvage, sqlite
from holdfast.events import Bus, StoreDamaged

STEPS = [f"mail-{number}" for number in range(6)]
LOST = "mail-3"
TRACED = {module.__file__ for module in (sqlite, salvage, files)}


def flow(home):
    """Steps that nobody can ask about: with its record, each of them would be lost for good."""

    def mail(name):
        def run(ctx):
            with (home / "mails").open("a") as mails:
                mails.write(f"{name}\n")

        return run

    pairs = zip(STEPS, [None, *STEPS], strict=False)
    return Workflow(
        "w", [Step(n, needs=[b] if b else [], repeat="at-least-once", run=mail(n)) for n, b in pairs]
    )


def run(home):
    told = (home / "told").open("a", buffering=1)
    bus = Bus(lambda event: told.write(f"{event.lost}\n") if isinstance(event, StoreDamaged) else None)
    flow(home).run(store=SQLiteStore(home / "s.db"), lock=FileLock(home / "lock"), bus=bus)


def killed(home, line):
    """Run in a child that is killed so many lines after it found the damage; False if the run began first."""
    pid = os.fork()
    if pid == 0:
        left, inside, seen = line, [], set()

        def trace(frame, event, arg):
            nonlocal left
            if frame.f_code.co_filename not in TRACED:
                return None
            if event == "call" and frame.f_code.co_name == "_set_aside":
                inside.append(frame)
            if event == "return" and frame.f_code.co_name == "begin":
                inside.clear()
            if event == "line" and inside and (frame.f_code, frame.f_lineno) not in seen:
                seen.add((frame.f_code, frame.f_lineno))
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        try:
            sys.settrace(trace)
            run(home)
            os._exit(0)
        finally:
            os._exit(70)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in {0, -signal.SIGKILL}
    return code != 0


@pytest.fixture(params=["closed", "left by a kill"])
def damaged(request, tmp_path):
    """A complete run whose record of one step is damaged, with and without a write-ahead log."""
    home = tmp_path / "damaged"
    home.mkdir()
    run(home)
    con = sqlite3.connect(home / "s.db", isolation_level=None)
    con.execute("PRAGMA journal_mode=WAL")
    con.execute("UPDATE steps SET digest = x'00' WHERE name = ?", (LOST,))
    if request.param == "closed":
        con.close()
        return home
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    con.close()
    assert (copy / "s.db-wal").stat().st_size > 0
    return copy


def goes_on(damaged, home, line):
    shutil.copytree(damaged, home)
    was_killed = killed(home, line)
    run(home)
    mails = Counter((home / "mails").read_text().splitlines())
    assert mails == {**dict.fromkeys(STEPS, 1), LOST: 2}, f"killed at line {line}"
    assert f"('{LOST}',)\n" in (home / "told").read_text(), f"killed at line {line}"
    copies = [path for path in home.glob("s.db.damaged-*") if not path.name.endswith(("-wal", "-shm"))]
    assert len(copies) == 1
    assert not list(home.glob(".s.db.damaged-*"))
    shutil.rmtree(home)
    return was_killed


def test_killed_at_some_lines_of_the_salvage(damaged, tmp_path):
    assert all(goes_on(damaged, tmp_path / f"at-{line}", line) for line in range(2, 90, 8))


@pytest.mark.slow
def test_killed_at_every_line_of_the_salvage(damaged, tmp_path):
    line = 1
    while goes_on(damaged, tmp_path / f"at-{line}", line):
        line += 1
    assert line > 90
