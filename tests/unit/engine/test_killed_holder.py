"""A lock elsewhere whose holder was killed here: the other side is given the time to hear of it."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from holdfast.engine import CommandLock, Holder
from holdfast.errors import LockedError
from holdfast.retry import Policy, constant

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")

LATE = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    for said in ("held", "emptied"):
        print(said, flush=True)
        sys.stdin.readline()
        file.truncate(0)
"""


@pytest.fixture
def left_behind(tmp_path):
    """A session that holds the lock for another process, whose end it has not heard of."""
    holder = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    name = msgspec.structs.replace(Holder.me("up", "run-1"), pid=holder.pid, born=0)
    (tmp_path / "lock").write_bytes(msgspec.json.encode(name))
    session = subprocess.Popen(
        [sys.executable, "-c", LATE, tmp_path / "lock"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert session.stdout.readline() == "held\n"
    yield holder, session
    for each in (holder, session):
        each.kill()
        each.communicate()


def test_the_end_of_a_killed_holder_is_waited_for(left_behind, tmp_path):
    """It has to travel to the other side, behind all that a slow line still has to carry."""
    holder, session = left_behind
    asked = tmp_path / "asked"
    asked.touch()
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho >>{asked}\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    lock = CommandLock(str(tmp_path / "lock"), [str(ssh), "host"])
    with pytest.raises(LockedError, match=f"process {holder.pid} "):
        lock.acquire(Holder.me())  # it lives: it is another run
    holder.kill()
    holder.wait()

    def refused_again(before):
        assert asked.stat().st_size >= before + 4, "each time it asks for the lock, and for the name in it"

    patient = Policy(attempts=None, deadline=30.0, backoff=constant(0.05), retry_on=AssertionError)
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(lock.acquire, Holder.me("again"))
        for after in ("emptied\n", ""):
            patient.call(refused_again, asked.stat().st_size)
            assert not taking.done()
            session.stdin.write("on\n")
            session.stdin.flush()
            assert session.stdout.readline() == after
        taking.result(30)
    assert lock.holder().command == "again"
    lock.release()
