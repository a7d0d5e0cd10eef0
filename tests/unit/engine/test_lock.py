"""The lock: one holder, known by name, freed by the kernel, lost when its file is replaced."""

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

from holdfast.engine import CommandLock, FileLock, Holder
from holdfast.errors import LockedError, LockLostError, StoreError, TemporaryError

HOLD = """
import sys, signal
from holdfast.engine import FileLock, Holder
FileLock(sys.argv[1]).acquire(Holder.me("up", "run-1"))
print("held", flush=True)
signal.pause()
"""


@pytest.fixture(params=["file", "command"])
def make(request, tmp_path):
    if request.param == "command" and shutil.which("flock") is None:
        pytest.skip("needs flock of util-linux")
    path = tmp_path / "lock"
    return (lambda: FileLock(path)) if request.param == "file" else (lambda: CommandLock(str(path)))


def test_a_second_one_is_refused_with_the_holder(make):
    first, second = make(), make()
    first.acquire(Holder.me("up", "run-1"))
    with pytest.raises(
        LockedError, match=rf"process {os.getpid()} on .* \(up\), for \d+ s, since 20"
    ) as caught:
        second.acquire(Holder.me())
    assert caught.value.exit_code == 4
    assert second.holder().run == "run-1"
    first.check()
    first.release()
    second.acquire(Holder.me())
    second.check()
    second.release()


def test_not_held_is_lost(make):
    lock = make()
    with pytest.raises(LockLostError):
        lock.check()
    lock.release()


def test_taken_twice_by_one_process_is_refused(make):
    lock = make()
    lock.acquire(Holder.me())
    with pytest.raises(LockedError, match="already held by this process"):
        lock.acquire(Holder.me())
    lock.release()


def test_killing_the_holder_frees_it(make, tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "lock"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=f"process {child.pid} "):
            make().acquire(Holder.me())
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    lock = make()
    lock.acquire(Holder.me())
    lock.release()


def test_a_fork_does_not_keep_it(tmp_path):
    """A child that outlives its parent must not hold the parent's lock."""
    lock = FileLock(tmp_path / "lock")
    lock.acquire(Holder.me())
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
    other.acquire(Holder.me())
    other.release()
    os.close(writer)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_taken_away_is_noticed(tmp_path, how):
    lock = FileLock(tmp_path / "lock")
    lock.acquire(Holder.me())
    lock.path.unlink()
    if how == "replaced":
        FileLock(lock.path).acquire(Holder.me())
    with pytest.raises(LockLostError, match="removed or replaced"):
        lock.check()
    lock.release()


def test_a_dead_session_is_noticed(tmp_path):
    lock = CommandLock(str(tmp_path / "lock"))
    lock.acquire(Holder.me())
    lock._child.kill()
    lock._child.wait()
    with pytest.raises(LockLostError, match="has ended"):
        lock.check()
    lock.release()


def test_a_command_that_cannot_lock_says_so(tmp_path):
    with pytest.raises(TemporaryError, match="cannot be taken"):
        CommandLock(str(tmp_path / "none" / "lock")).acquire(Holder.me())
    with pytest.raises(TemporaryError, match="cannot be taken"):
        CommandLock("x", ["/nonexistent/ssh"]).acquire(Holder.me())


def test_a_prefix_gets_the_script_as_one_word(tmp_path):
    """As ssh does: everything after the host is joined and given to a shell over there."""
    fake = tmp_path / "ssh"
    fake.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    fake.chmod(0o755)
    lock = CommandLock(str(tmp_path / "the lock"), [str(fake), "me@host"])
    lock.acquire(Holder.me('it\'s "up" $HOME'))
    assert FileLock(tmp_path / "the lock").holder().command == 'it\'s "up" $HOME'
    with pytest.raises(LockedError, match="me@host"):
        CommandLock(str(tmp_path / "the lock"), [str(fake), "me@host"]).acquire(Holder.me())
    lock.release()


def test_a_lock_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be opened"):
        FileLock(tmp_path / "file" / "lock").acquire(Holder.me())


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError):
        FileLock(tmp_path / "lock").acquire(Holder.me())
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_holder_that_has_only_just_begun(tmp_path):
    first = FileLock(tmp_path / "lock")
    first.acquire(Holder.me())
    os.truncate(tmp_path / "lock", 0)
    with pytest.raises(LockedError, match="only just begun"):
        FileLock(tmp_path / "lock").acquire(Holder.me())
    first.release()


def test_age_does_not_follow_the_clock(monkeypatch):
    holder = Holder.me()
    monkeypatch.setattr(time, "time", lambda: holder.since - 86400)
    assert 0 <= holder.age() < 60
    elsewhere = msgspec.structs.replace(holder, boot="another boot")
    assert elsewhere.age() == 0


GROUP = """
import os, signal, sys
from holdfast.engine import CommandLock, Holder
signal.signal(signal.SIGINT, lambda *_: print("told", flush=True))
lock = CommandLock(sys.argv[1])
lock.acquire(Holder.me())
print("held", flush=True)
sys.stdin.readline()
lock.check()
lock.release()
"""


@pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")
def test_ctrl_c_in_a_terminal_does_not_free_it(tmp_path):
    """It goes to the whole process group, and an effect may still be in the air."""
    child = subprocess.Popen(
        [sys.executable, "-c", GROUP, tmp_path / "lock"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    assert child.stdout.readline() == "held\n"
    os.killpg(child.pid, signal.SIGINT)
    assert child.stdout.readline() == "told\n"
    time.sleep(0.2)  # for a lock that would die of it
    with pytest.raises(LockedError):
        FileLock(tmp_path / "lock").acquire(Holder.me())
    _, said = child.communicate("on\n", timeout=30)
    assert child.returncode == 0, said


@pytest.fixture
def meeting(tmp_path_factory):
    """A folder where all users of a host may write, as /run/lock is."""
    folder = tmp_path_factory.getbasetemp() / f"meeting-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


needs_flock = pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")


@needs_flock
def test_both_kinds_meet_at_one_file_that_everybody_may_use(meeting):
    path = meeting / "lock"
    before = os.umask(0o077)
    try:
        for first, second in (
            (FileLock(path, shared=True), CommandLock(str(path))),
            (CommandLock(str(path)), FileLock(path, shared=True)),
        ):
            path.unlink(missing_ok=True)
            first.acquire(Holder.me("up", "run-1"))
            assert path.stat().st_mode & 0o777 == 0o666
            with pytest.raises(LockedError, match=f"process {os.getpid()} "):
                second.acquire(Holder.me())
            assert second.holder() == first.holder()
            first.release()
            second.acquire(Holder.me())
            second.release()
            assert path.read_bytes() == b""
    finally:
        os.umask(before)
    FileLock(meeting / "private").acquire(Holder.me())
    assert (meeting / "private").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_there_is_never_created(meeting, monkeypatch):
    """Kernels refuse that (fs.protected_regular) when the file is another user's."""
    path, flags = meeting / "lock", []
    FileLock(path, shared=True).acquire(Holder.me())
    opened = os.open
    monkeypatch.setattr(os, "open", lambda p, f, *more: (flags.append(f), opened(p, f, *more))[1])
    with pytest.raises(LockedError):
        FileLock(path, shared=True).acquire(Holder.me())
    assert flags
    assert not any(flag & os.O_CREAT for flag in flags)


AS_ANOTHER = """
import os, sys
from holdfast.engine import CommandLock, FileLock, Holder
os.setgid(65534); os.setuid(65534)
lock = FileLock(sys.argv[2], shared=True) if sys.argv[1] == "file" else CommandLock(sys.argv[2])
try:
    lock.acquire(Holder.me("as nobody"))
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
def test_two_users_of_one_host(kind):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        path = f"{folder}/lock"

        def another():
            return subprocess.run(
                [sys.executable, "-c", AS_ANOTHER, kind, path], capture_output=True, text=True, check=True
            ).stdout

        mine = FileLock(path, shared=True)
        mine.acquire(Holder.me("up"))
        assert f"process {os.getpid()} on" in another()
        mine.release()
        assert another() == "taken\n"
        mine.acquire(Holder.me("up"))
        mine.release()


@needs_flock
def test_what_is_no_file_is_refused_by_both(meeting):
    os.mkfifo(meeting / "pipe")
    with pytest.raises(StoreError, match="no regular file"):
        FileLock(meeting / "pipe", shared=True).acquire(Holder.me())
    with pytest.raises(TemporaryError, match="cannot be made"):
        CommandLock(str(meeting / "pipe")).acquire(Holder.me())
    (meeting / "victim").write_text("precious")
    (meeting / "link").symlink_to(meeting / "victim")
    with pytest.raises(TemporaryError, match="is a link"):
        CommandLock(str(meeting / "link")).acquire(Holder.me())
    assert (meeting / "victim").read_text() == "precious"


@needs_flock
def test_a_holder_that_fell_silent_is_given_up_and_notices(meeting, monkeypatch):
    """A laptop that lost its network says no goodbye."""
    monkeypatch.setattr("holdfast.engine.commandlock.SILENCE", 1.0)
    lock = CommandLock(str(meeting / "lock"))
    lock.acquire(Holder.me())
    lock._child.wait(30)
    with pytest.raises(LockLostError, match="has ended"):
        lock.check()
    FileLock(meeting / "lock", shared=True).acquire(Holder.me())
    lock.release()


@needs_flock
def test_a_living_holder_is_heard(meeting, monkeypatch):
    monkeypatch.setattr("holdfast.engine.commandlock.SILENCE", 3.0)
    monkeypatch.setattr("holdfast.engine.commandlock.BEAT", 0.1)
    lock = CommandLock(str(meeting / "lock"))
    lock.acquire(Holder.me())
    with pytest.raises(subprocess.TimeoutExpired):
        lock._child.wait(5)
    lock.check()
    lock.release()


@needs_flock
def test_the_greeting_of_a_login_shell_is_passed_over(tmp_path):
    noisy = tmp_path / "ssh"
    noisy.write_text('#!/bin/sh\necho Welcome to far; shift\nexec sh -c "$*"\n')
    noisy.chmod(0o755)
    lock = CommandLock(str(tmp_path / "lock"), [str(noisy), "far"], where="the lock on far")
    lock.acquire(Holder.me())
    with pytest.raises(LockedError, match="the lock is the lock on far"):
        CommandLock(str(tmp_path / "lock"), [str(noisy), "far"], where="the lock on far").acquire(Holder.me())
    lock.release()


def test_a_link_swapped_in_while_it_is_taken_does_not_count(tmp_path, monkeypatch):
    path, programs = tmp_path / "lock", tmp_path / "bin"
    programs.mkdir()
    swapping = programs / "flock"
    swapping.write_text(
        f'#!/bin/sh\nmv {path} {path}.old && ln -s {path}.old {path}\nexec {shutil.which("flock")} "$@"\n'
    )
    swapping.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with pytest.raises(TemporaryError, match="was replaced"):
        CommandLock(str(path)).acquire(Holder.me())
    assert (tmp_path / "lock.old").read_bytes() == b""


def test_a_pipe_or_a_link_in_place_of_the_lock_has_no_holder(tmp_path):
    pipe, link, large = tmp_path / "pipe", tmp_path / "link", tmp_path / "large"
    os.mkfifo(pipe)
    other = tmp_path / "other"
    other.write_bytes(msgspec.json.encode(Holder.me()))
    link.symlink_to(other)
    large.write_bytes(msgspec.json.encode(Holder.me()) + b" " * 100_000 + b"}")
    assert FileLock(other).holder() == msgspec.json.decode(other.read_bytes(), type=Holder)
    assert FileLock(pipe).holder() is None
    assert FileLock(link).holder() is None
    assert FileLock(large).holder() == msgspec.json.decode(large.read_bytes()[:4096], type=Holder)
