"""A remote lock whose machine was suspended: the host has released it, although ssh still runs."""

import shutil
import time

import pytest

from holdfast.errors import LockLostError
from holdfast.remote.lock import HEARTBEAT_TIMEOUT_SECONDS, RemoteLock
from holdfast.workflow import LockHolder

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")


@pytest.fixture
def suspend(monkeypatch):
    """Advance the clock that counts suspended time."""
    suspended, read = [0.0], time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: read(clock) + suspended[0])
    return lambda seconds: suspended.__setitem__(0, suspended[0] + seconds)


def test_lock_is_lost_when_no_heartbeat_was_sent_in_time(tmp_path, suspend):
    lock = RemoteLock(str(tmp_path / "lock"))
    lock.acquire(LockHolder.current_process())
    suspend(HEARTBEAT_TIMEOUT_SECONDS / 2)
    lock.check()
    suspend(HEARTBEAT_TIMEOUT_SECONDS / 2)
    with pytest.raises(LockLostError):
        lock.check()
    lock.release()
    assert lock.was_lost


def test_late_heartbeat_does_not_renew_lock(tmp_path, suspend, monkeypatch):
    monkeypatch.setattr("holdfast.remote.lock.HEARTBEAT_SECONDS", 0.01)
    lock = RemoteLock(str(tmp_path / "lock"))
    lock.acquire(LockHolder.current_process())
    suspend(HEARTBEAT_TIMEOUT_SECONDS)
    lock._send_heartbeats(lock._process)
    with pytest.raises(LockLostError):
        lock.check()
    lock.release()
