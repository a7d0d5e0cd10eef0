"""Helper process of the crash matrix: runs a workflow in forked children that are killed at chosen moments.

`python -m holdfast.testing.crash.child` reads one job per line and answers with one line. It imports the
workflow once and forks for each run, which makes thousands of kills affordable. Each child is a real process
with a real store and lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import inspect
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.events import Event, EventBus, StoreDamaged
from holdfast.workflow import FileLock, SQLiteStore, Step, Workflow

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, ModuleType

# Exit code of a run that ended with an unexpected exception.
TRACEBACK_EXIT_CODE = 70
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve jobs until standard input ends."""
    # Responses get a private copy of stdout: output of a workflow goes to stderr and cannot mix with them.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # While it is blocked, SIGCHLD stays pending until `sigtimedwait` receives it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    build = _load_build(sys.argv[1], sys.argv[2], sys.argv[3])
    for line in sys.stdin:
        job = json.loads(line)
        response = _kill_child(job["pid"]) if job["do"] == "kill" else _run_forked(job, build)
        answers.write(json.dumps(response) + "\n")
        answers.flush()


def _load_build(module_name: str, file: str, name: str) -> Callable[..., Workflow]:
    module: ModuleType | None = None
    with contextlib.suppress(ImportError, ValueError):
        candidate = importlib.import_module(module_name)
        if getattr(candidate, "__file__", None) == file:
            module = candidate
    if module is None:
        spec = importlib.util.spec_from_file_location(module_name.rpartition(".")[2] or "workflow", file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file}: cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module.__name__] = module
        spec.loader.exec_module(module)
    build: Callable[..., Workflow] = getattr(module, name)
    return build


def _run_forked(job: dict[str, Any], build: Callable[..., Workflow]) -> dict[str, Any]:
    # Discard the signal of an earlier child: it would end the wait below, and this child would not be killed.
    signal.sigtimedwait({signal.SIGCHLD}, 0)
    pid = os.fork()
    if pid == 0:
        code = TRACEBACK_EXIT_CODE
        try:
            code = _run_child(job, build)
        finally:
            # The child must not return to the job loop, nor flush buffers that it inherited from the helper.
            os._exit(code)
    limit = job.get("kill_after")
    if limit is not None and signal.sigtimedwait({signal.SIGCHLD}, limit) is None:
        os.kill(pid, signal.SIGKILL)
    # Also returns when the child stops itself before a step (`stop_before`).
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return {"stopped": pid}
    return {"code": os.waitstatus_to_exitcode(status)}


def _kill_child(pid: int) -> dict[str, Any]:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return {"code": os.waitstatus_to_exitcode(status)}


def _run_child(job: dict[str, Any], build: Callable[..., Workflow]) -> int:
    # A stopped child must not outlive the helper: it holds the lock, and the pipe that the matrix reads.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    home = Path(job["dir"])
    log = (home / "run.log").open("a", buffering=1)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    if job.get("clock"):
        real, ahead = time.time, float(job["clock"])
        time.time = lambda: real() + ahead
    if job.get("unprivileged"):
        _drop_file_capabilities()
    try:
        workflow = build(home / "world")
        effects = os.open(home / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for step in workflow.steps:
            InstrumentedStep(step, job, effects)
        if job.get("limit"):
            _limit_file_size(job["limit"])
        store, lock = SQLiteStore(home / "state.db"), FileLock(home / "lock")
        workflow.run(
            job.get("params"),
            store=store,
            lock=lock,
            bus=EventBus(_report_store_damage),
            command="crash-matrix",
        )
    except HoldfastError as error:
        sys.stderr.write(f"{error.code}: {error}\n")
        return error.exit_code
    except BaseException:  # noqa: BLE001  what a user would see as a traceback is a finding
        traceback.print_exc()
        return TRACEBACK_EXIT_CODE
    return 0


def _report_store_damage(event: Event) -> None:
    if isinstance(event, StoreDamaged):
        sys.stderr.write(f"store.damaged: {event.reason}; lost: {', '.join(event.lost)}\n")


class InstrumentedStep:
    """Records the start and end of a step's effect, and kills the process at the requested moment."""

    def __init__(self, step: Step, job: dict[str, Any], effects: int) -> None:
        self._name = step.name
        self._run = step.run
        self._effects = effects
        self._job = job
        kill = job.get("kill") or {}
        self._kill = kill if kill.get("step") == step.name else {}
        self._lines = 0
        function = inspect.unwrap(getattr(step.run, "__func__", step.run))  # that of the user
        self._code: CodeType | None = getattr(function, "__code__", None)
        step.__dict__["run"] = self.run

    def run(self, ctx: Any) -> Any:
        """Run the step; may kill or stop the process before, inside or after it."""
        if self._kill.get("at") == "before":
            self._kill_self()
        if self._job.get("stop_before") == self._name:
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._job.get("full_in") == self._name:
            store = Path(self._job["dir"], "state.db")
            _limit_file_size(max(path.stat().st_size for path in (store, store.with_name("state.db-wal"))))
        self._record("enter")
        is_traced = self._job.get("count") or self._kill.get("at") == "inside"
        value = self._run_traced(ctx) if is_traced else self._run(ctx)
        self._record("leave")
        if self._kill.get("at") == "after":
            self._kill_self()
        return value

    def _run_traced(self, ctx: Any) -> Any:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return self._run(ctx)
        finally:
            sys.settrace(before)
            if self._job.get("count"):
                self._record(f"lines:{self._lines}")

    def _trace(self, frame: FrameType, event: str, _arg: object) -> Any:
        """Trace the file of the step: the process may be killed at each of its lines."""
        if self._code is None or frame.f_code.co_filename != self._code.co_filename:
            return None
        if event == "line":
            self._lines += 1
            if self._kill.get("line") == self._lines:
                self._kill_self()
        return self._trace

    def _record(self, what: str) -> None:
        # One system call per line: SIGKILL leaves the whole line or nothing, and the page cache survives it.
        os.write(self._effects, f"{what} {self._name}\n".encode())

    def _kill_self(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def _limit_file_size(size: int) -> None:
    """Limit the size of files that this process writes, to simulate a full disk."""
    # Python ignores SIGXFSZ: a write beyond the limit fails with EFBIG and does not kill the process.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _drop_file_capabilities() -> None:
    """Drop the capabilities that let root ignore file modes."""
    # struct __user_cap_header_struct (version 3, this process), and two empty __user_cap_data_struct.
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0 and libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")


if __name__ == "__main__":
    main()
