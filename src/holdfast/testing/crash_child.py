"""The process that is killed: runs a workflow in forked children, and dies on command at a chosen moment.

`python -m holdfast.testing.crash_child` reads one job a line and answers each with one line. It imports the
workflow once and forks for every run, so that thousands of kills are affordable. Each child is a real
process with a real store and a real lock. Not here: which moments are tried and what is made of it
(`crash`).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.engine import FileLock, SQLiteStore, Step, Workflow
from holdfast.errors import HoldfastError
from holdfast.events import Bus, Event, StoreDamaged

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, ModuleType

TRACEBACK = 70
"""the exit code of a run that ended with something that is no error of holdfast's tree"""


def main() -> None:
    """Serve jobs until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    build = _load(sys.argv[1], sys.argv[2], sys.argv[3])
    for line in sys.stdin:
        job = json.loads(line)
        answer = _kill(job["pid"]) if job["do"] == "kill" else _fork(job, build)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _load(module: str, file: str, name: str) -> Callable[..., Workflow]:
    found: ModuleType | None = None
    with contextlib.suppress(ImportError, ValueError):
        candidate = importlib.import_module(module)
        if getattr(candidate, "__file__", None) == file:
            found = candidate
    if found is None:
        spec = importlib.util.spec_from_file_location(module.rpartition(".")[2] or "workflow", file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} cannot be loaded")
        found = importlib.util.module_from_spec(spec)
        sys.modules[found.__name__] = found
        spec.loader.exec_module(found)
    build: Callable[..., Workflow] = getattr(found, name)
    return build


def _fork(job: dict[str, Any], build: Callable[..., Workflow]) -> dict[str, Any]:
    pid = os.fork()
    if pid == 0:
        code = TRACEBACK
        try:
            code = _child(job, build)
        finally:
            os._exit(code)
    limit = job.get("kill_after")
    if limit is not None and signal.sigtimedwait({signal.SIGCHLD}, limit) is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, os.WUNTRACED)
    with contextlib.suppress(BlockingIOError):
        signal.sigtimedwait({signal.SIGCHLD}, 0)
    if os.WIFSTOPPED(status):
        return {"stopped": pid}
    return {"code": os.waitstatus_to_exitcode(status)}


def _kill(pid: int) -> dict[str, Any]:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return {"code": os.waitstatus_to_exitcode(status)}


def _child(job: dict[str, Any], build: Callable[..., Workflow]) -> int:
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
            Watched(step, job, effects)
        if job.get("limit"):
            _let_grow_to(job["limit"])
        store, lock = SQLiteStore(home / "state.db"), FileLock(home / "lock")
        workflow.run(job.get("params"), store=store, lock=lock, bus=Bus(_told), command="crash-matrix")
    except HoldfastError as error:
        sys.stderr.write(f"{error.code}: {error}\n")
        return error.exit_code
    except BaseException:  # noqa: BLE001  what a user would see as a traceback is a finding
        traceback.print_exc()
        return TRACEBACK
    return 0


def _told(event: Event) -> None:
    if isinstance(event, StoreDamaged):
        sys.stderr.write(f"store.damaged: {event.reason}; lost: {', '.join(event.lost)}\n")


class Watched:
    """Writes down when a step's effect begins and ends, and kills the process at the moment asked for."""

    def __init__(self, step: Step, job: dict[str, Any], effects: int) -> None:
        self._step = step
        self._effects = effects
        self._run = step.run
        kill = job.get("kill") or {}
        self._kill = kill if kill.get("step") == step.name else {}
        self._stops = job.get("stop_before") == step.name
        self._fills = job.get("full_in") == step.name
        self._home = Path(job["dir"])
        self._counts = bool(job.get("count"))
        self._lines = 0
        self._code: CodeType | None = getattr(getattr(step.run, "__func__", step.run), "__code__", None)
        step.__dict__["run"] = self.run

    def run(self, ctx: Any) -> Any:
        if self._kill.get("at") == "before":
            self._die()
        if self._stops:
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._fills:
            _let_grow_to(max((self._home / name).stat().st_size for name in ("state.db", "state.db-wal")))
        self._note("enter")
        value = self._traced(ctx) if self._counts or self._kill.get("at") == "inside" else self._run(ctx)
        self._note("leave")
        if self._kill.get("at") == "after":
            self._die()
        return value

    def _traced(self, ctx: Any) -> Any:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return self._run(ctx)
        finally:
            sys.settrace(before)
            if self._counts:
                self._note(f"lines:{self._lines}")

    def _trace(self, frame: FrameType, event: str, _arg: object) -> Any:
        """Follow the step's own file: a line there is a moment at which the process may die."""
        if self._code is None or frame.f_code.co_filename != self._code.co_filename:
            return None
        if event == "line":
            self._lines += 1
            if self._kill.get("line") == self._lines:
                self._die()
        return self._trace

    def _note(self, what: str) -> None:
        os.write(self._effects, f"{what} {self._step.name}\n".encode())

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def _let_grow_to(size: int) -> None:
    """Let no file of this process grow past a size, as if the disk were full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _drop_file_capabilities() -> None:
    """Make root obey file modes in this process, so that "read-only" means the same to everybody."""
    import ctypes

    class Header(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    class Data(ctypes.Structure):
        _fields_ = (
            ("effective", ctypes.c_uint32),
            ("permitted", ctypes.c_uint32),
            ("inheritable", ctypes.c_uint32),
        )

    header, data = Header(0x20080522, 0), (Data * 2)()
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0 and libc.capset(ctypes.byref(header), ctypes.byref(data)) != 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")


if __name__ == "__main__":
    main()
