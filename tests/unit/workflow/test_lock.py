"""Locks: one holder, which is named; released by the kernel; lost if the file is replaced."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import LockedError, LockLostError, StoreError, TemporaryError, ToolNotFoundError
from holdfast.remote import RemoteLock
from holdfast.workflow import FileLock, LockHolder, process_start_ticks

HOLD = """
import sys, signal
from holdfast.workflow import FileLock, LockHolder
FileLock(sys.argv[1]).acquire(LockHolder.current_process("up", "run-1"))
print("held", flush=True)
signal.pause()
"""


@pytest.fixture(params=["file", "command"])
def make_lock(request, tmp_path):
    if request.param == "command" and shutil.which("flock") is None:
        pytest.skip("needs flock of util-linux")
    path = tmp_path / "lock"
    return (lambda: FileLock(path)) if request.param == "file" else (lambda: RemoteLock(str(path)))


def test_second_acquire_reports_holder(make_lock):
    first, second = make_lock(), make_lock()
    first.acquire(LockHolder.current_process("up", "run-1"))
    with pytest.raises(
        LockedError, match=rf"process {os.getpid()} on .* \(up\), for \d+ s, since 20"
    ) as caught:
        second.acquire(LockHolder.current_process())
    assert caught.value.exit_code == 4
    assert second.holder().run == "run-1"
    first.check()
    first.release()
    second.acquire(LockHolder.current_process())
    second.check()
    second.release()


def test_lock_not_acquired_is_lost(make_lock):
    lock = make_lock()
    with pytest.raises(LockLostError):
        lock.check()
    lock.release()


def test_second_acquire_in_same_process_is_rejected(make_lock):
    lock = make_lock()
    lock.acquire(LockHolder.current_process())
    with pytest.raises(LockedError, match="this process"):
        lock.acquire(LockHolder.current_process())
    lock.release()


def test_killing_holder_releases_lock(make_lock, tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "lock"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=f"process {child.pid} "):
            make_lock().acquire(LockHolder.current_process())
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    lock = make_lock()
    lock.acquire(LockHolder.current_process())
    lock.release()


def test_forked_child_does_not_hold_lock(tmp_path):
    """A child that outlives its parent must not hold the parent's lock."""
    lock = FileLock(tmp_path / "lock")
    lock.acquire(LockHolder.current_process())
    (reader, writer), (awake, here) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.write(here, b"!")
        os.read(reader, 1)  # lives until the parent has let go
        os._exit(0)
    os.close(reader)
    os.read(awake, 1)
    os.close(lock._fd)  # as the kernel does when the parent dies: no unlocking
    lock._fd = None
    other = FileLock(tmp_path / "lock")
    other.acquire(LockHolder.current_process())
    other.release()
    os.close(writer)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_deleted_lock_file_is_detected(tmp_path, how):
    lock = FileLock(tmp_path / "lock")
    lock.acquire(LockHolder.current_process())
    lock.path.unlink()
    if how == "replaced":
        FileLock(lock.path).acquire(LockHolder.current_process())
    with pytest.raises(LockLostError, match="removed or replaced"):
        lock.check()
    lock.release()


def test_dead_session_is_detected(tmp_path):
    lock = RemoteLock(str(tmp_path / "lock"))
    lock.acquire(LockHolder.current_process())
    lock._process.kill()
    lock._process.wait()
    with pytest.raises(LockLostError, match="has ended"):
        lock.check()
    lock.release()


def test_command_without_flock_is_reported(tmp_path):
    with pytest.raises(TemporaryError, match="cannot be taken"):
        RemoteLock(str(tmp_path / "none" / "lock")).acquire(LockHolder.current_process())
    with pytest.raises(TemporaryError, match="cannot be taken"):
        RemoteLock("x", ["/nonexistent/ssh"]).acquire(LockHolder.current_process())


def test_prefix_receives_script_as_one_argument(tmp_path):
    """Like ssh: join all arguments after the host and pass them to a shell."""
    fake = tmp_path / "ssh"
    fake.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    fake.chmod(0o755)
    lock = RemoteLock(str(tmp_path / "the lock"), [str(fake), "me@host"])
    lock.acquire(LockHolder.current_process('it\'s "up" $HOME'))
    assert FileLock(tmp_path / "the lock").holder().command == 'it\'s "up" $HOME'
    with pytest.raises(LockedError, match="me@host"):
        RemoteLock(str(tmp_path / "the lock"), [str(fake), "me@host"]).acquire(LockHolder.current_process())
    lock.release()


def test_lock_file_that_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be opened"):
        FileLock(tmp_path / "file" / "lock").acquire(LockHolder.current_process())


def test_symlink_as_lock_file_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError):
        FileLock(tmp_path / "lock").acquire(LockHolder.current_process())
    assert (tmp_path / "victim").read_text() == "precious"


def test_holder_that_has_not_written_its_name(tmp_path):
    first = FileLock(tmp_path / "lock")
    first.acquire(LockHolder.current_process())
    os.truncate(tmp_path / "lock", 0)
    with pytest.raises(LockedError, match="has just started"):
        FileLock(tmp_path / "lock").acquire(LockHolder.current_process())
    first.release()


def test_age_is_independent_of_clock(monkeypatch):
    holder = LockHolder.current_process()
    monkeypatch.setattr(time, "time", lambda: holder.since - 86400)
    assert 0 <= holder.age_seconds() < 60
    elsewhere = msgspec.structs.replace(holder, boot="another boot")
    assert elsewhere.age_seconds() == 0


GROUP = """
import os, signal, sys
from holdfast.remote import RemoteLock
from holdfast.workflow import LockHolder
signal.signal(signal.SIGINT, lambda *_: print("told", flush=True))
lock = RemoteLock(sys.argv[1])
lock.acquire(LockHolder.current_process())
print("held", flush=True)
sys.stdin.readline()
lock.check()
lock.release()
"""


def children(pid):
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return [int(line) for line in listed.stdout.split()]


@pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")
def test_terminal_ctrl_c_does_not_release_lock(tmp_path):
    """Ctrl-C reaches the whole process group, and an effect may still be running."""
    child = subprocess.Popen(
        [sys.executable, "-c", GROUP, tmp_path / "lock"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    assert child.stdout.readline() == "held\n"
    os.killpg(child.pid, signal.SIGINT)
    assert child.stdout.readline() == "told\n"
    assert {os.getpgid(pid) for pid in children(child.pid)}.isdisjoint({child.pid})
    with pytest.raises(LockedError):
        FileLock(tmp_path / "lock").acquire(LockHolder.current_process())
    _, said = child.communicate("on\n", timeout=30)
    assert child.returncode == 0, said


@pytest.fixture
def shared_lock_directory(tmp_path_factory):
    """A folder where all users of a host may write, as /run/lock is."""
    folder = tmp_path_factory.getbasetemp() / f"meeting-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


needs_flock = pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")


@needs_flock
def test_local_and_remote_lock_share_one_file(shared_lock_directory):
    path = shared_lock_directory / "lock"
    before = os.umask(0o077)
    try:
        for first, second in (
            (FileLock(path, shared=True), RemoteLock(str(path))),
            (RemoteLock(str(path)), FileLock(path, shared=True)),
        ):
            path.unlink(missing_ok=True)
            first.acquire(LockHolder.current_process("up", "run-1"))
            assert path.stat().st_mode & 0o777 == 0o666
            with pytest.raises(LockedError, match=f"process {os.getpid()} "):
                second.acquire(LockHolder.current_process())
            assert second.holder() == first.holder()
            first.release()
            second.acquire(LockHolder.current_process())
            second.release()
            assert path.read_bytes() == b""
    finally:
        os.umask(before)
    FileLock(shared_lock_directory / "private").acquire(LockHolder.current_process())
    assert (shared_lock_directory / "private").stat().st_mode & 0o777 == 0o600


def test_existing_file_is_not_recreated(shared_lock_directory, monkeypatch):
    """Kernels refuse that (fs.protected_regular) when the file is another user's."""
    path, flags = shared_lock_directory / "lock", []
    FileLock(path, shared=True).acquire(LockHolder.current_process())
    opened = os.open
    monkeypatch.setattr(os, "open", lambda p, f, *more: (flags.append(f), opened(p, f, *more))[1])
    with pytest.raises(LockedError):
        FileLock(path, shared=True).acquire(LockHolder.current_process())
    assert flags
    assert not any(flag & os.O_CREAT for flag in flags)


AS_ANOTHER = """
import os, sys
from holdfast.remote import RemoteLock
from holdfast.workflow import FileLock, LockHolder
os.setgid(65534); os.setuid(65534)
lock = FileLock(sys.argv[2], shared=True) if sys.argv[1] == "file" else RemoteLock(sys.argv[2])
try:
    lock.acquire(LockHolder.current_process("as guest"))
except Exception as error:
    print(error)
else:
    lock.check()
    lock.release()
    print("taken")
"""


@needs_flock
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.parametrize("kind", ["file", "command"])
def test_two_users_on_one_host(kind):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        path = f"{folder}/lock"

        def another():
            return subprocess.run(
                [sys.executable, "-c", AS_ANOTHER, kind, path], capture_output=True, text=True, check=True
            ).stdout

        mine = FileLock(path, shared=True)
        mine.acquire(LockHolder.current_process("up"))
        assert f"process {os.getpid()} on" in another()
        mine.release()
        assert another() == "taken\n"
        mine.acquire(LockHolder.current_process("up"))
        mine.release()


@needs_flock
def test_non_regular_file_is_rejected_by_both(shared_lock_directory):
    os.mkfifo(shared_lock_directory / "pipe")
    with pytest.raises(StoreError, match="regular file"):
        FileLock(shared_lock_directory / "pipe", shared=True).acquire(LockHolder.current_process())
    with pytest.raises(TemporaryError, match="cannot be created"):
        RemoteLock(str(shared_lock_directory / "pipe")).acquire(LockHolder.current_process())
    (shared_lock_directory / "victim").write_text("precious")
    (shared_lock_directory / "link").symlink_to(shared_lock_directory / "victim")
    with pytest.raises(TemporaryError, match="is a link"):
        RemoteLock(str(shared_lock_directory / "link")).acquire(LockHolder.current_process())
    assert (shared_lock_directory / "victim").read_text() == "precious"


@needs_flock
def test_silent_holder_is_dropped_and_notices(shared_lock_directory, monkeypatch):
    """A laptop that lost its network says no goodbye."""
    monkeypatch.setattr("holdfast.remote.lock.HEARTBEAT_TIMEOUT_SECONDS", 1.0)
    lock = RemoteLock(str(shared_lock_directory / "lock"))
    lock.acquire(LockHolder.current_process())
    lock._process.wait(30)
    with pytest.raises(LockLostError, match="has ended"):
        lock.check()
    FileLock(shared_lock_directory / "lock", shared=True).acquire(LockHolder.current_process())
    lock.release()


@needs_flock
def test_live_holder_is_kept(shared_lock_directory, monkeypatch):
    monkeypatch.setattr("holdfast.remote.lock.HEARTBEAT_TIMEOUT_SECONDS", 3.0)
    monkeypatch.setattr("holdfast.remote.lock.HEARTBEAT_SECONDS", 0.1)
    lock = RemoteLock(str(shared_lock_directory / "lock"))
    lock.acquire(LockHolder.current_process())
    with pytest.raises(subprocess.TimeoutExpired):
        lock._process.wait(5)
    lock.check()
    lock.release()


@needs_flock
def test_login_shell_banner_is_skipped(tmp_path):
    noisy = tmp_path / "ssh"
    noisy.write_text('#!/bin/sh\necho Welcome to far; shift\nexec sh -c "$*"\n')
    noisy.chmod(0o755)
    lock = RemoteLock(str(tmp_path / "lock"), [str(noisy), "far"], label="the lock on far")
    lock.acquire(LockHolder.current_process())
    with pytest.raises(LockedError, match="the lock is the lock on far"):
        RemoteLock(str(tmp_path / "lock"), [str(noisy), "far"], label="the lock on far").acquire(
            LockHolder.current_process()
        )
    lock.release()


def test_symlink_swapped_in_during_acquire_is_rejected(tmp_path, monkeypatch):
    path, programs = tmp_path / "lock", tmp_path / "bin"
    programs.mkdir()
    swapping = programs / "flock"
    swapping.write_text(
        f'#!/bin/sh\nmv {path} {path}.old && ln -s {path}.old {path}\nexec {shutil.which("flock")} "$@"\n'
    )
    swapping.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with pytest.raises(TemporaryError, match="was replaced"):
        RemoteLock(str(path)).acquire(LockHolder.current_process())
    assert (tmp_path / "lock.old").read_bytes() == b""


@needs_flock
@pytest.mark.parametrize("missing", ["flock", "stat", "timeout"])
def test_missing_program_on_the_host_is_named(tmp_path, monkeypatch, missing):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in {"sh", "flock", "stat", "timeout"} - {missing}:
        (programs / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(ToolNotFoundError, match=f"cannot be taken: {missing} is not installed") as raised:
        RemoteLock(str(tmp_path / "lock")).acquire(LockHolder.current_process())
    assert raised.value.exit_code == 3


def test_pipe_or_symlink_as_lock_file_has_no_holder(tmp_path):
    pipe, link, large = tmp_path / "pipe", tmp_path / "link", tmp_path / "large"
    os.mkfifo(pipe)
    other = tmp_path / "other"
    other.write_bytes(msgspec.json.encode(LockHolder.current_process()))
    link.symlink_to(other)
    large.write_bytes(msgspec.json.encode(LockHolder.current_process()) + b" " * 100_000 + b"}")
    assert FileLock(other).holder() == msgspec.json.decode(other.read_bytes(), type=LockHolder)
    assert FileLock(pipe).holder() is None
    assert FileLock(link).holder() is None
    assert FileLock(large).holder() == msgspec.json.decode(large.read_bytes()[:4096], type=LockHolder)


def test_zombie_and_reused_pid_are_not_alive():
    with subprocess.Popen(["sleep", "60"]) as child:
        holder = LockHolder(child.pid, os.uname().nodename, start_ticks=process_start_ticks(child.pid))
        assert holder.is_alive()
        assert not msgspec.structs.replace(holder, start_ticks=1).is_alive()
        assert msgspec.structs.replace(holder, start_ticks=0).is_alive(), "unknown start time"
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_start_ticks(child.pid) is None
        assert not holder.is_alive()
    assert not holder.is_alive()


def test_age_of_holder_without_boot_time_is_by_wall_clock():
    """As in the lock file of an older process."""
    holder = msgspec.structs.replace(LockHolder.current_process(), boot_seconds=0.0)
    assert holder.age_seconds() < 60
