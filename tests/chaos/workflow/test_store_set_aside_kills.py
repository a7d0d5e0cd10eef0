"""SIGKILL at every line that sets a damaged store aside: the next run reports the loss and continues."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
from collections import Counter

import pytest

from holdfast.events import EventBus, StoreDamaged
from holdfast.workflow import FileLock, SQLiteStore, Step, Workflow
from holdfast.workflow.store import sqlite, sqlite_file

STEPS = [f"mail-{number}" for number in range(6)]
DAMAGED_STEP = "mail-3"
TRACED_FILES = {module.__file__ for module in (sqlite, sqlite_file)}


def make_workflow(home):
    """Steps without probe: only a record keeps them from running again."""

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
    reports = (home / "reports").open("a", buffering=1)
    bus = EventBus(
        lambda event: reports.write(f"{event.lost}\n") if isinstance(event, StoreDamaged) else None
    )
    make_workflow(home).run(store=SQLiteStore(home / "s.db"), lock=FileLock(home / "lock"), bus=bus)


def run_and_kill_at_line(home, line):
    """Run in a child and kill it that many lines after it found the damage; False if the run began first."""
    pid = os.fork()
    if pid == 0:
        left, inside, seen = line, [], set()

        def trace(frame, event, arg):
            nonlocal left
            if frame.f_code.co_filename not in TRACED_FILES:
                return None
            if event == "call" and frame.f_code.co_name == "_replace_damaged":
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
def damaged_home(request, tmp_path):
    """A complete run whose record of one step is damaged, with and without a write-ahead log."""
    home = tmp_path / "damaged"
    home.mkdir()
    run(home)
    con = sqlite3.connect(home / "s.db", isolation_level=None)
    con.execute("PRAGMA journal_mode=WAL")
    con.execute("UPDATE steps SET digest = x'00' WHERE name = ?", (DAMAGED_STEP,))
    if request.param == "closed":
        con.close()
        return home
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    con.close()
    assert (copy / "s.db-wal").stat().st_size > 0
    return copy


def assert_continues(damaged, home, line):
    shutil.copytree(damaged, home)
    was_killed = run_and_kill_at_line(home, line)
    run(home)
    mails = Counter((home / "mails").read_text().splitlines())
    assert mails == dict.fromkeys(STEPS, 2), f"killed at line {line}"
    assert f"{tuple(STEPS)}\n" in (home / "reports").read_text(), f"killed at line {line}"
    copies = [path for path in home.glob("s.db.damaged-*") if not path.name.endswith(("-wal", "-shm"))]
    assert len(copies) == 1
    shutil.rmtree(home)
    return was_killed


def test_killed_at_sampled_lines_of_set_aside(damaged_home, tmp_path):
    assert all(assert_continues(damaged_home, tmp_path / f"at-{line}", line) for line in range(2, 45, 6))


@pytest.mark.slow
def test_killed_at_every_line_of_set_aside(damaged_home, tmp_path):
    line = 1
    while assert_continues(damaged_home, tmp_path / f"at-{line}", line):
        line += 1
    assert line > 45
