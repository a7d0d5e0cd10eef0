"""Two processes on one workflow, and one or two Ctrl-C, with real processes and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from holdfast.workflow import SQLiteStore

PROGRAM = """
import os, select, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background has it ignored
from pathlib import Path
from holdfast.workflow import FileLock, SQLiteStore, Step, Workflow, absent, done
from holdfast.errors import HoldfastError
from holdfast.retry import Policy, constant

home = Path(sys.argv[1])

def said(word):
    print(word, flush=True)

def there(name):
    return lambda ctx: done("there") if (home / name).exists() else absent("not there")

def effect(name):
    (home / name).write_text("x")

def wait_for_go():
    # In short waits: Python runs a signal handler only between two calls.
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        pass

def print_stop(ctx):
    threading.Thread(target=lambda: ctx.stop.wait() and said("stopping"), daemon=True).start()

{steps}

try:
    Workflow("w", steps).run(store=SQLiteStore(home / "state.db"), lock=FileLock(home / "lock"), command="up")
except HoldfastError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""

BLOCKING_STEPS = """
def second(ctx):
    print_stop(ctx)
    said("in second")
    wait_for_go()  # the effect is in the air until the test says so
    effect("second")

steps = [
    Step("first", probe=there("first"), run=lambda ctx: effect("first")),
    Step("second", needs=["first"], probe=there("second"), run=second),
    Step("third", needs=["second"], probe=there("third"), run=lambda ctx: effect("third")),
]
"""

PARALLEL = """
def slow(name):
    def run(ctx):
        said(f"in {name}")
        barrier.wait()
        if name == "one":
            print_stop(ctx)
            said("both in")
            wait_for_go()
        else:
            gate.wait()
        effect(name)
        gate.set()
    return run

barrier, gate = threading.Barrier(2), threading.Event()
steps = [Step(name, probe=there(name), run=slow(name)) for name in ("one", "two")]
steps += [Step("last", needs=["one", "two"], probe=there("last"), run=lambda ctx: effect("last"))]
"""

PROBING = """
def forever(ctx):
    said("probing")
    while True:
        threading.Event().wait(0.05)

steps = [
    Step("first", probe=there("first"), run=lambda ctx: effect("first")),
    Step("second", needs=["first"], probe=forever, run=lambda ctx: effect("second")),
]
"""

BACKING_OFF = """
def fails(ctx):
    said("failing")
    raise ConnectionError("away")

policy = Policy(attempts=9, backoff=constant(600))
steps = [
    Step("first", probe=there("first"), run=lambda ctx: effect("first")),
    Step("second", needs=["first"], repeat="safe", run=fails, policy=policy),
]
"""

pytestmark = pytest.mark.timeout(120)


class Program:
    def __init__(self, home, steps):
        self.home = home
        code = textwrap.dedent(PROGRAM).replace("{steps}", steps)
        self.child = subprocess.Popen(
            [sys.executable, "-c", code, home],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def expect(self, word):
        while line := self.child.stdout.readline():
            if line.strip() == word:
                return
        raise AssertionError(f"{word!r} was never said: {self.child.stderr.read()}")

    def interrupt(self):
        os.kill(self.child.pid, signal.SIGINT)

    def go(self):
        self.child.stdin.write("go\n")
        self.child.stdin.flush()

    def end(self):
        self.child.wait(timeout=60)  # its standard input stays open: an effect in the air stays there
        return self.child.returncode, self.child.stderr.read()

    def states(self):
        store = SQLiteStore(self.home / "state.db")
        store.open()
        try:
            return {name: record.state for name, record in store.load("w").items()}, store.runs()[0].outcome
        finally:
            store.close()


@pytest.fixture
def start_program(tmp_path):
    begun = []

    def start(steps):
        begun.append(Program(tmp_path, steps))
        return begun[-1]

    yield start
    for program in begun:
        if program.child.poll() is None:
            program.child.kill()
            program.child.communicate()


def test_second_run_names_lock_holder_and_proceeds_after_holder_is_killed(start_program):
    first = start_program(BLOCKING_STEPS)
    first.expect("in second")
    code, errors = start_program(BLOCKING_STEPS).end()
    assert code == 4
    assert f"process {first.child.pid} on" in errors
    assert "(up), for" in errors
    os.kill(first.child.pid, signal.SIGKILL)
    first.child.wait()
    third = start_program(BLOCKING_STEPS)
    third.go()
    assert third.end()[0] == 0
    assert (first.home / "third").exists()


def test_ctrl_c_lets_running_step_finish_and_records_it(start_program):
    program = start_program(BLOCKING_STEPS)
    program.expect("in second")
    program.interrupt()
    program.go()
    code, errors = program.end()
    assert code == 130
    assert "stopped by Ctrl-C" in errors
    assert (program.home / "second").exists()
    assert not (program.home / "third").exists()
    assert program.states() == ({"first": "done", "second": "done"}, "interrupted")
    assert start_program(BLOCKING_STEPS).end()[0] == 0


def test_second_ctrl_c_stops_immediately_and_keeps_finished_steps(start_program):
    program = start_program(BLOCKING_STEPS)
    program.expect("in second")
    program.interrupt()
    program.expect("stopping")  # else the two signals would be one
    program.interrupt()
    code, errors = program.end()
    assert code == 130, errors
    assert "Traceback" not in errors
    assert not (program.home / "second").exists()
    assert program.states() == ({"first": "done", "second": "intent"}, "interrupted")
    again = start_program(BLOCKING_STEPS)
    again.go()
    assert again.end()[0] == 0


def test_ctrl_c_waits_for_all_running_steps(start_program):
    program = start_program(PARALLEL)
    program.expect("both in")
    program.interrupt()
    program.go()
    assert program.end()[0] == 130
    assert program.states()[0] == {"one": "done", "two": "done"}
    assert not (program.home / "last").exists()
    assert start_program(PARALLEL).end()[0] == 0


def test_second_ctrl_c_abandons_running_threads(start_program):
    program = start_program(PARALLEL)
    program.expect("both in")
    program.interrupt()
    program.expect("stopping")  # else the two signals would be one
    program.interrupt()
    assert program.end()[0] == 130
    assert program.states()[0] == {"one": "intent", "two": "intent"}


def test_ctrl_c_interrupts_probe(start_program):
    program = start_program(PROBING)
    program.expect("probing")
    program.interrupt()
    code, errors = program.end()
    assert code == 130, errors
    assert program.states()[0]["first"] == "done"
    assert not (program.home / "second").exists()


def test_ctrl_c_interrupts_backoff(start_program):
    program = start_program(BACKING_OFF)
    program.expect("failing")
    program.interrupt()
    code, errors = program.end()
    assert code == 130, errors
    assert program.states()[0]["first"] == "done"
