"""Durable steps per second, time to resume, and latency of a lock conflict and of Ctrl-C.

Peers run in the same run, interleaved with ours: DBOS on SQLite (its default, and WAL with
synchronous=FULL), bare SQLite (WAL, synchronous=FULL), and a file that is appended to and fsynced. Cleans
up after itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measured

from holdfast.workflow import SQLiteStore, Step, Workflow

RESULT = {"container": "holdfast-blue", "port": 6443}
ROW = json.dumps(RESULT) + "x" * 180  # as many bytes as one of our rows


def chain(count: int) -> Workflow:
    """A sequential chain of steps that do nothing: what is measured is what they cost."""
    names = [f"step-{i:05}" for i in range(count)]
    before = [[], *([name] for name in names)]
    return Workflow(
        "bench",
        [
            Step(name, needs=needs, run=lambda _ctx: RESULT, repeat="safe")
            for name, needs in zip(names, before, strict=False)
        ],
    )


def timed(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Ours:
    """A fresh store for each round."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count, self.flow, self.round = folder, count, chain(count), 0
        self.commits = 0

    def rate(self) -> float:
        self.round += 1
        store = SQLiteStore(self.folder / f"ours-{self.round}.db")
        store.open()
        store.close()  # what is measured are steps, not the making of a file
        seconds = timed(lambda: self.flow.run(store=store))
        self.commits = store.commit_count
        return self.count / seconds


def bare_sqlite(path: Path, commits: int) -> float:
    """One row of the same size in each of as many commits, in a file that is there, closed at the end."""
    con = sqlite3.connect(path, isolation_level=None)
    con.execute("PRAGMA journal_mode=WAL")
    con.execute("CREATE TABLE steps (name TEXT PRIMARY KEY, body TEXT) WITHOUT ROWID")
    con.close()

    def work() -> None:
        con = sqlite3.connect(path, isolation_level=None)
        con.execute("PRAGMA synchronous=FULL")
        for number in range(commits):
            con.execute("BEGIN IMMEDIATE")
            con.execute("INSERT INTO steps VALUES (?, ?)", (f"step-{number:05}", ROW))
            con.execute("COMMIT")
        con.close()

    return commits / timed(work)


def append_fsync(path: Path, count: int) -> float:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def work() -> None:
        for _ in range(count):
            os.write(fd, ROW.encode())
            os.fdatasync(fd)

    seconds = timed(work)
    os.close(fd)
    return count / seconds


class Dbos:
    """DBOS in a separate process that runs one round per request."""

    def __init__(self, folder: Path, mode: str) -> None:
        place = folder / f"dbos-{mode}"
        place.mkdir()
        self.child = subprocess.Popen(
            [sys.executable, __file__, "--dbos", mode, str(place)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def ask(self, what: str, count: int) -> float:
        self.child.stdin.write(f"{what} {count}\n")
        self.child.stdin.flush()
        return float(self.child.stdout.readline())

    def end(self) -> None:
        self.child.communicate()


def serve_dbos(mode: str, folder: str) -> int:
    """The child: `run N` answers with steps a second, `replay N` with seconds for N finished steps."""
    import sqlalchemy
    from dbos import DBOS, SetWorkflowID

    url = f"sqlite:///{folder}/dbos.db"
    config = {"name": "bench", "log_level": "CRITICAL", "system_database_url": url}
    if mode == "wal":
        engine = sqlalchemy.create_engine(url)

        @sqlalchemy.event.listens_for(engine, "connect")
        def _pragmas(con, _record):
            con.execute("PRAGMA journal_mode=WAL")
            con.execute("PRAGMA synchronous=FULL")

        config["system_database_engine"] = engine
    DBOS(config=config)

    @DBOS.step()
    def one() -> dict:
        return RESULT

    ended = []

    @DBOS.workflow()
    def many(count: int) -> int:
        for _ in range(count):
            one()
        ended.append(time.perf_counter())
        return count

    DBOS.launch()
    many(5)
    replayable = set()
    for line in sys.stdin:
        what, count = line.split()[0], int(line.split()[1])
        if what == "run":
            answer = count / timed(lambda count=count: many(count))
        else:
            name = f"replay-{count}"
            if name not in replayable:
                with SetWorkflowID(name):
                    many(count)
                replayable.add(name)
            with sqlite3.connect(f"{folder}/dbos.db") as con:
                con.execute(
                    "UPDATE workflow_status SET status='PENDING', output=NULL WHERE workflow_uuid=?", (name,)
                )
            con.close()
            began = time.perf_counter()
            (handle,) = DBOS._recover_pending_workflows(["local"])  # noqa: SLF001  what a restart does
            handle.get_result()  # this polls: the end of the last step is what counts
            answer = ended[-1] - began
        print(answer, flush=True)
    DBOS.destroy()
    return 0


def rates(folder: Path, count: int, rounds: int, *, quick: bool):
    """Durable steps a second, everybody in every round."""
    ours, peers = Ours(folder, count), {mode: Dbos(folder, mode) for mode in ("default", "wal")}
    seen: dict[str, list[float]] = {}
    for number in range(rounds):
        seen.setdefault("ours", []).append(ours.rate())
        seen.setdefault("bare", []).append(bare_sqlite(folder / f"bare-{number}.db", ours.commits))
        seen.setdefault("append", []).append(append_fsync(folder / f"append-{number}", count))
        for mode, peer in peers.items():
            seen.setdefault(mode, []).append(peer.ask("run", count // 4))
    middle = {name: statistics.median(found) for name, found in seen.items()}
    spread = [round(min(seen["ours"])), round(max(seen["ours"]))]
    yield measured.claim(
        "commits a step on a chain", ours.commits / count, "commits", at_most=1.1, steps=count
    )
    yield measured.claim(
        "durable steps, against bare SQLite at as many commits", middle["ours"], "steps/s",
        baseline=("bare SQLite, WAL and FULL", middle["bare"]), at_least=0.8, range=spread, rounds=rounds,
    )  # fmt: skip
    yield measured.claim(
        "durable steps, against DBOS in WAL and FULL", middle["ours"], "steps/s",
        baseline=("DBOS, WAL and FULL", middle["wal"]), at_least=4.0, range=spread, rounds=rounds,
    )  # fmt: skip
    yield measured.claim(
        "durable steps, against DBOS as it comes", middle["ours"], "steps/s",
        baseline=("DBOS, default", middle["default"]), at_least=4.0, range=spread, rounds=rounds,
    )  # fmt: skip
    yield measured.claim(
        "durable steps, against append and fsync", middle["ours"], "steps/s",
        baseline=("append + fdatasync", middle["append"]), range=spread, rounds=rounds,
    )  # fmt: skip
    yield from resumes(folder, peers["wal"], 5 if quick else 7, quick=quick)
    for peer in peers.values():
        peer.end()


def filled(path: Path, count: int) -> SQLiteStore:
    """A store in which a chain of that length is done; made without waiting for the disk."""
    store = SQLiteStore(path)
    connect = store._connect  # noqa: SLF001

    def hasty():
        con = connect()
        con.execute("PRAGMA synchronous=OFF")
        return con

    store._connect = hasty  # noqa: SLF001  only to have the store sooner
    chain(count).run(store=store)
    return SQLiteStore(path)


def resumes(folder: Path, dbos: Dbos, rounds: int, *, quick: bool):
    """Time to find that nothing is to be done, from opening the store to the end of the run."""
    sizes = [0, 1000, 4000] if quick else [0, 1000, 4000, 16000]
    stores = {size: filled(folder / f"resume-{size}.db", max(size, 1)) for size in sizes}
    flows = {size: chain(max(size, 1)) for size in sizes}
    seen: dict[int, list[float]] = {size: [] for size in sizes}
    replays = []
    for _ in range(rounds):
        for size in sizes:
            seen[size].append(timed(lambda size=size: flows[size].run(store=stores[size])))
        replays.append(dbos.ask("replay", 1000 if quick else 4000))
    middle = {size: statistics.median(times) for size, times in seen.items()}
    compared = 1000 if quick else 4000
    replay = statistics.median(replays)
    yield measured.claim(
        f"resume with {compared} finished steps", replay / middle[compared], "times as fast as DBOS's replay",
        at_least=20.0, ours_ms=round(middle[compared] * 1000, 1), dbos_replay_ms=round(replay * 1000),
    )  # fmt: skip
    best = {size: min(times) for size, times in seen.items()}
    largest = sizes[-1]
    slope, slope_of_best = (_slope(times, largest) for times in (middle, best))
    yield measured.claim(
        "resume, for each finished step", slope, "µs", at_most=10.0, best=round(slope_of_best, 2),
        ms={str(size): round(value * 1000, 1) for size, value in middle.items()},
    )  # fmt: skip
    yield measured.claim(
        "resume is linear: µs a step at the largest", slope, "µs",
        baseline=("at 1000", _slope(middle, 1000)), at_most=1.5,
        best=[round(slope_of_best, 2), round(_slope(best, 1000), 2)],
    )  # fmt: skip
    size = (folder / f"resume-{largest}.db").stat().st_size
    yield measured.claim("bytes a step", size / largest, "bytes", at_most=1024)


def _slope(times: dict[int, float], size: int) -> float:
    """Microseconds for each step, what an empty run costs left out."""
    return (times[size] - times[0]) / size * 1e6


def fsyncs(folder: Path, count: int):
    """Syncs to disk, counted by strace around a process that runs a chain."""
    if shutil.which("strace") is None:
        return
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import workflow; from pathlib import Path;"
        "workflow.chain(int(sys.argv[3])).run(store=workflow.SQLiteStore(Path(sys.argv[2])))"
    )
    counted = {}
    for steps in (1, count):
        out = folder / f"strace-{steps}"
        argv = [
            sys.executable,
            "-c",
            code,
            str(Path(__file__).parent),
            str(folder / f"traced-{steps}.db"),
            str(steps),
        ]
        subprocess.run(
            ["strace", "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", str(out), *argv], check=True
        )
        rows = [line.split() for line in out.read_text().splitlines()]
        counted[steps] = sum(int(row[3]) for row in rows if row and row[-1] in {"fsync", "fdatasync"})
    each = (counted[count] - counted[1]) / (count - 1)
    yield measured.claim("syncs a step, by strace", each, "fsyncs", at_most=1.1, steps=count)


HOLD = """
import signal, sys
from holdfast.workflow import FileLock, LockHolder
FileLock(sys.argv[1]).acquire(LockHolder.current_process("up"))
print("held", flush=True)
signal.pause()
"""
SECOND = """
import sys
from holdfast.workflow import FileLock, Step, Workflow
from holdfast.errors import LockedError
try:
    Workflow("w", [Step("x", run=lambda ctx: None, repeat="safe")]).run(lock=FileLock(sys.argv[1]))
except LockedError as error:
    sys.exit(error.exit_code)
"""
WAITING = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background has it ignored
from holdfast.workflow import Step, Workflow
from holdfast.errors import OperationCancelledError
from holdfast.retry import Policy, constant
def away(ctx):
    print("failing", flush=True)
    raise ConnectionError("away")
try:
    Workflow("w", [Step("x", run=away, repeat="safe", policy=Policy(attempts=9,
    backoff=constant(600)))]).run()
except OperationCancelledError:
    print(time.monotonic(), flush=True)
"""


def answers(folder: Path, rounds: int):
    """A second run's refusal, a freed lock, and a Ctrl-C, each with real processes."""
    refused, freed, cancelled = [], [], []
    lock = folder / "lock"
    for _ in range(rounds):
        holder = subprocess.Popen([sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE, text=True)
        holder.stdout.readline()
        second = [sys.executable, "-c", SECOND, lock]
        began = time.perf_counter()
        code = subprocess.run(second, check=False).returncode
        refused.append(time.perf_counter() - began if code == 4 else 99.0)
        os.kill(holder.pid, signal.SIGKILL)
        began = time.perf_counter()
        while subprocess.run(second, check=False).returncode == 4:
            pass
        freed.append(time.perf_counter() - began)
        holder.communicate()
        cancelled.append(_cancel())
    yield measured.claim(
        "a second run is refused (whole process)", statistics.median(refused), "s", at_most=0.3
    )
    yield measured.claim(
        "a killed holder's lock is taken (whole process)", statistics.median(freed), "s", at_most=0.5
    )
    yield measured.claim(
        "Ctrl-C ends a pause between attempts", statistics.median(cancelled) * 1000, "ms", at_most=50
    )


def _cancel() -> float:
    child = subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    pause = Path(f"/proc/{child.pid}/stat")
    while pause.read_text().rpartition(")")[2].split()[0] == "R":
        pass  # until it sleeps
    began = time.monotonic()
    os.kill(child.pid, signal.SIGINT)
    ended = float(child.communicate(timeout=60)[0])
    return ended - began


def claims(folder: Path, *, quick: bool):
    yield from rates(folder, 300 if quick else 400, 5 if quick else 15, quick=quick)
    yield from fsyncs(folder, 100)
    yield from answers(folder, 3 if quick else 7)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter chains")
    parser.add_argument("--dbos", nargs=2, metavar=("MODE", "DIR"), help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.dbos:
        return serve_dbos(*words.dbos)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        return measured.report(claims(Path(folder), quick=words.quick))


if __name__ == "__main__":
    sys.exit(main())
