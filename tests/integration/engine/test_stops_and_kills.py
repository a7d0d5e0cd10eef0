"""Real processes: Ctrl-C while several probes run, and SIGKILL in every moment of a run and of an undo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from holdfast.engine import SQLiteStore

PROBING = """
import signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background has it ignored
from pathlib import Path
from holdfast.engine import FileLock, SQLiteStore, Step, Workflow, absent
from holdfast.errors import HoldfastError

home = Path(sys.argv[1])
both = threading.Barrier(2)

def step(name):
    def probe(ctx):
        if both.wait(30) == 0:
            print("probing", flush=True)
        assert ctx.stop.wait(30)  # slow: it answers after the Ctrl-C
        return absent("not there")
    return Step(name, probe=probe, run=lambda ctx: (home / name).write_text("x"))

try:
    store, lock = SQLiteStore(home / "s.db"), FileLock(home / "lock")
    Workflow("w", [step("one"), step("two")]).run(store=store, lock=lock)
except HoldfastError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""

WORLD = """
import os, signal, sys
from pathlib import Path
from holdfast.engine import FileLock, SQLiteStore, Step, Workflow, absent, done
from holdfast.errors import HoldfastError

home, do, victim, moment = Path(sys.argv[1]), *sys.argv[2:5]

def dies(name, at):
    if (name, at) == (victim, moment):
        os.kill(os.getpid(), signal.SIGKILL)

def ledger(word):
    fd = os.open(home / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"{word}\\n".encode())
    os.close(fd)

class Thing(Step):
    def __init__(self, name, needs=(), by_id=False):
        super().__init__(name, needs=needs)
        self.by_id = by_id

    def path(self, ctx):
        return home / (f"{self.name}-{ctx.result('reserve')['id']}" if self.by_id else self.name)

    def probe(self, ctx):
        path = self.path(ctx)
        return done("there", result={"id": 7}) if path.exists() else absent("not there")

    def run(self, ctx):
        ledger(f"make {self.name}")
        self.path(ctx).write_text("x")
        return {"id": 7}

    def undo(self, ctx, result):
        dies(self.name, "before")
        ledger(f"undo {self.name} {result['id']}")
        self.path(ctx).unlink()
        dies(self.name, "after")

def build():
    return Workflow("w", [
        Thing("reserve"), Thing("upload", ("reserve",), by_id=True),
        Thing("list", ("upload",), by_id=True), Thing("alone"), Thing("last", ("alone",)),
    ], workers=1)

try:
    getattr(build(), do)(store=SQLiteStore(home / "s.db"), lock=FileLock(home / "lock"))
except HoldfastError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""

RECEIPT = """
import os, signal, sys
from pathlib import Path
from holdfast.engine import FileLock, SQLiteStore, Step, Workflow, absent, done
from holdfast.errors import HoldfastError

home, dies = Path(sys.argv[1]), sys.argv[2] == "dies"

def pay(ctx):
    with (home / "paid").open("a") as paid:
        paid.write("x")
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"receipt": 1}

steps = [
    Step("pay", probe=lambda ctx: done("paid") if (home / "paid").exists() else absent(), run=pay),
    Step("book", reads=["pay"], repeat="safe", run=lambda ctx: ctx.result("pay")),
]
try:
    Workflow("w", steps).run(store=SQLiteStore(home / "s.db"), lock=FileLock(home / "lock"))
except HoldfastError as error:
    print(f"{error} {error.hint}", file=sys.stderr)
    sys.exit(error.exit_code)
"""

STEPS = ("reserve", "upload", "list", "alone", "last")

pytestmark = pytest.mark.timeout(120)


def ran(program, home, *words):
    command = [sys.executable, "-c", program, str(home), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_ctrl_c_during_two_slow_probes_comes_before_both_effects(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", PROBING, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "probing\n"
        os.kill(child.pid, signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == 130, errors
    assert "stopped by Ctrl-C" in errors
    assert not (tmp_path / "one").exists()
    assert not (tmp_path / "two").exists()
    store = SQLiteStore(tmp_path / "s.db")
    store.open()
    assert store.load("w") == {}
    assert store.runs()[0].outcome == "interrupted"
    store.close()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("victim", STEPS)
def test_an_undo_that_was_killed_anywhere_goes_on(tmp_path, victim, moment):
    assert ran(WORLD, tmp_path, "run", "", "").returncode == 0
    assert ran(WORLD, tmp_path, "undo", victim, moment).returncode == -signal.SIGKILL
    again = ran(WORLD, tmp_path, "undo", "", "")
    assert again.returncode == 0, again.stderr
    ledger = (tmp_path / "ledger").read_text().splitlines()
    assert sorted(ledger) == sorted(
        [*(f"make {name}" for name in STEPS), *(f"undo {name} 7" for name in STEPS)]
    )
    assert {path.name for path in tmp_path.iterdir()} == {"ledger", "lock", "s.db"}
    third = ran(WORLD, tmp_path, "undo", "", "")
    assert third.returncode == 0, third.stderr
    assert ran(WORLD, tmp_path, "run", "", "").returncode == 0
    assert len((tmp_path / "ledger").read_text().splitlines()) == 3 * len(STEPS)


def test_a_payment_whose_receipt_died_with_the_process_is_not_made_again(tmp_path):
    assert ran(RECEIPT, tmp_path, "dies").returncode == -signal.SIGKILL
    for _ in range(2):
        again = ran(RECEIPT, tmp_path, "")
        assert again.returncode == 3
        assert "Let the probe of 'pay' bring it along" in again.stderr
    assert (tmp_path / "paid").read_text() == "x"
