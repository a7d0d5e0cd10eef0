"""A remote lock whose holder was killed: `acquire` waits until its session has ended on the host."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from holdfast.errors import LockedError
from holdfast.remote.lock import RemoteLock
from holdfast.retry import Policy, constant
from holdfast.workflow import LockHolder

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")

SESSION = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    for state in ("held", "emptied"):
        print(state, flush=True)
        sys.stdin.readline()
        file.truncate(0)
"""


@pytest.fixture
def orphaned_lock(tmp_path):
    """A session that holds the lock for another process and does not notice when that process is killed."""
    holder = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    name = msgspec.structs.replace(LockHolder.current_process("up", "run-1"), pid=holder.pid, start_ticks=0)
    (tmp_path / "lock").write_bytes(msgspec.json.encode(name))
    session = subprocess.Popen(
        [sys.executable, "-c", SESSION, tmp_path / "lock"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert session.stdout.readline() == "held\n"
    yield holder, session
    for process in (holder, session):
        process.kill()
        process.communicate()


def test_exit_of_killed_lock_holder_is_awaited(orphaned_lock, tmp_path):
    holder, session = orphaned_lock
    requests = tmp_path / "requests"  # one byte for each ssh command
    requests.touch()
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho >>{requests}\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    lock = RemoteLock(str(tmp_path / "lock"), [str(ssh), "host"])
    with pytest.raises(LockedError, match=f"process {holder.pid} "):
        lock.acquire(LockHolder.current_process())  # the holder is alive: another run
    holder.kill()
    holder.wait()

    def has_retried(before):
        assert requests.stat().st_size >= before + 4, "each attempt takes the lock and reads its holder"

    polling = Policy(attempts=None, deadline=30.0, backoff=constant(0.05), retry_on=AssertionError)
    with ThreadPoolExecutor(1) as pool:
        acquiring = pool.submit(lock.acquire, LockHolder.current_process("again"))
        for after in ("emptied\n", ""):
            polling.call(has_retried, requests.stat().st_size)
            assert not acquiring.done()
            session.stdin.write("on\n")
            session.stdin.flush()
            assert session.stdout.readline() == after
        acquiring.result(30)
    assert lock.holder().command == "again"
    lock.release()
