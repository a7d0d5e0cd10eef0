"""Real processes: Ctrl-C while several probes run, and SIGKILL between an effect and its record."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from holdfast.workflow import SQLiteStore

PROBING = """
import signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background has it ignored
from pathlib import Path
from holdfast.workflow import FileLock, SQLiteStore, Step, Workflow, absent
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

RECEIPT = """
import os, signal, sys
from pathlib import Path
from holdfast.workflow import FileLock, SQLiteStore, Step, Workflow, absent, done
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

pytestmark = pytest.mark.timeout(120)


def run_program(program, home, *words):
    command = [sys.executable, "-c", program, str(home), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_ctrl_c_during_parallel_probes_prevents_effects(tmp_path):
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


def test_payment_without_receipt_is_not_repeated(tmp_path):
    assert run_program(RECEIPT, tmp_path, "dies").returncode == -signal.SIGKILL
    for _ in range(2):
        again = run_program(RECEIPT, tmp_path, "")
        assert again.returncode == 3
        assert "Return it from the probe of 'pay'" in again.stderr
    assert (tmp_path / "paid").read_text() == "x"
