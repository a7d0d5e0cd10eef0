"""A command restarts after a lost connection: with real locks, whose sessions are ended."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import threading
from types import SimpleNamespace

import pytest

from holdfast.errors import (
    ConnectionLostError,
    ContainerEngineError,
    HostUnreachableError,
    ImageNotFoundError,
    LockedError,
    LockLostError,
    OperationCancelledError,
    TemporaryError,
)
from holdfast.events import EventBus, RetryScheduled
from holdfast.gateway import commands, reconnect
from holdfast.gateway.settings import Settings, TimeoutSettings
from holdfast.gateway.upgrade import state_machine
from holdfast.remote import RemoteLock
from holdfast.retry import testing_mode
from holdfast.workflow import FileLock, LockHolder, Step

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")

ATTEMPTS = Settings().attempts.engine_call


class FakeRemoteHost:
    """A remote host whose lock sessions can be cut."""

    remote = "far"
    tunnel = None

    def __init__(self, folder):
        self.path = folder / "far.lock"
        self.locks = []

    def lock(self, _name):
        self.locks.append(RemoteLock(str(self.path)))
        return self.locks[-1]

    def cut(self):
        child = self.locks[-1]._process
        child.kill()
        child.wait()


class FakeLocalHost(FakeRemoteHost):
    remote = ""

    def lock(self, _name):
        return FileLock(self.path)


class Command:
    """A command of two steps; each attempt of the second one runs the next action."""

    def __init__(self, folder, host, *actions):
        self.folder, self.host, self.actions = folder, host, list(actions)
        self.effects, self.events, self.more_steps = [], [], []
        self.settings = Settings()

    def gateway(self):
        files = SimpleNamespace(state=self.folder / "state" / "runs.db")
        return SimpleNamespace(
            name="dev",
            host=self.host,
            files=files,
            settings=self.settings,
            stop=threading.Event(),
            parameters=dict,
        )

    def do(self, gateway, bus):
        steps = [
            Step("first", run=lambda _ctx: self.effects.append("first"), repeat="safe"),
            Step("second", run=self._second, needs=["first"], repeat="safe"),
            *self.more_steps,
        ]
        return commands._run_workflow("up", gateway, steps, bus)

    def _second(self, _ctx):
        self.effects.append("second")
        if self.actions:
            self.actions.pop(0)()

    def __call__(self):
        return reconnect.run_with_reconnect(self.gateway, self.do, EventBus(self.events.append))

    def retry_reasons(self):
        return [event.reason for event in self.events if isinstance(event, RetryScheduled)]


@pytest.fixture
def remote_host(tmp_path):
    return FakeRemoteHost(tmp_path)


def raising(error, *actions):
    def act():
        for action in actions:
            action()
        raise error

    return act


def is_free(path):
    lock = FileLock(path)
    lock.acquire(LockHolder.current_process())
    lock.release()
    return True


def test_cut_command_continues_from_checkpoints(tmp_path, remote_host):
    command = Command(
        tmp_path, remote_host, raising(ContainerEngineError("the connection was cut"), remote_host.cut)
    )
    ended = command()
    assert command.effects == ["first", "second", "second"]
    assert ended.changed == ("second",)
    assert command.retry_reasons() == ["lost the connection to far; reconnecting to continue the command"]
    assert is_free(remote_host.path)


@pytest.mark.parametrize("error", [LockLostError("lost"), HostUnreachableError("away"), TimeoutError("no")])
def test_every_form_of_cut_is_recognized(tmp_path, remote_host, error):
    command = Command(tmp_path, remote_host, raising(error, remote_host.cut))
    assert command().changed == ("second",)


def test_lock_released_after_silence_is_reacquired(tmp_path, remote_host):
    """As after a sleep of the laptop: the remote session has ended in order."""

    def fall_silent():
        child = remote_host.locks[-1]._process
        child.stdin.close()
        assert child.wait(10) == 0
        child.stdin = None

    command = Command(tmp_path, remote_host, fall_silent)
    command.more_steps = [Step("third", run=lambda _ctx: None, needs=["second"], repeat="safe")]
    assert command().changed == ("third",)
    assert command.effects == ["first", "second"]
    assert len(command.retry_reasons()) == 1


def test_repeated_cuts_end_after_configured_attempts(tmp_path, remote_host):
    command = Command(
        tmp_path, remote_host, *[raising(ContainerEngineError("no answer"), remote_host.cut)] * 9
    )
    with pytest.raises(ConnectionLostError, match="lost the connection to far: no answer") as caught:
        command()
    assert command.effects == ["first", *["second"] * ATTEMPTS]
    assert len(command.retry_reasons()) == ATTEMPTS - 1
    assert caught.value.exit_code == 1
    assert isinstance(caught.value.cause, ContainerEngineError)


def test_lock_taken_by_other_user_is_respected(tmp_path, remote_host):
    other = FileLock(remote_host.path)

    def take():
        other.acquire(LockHolder.current_process("up", "run-of-another"))

    command = Command(tmp_path, remote_host, raising(ContainerEngineError("cut"), remote_host.cut, take))
    with pytest.raises(LockedError, match="another run is in progress"):
        command()
    assert command.effects == ["first", "second"]
    other.release()


def test_lock_of_cut_session_is_awaited(tmp_path, remote_host):
    """The remote side notices a silent loss late: until then the lock file names our own run."""
    kept, waited = [], threading.Event()

    def keep():
        kept.append(os.open(remote_host.path, os.O_RDWR))
        fcntl.flock(kept[0], fcntl.LOCK_EX | fcntl.LOCK_NB)

    command = Command(tmp_path, remote_host, raising(ContainerEngineError("cut"), remote_host.cut, keep))

    def release_on_retry(event):
        command.events.append(event)
        if isinstance(event, RetryScheduled) and "still holds the lock" in event.reason and kept:
            os.close(kept.pop())
            waited.set()

    assert reconnect.run_with_reconnect(command.gateway, command.do, EventBus(release_on_retry)).changed == (
        "second",
    )
    assert waited.is_set()


def test_lock_never_released_times_out(tmp_path, remote_host):
    with remote_host.path.open("w") as kept:

        def keep():
            # The file still names the lost session as the holder.
            fcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)

        command = Command(tmp_path, remote_host, raising(ContainerEngineError("cut"), remote_host.cut, keep))
        command.settings = Settings(timeouts=TimeoutSettings(ssh=1.0))
        with testing_mode(), pytest.raises(TemporaryError, match="still holds the lock"):
            command()
    assert command.effects == ["first", "second"]


def test_ctrl_c_after_cut_ends_command(tmp_path, remote_host):
    def press():
        os.kill(os.getpid(), signal.SIGINT)

    command = Command(
        tmp_path, remote_host, raising(OperationCancelledError("stopped"), press, remote_host.cut)
    )
    with pytest.raises(OperationCancelledError):
        command()
    assert command.retry_reasons() == []
    assert command.effects == ["first", "second"]


def test_ctrl_c_during_reconnect_ends_command(tmp_path, remote_host, monkeypatch):
    def interrupted(*_args):
        raise KeyboardInterrupt

    command = Command(tmp_path, remote_host, raising(ContainerEngineError("cut"), remote_host.cut))
    monkeypatch.setattr(reconnect, "_check_lock_available", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command()
    assert command.effects == ["first", "second"]


def test_rejection_is_not_a_cut(tmp_path, remote_host):
    command = Command(tmp_path, remote_host, raising(ImageNotFoundError("no such image"), remote_host.cut))
    with pytest.raises(ImageNotFoundError):
        command()
    assert command.effects == ["first", "second"]


def test_error_without_cut_is_unchanged(tmp_path, remote_host):
    for error in (ContainerEngineError("busy"), HostUnreachableError("the tunnel's end is away")):
        command = Command(tmp_path, remote_host, raising(error))
        with pytest.raises(type(error), match=error.message) as caught:
            command()
        assert caught.value.cause is None
        assert not command.retry_reasons()


def test_host_lost_before_lock_counts_as_attempt(tmp_path, remote_host):
    command = Command(tmp_path, remote_host, raising(ContainerEngineError("cut"), remote_host.cut))
    plain, count = command.do, []

    def do(gateway, bus):
        count.append(1)
        if len(count) == 2:
            raise HostUnreachableError("cannot be reached by ssh")
        return plain(gateway, bus)

    command.do = do
    assert command().changed == ("second",)
    assert len(count) == 3


def test_never_reached_host_is_not_retried(tmp_path, remote_host):
    command, count = Command(tmp_path, remote_host), []

    def do(_gateway, _bus):
        count.append(1)
        raise HostUnreachableError("cannot be reached by ssh")

    command.do = do
    with pytest.raises(HostUnreachableError):
        command()
    assert len(count) == 1


def test_cut_rollback_continues(tmp_path, remote_host):
    """`upgrade` wraps the lost connection in the error of an unfinished rollback."""
    command = Command(tmp_path, remote_host, raising(ContainerEngineError("cut"), remote_host.cut))
    plain = command.do

    def do(gateway, bus):
        try:
            return plain(gateway, bus)
        except ConnectionLostError as error:
            raise TemporaryError("going back is not finished", cause=error) from error

    command.do = do
    assert command().changed == ("second",)


def test_cut_during_upgrade_health_gate_is_not_a_version_failure(tmp_path, remote_host):
    command = Command(
        tmp_path, remote_host, raising(ContainerEngineError("its node exits repeatedly"), remote_host.cut)
    )
    with pytest.raises(ConnectionLostError) as caught:
        command.do(command.gateway(), EventBus())
    assert not any(
        state_machine.is_health_failure(caught.value, step) for step in state_machine._HEALTH_GATE_STEPS
    )
    assert isinstance(caught.value, state_machine._UNREACHABLE_ERRORS)


def test_lost_local_lock_ends_command(tmp_path):
    host = FakeLocalHost(tmp_path)
    command = Command(tmp_path, host, raising(LockLostError("replaced"), host.path.unlink))
    with pytest.raises(LockLostError):
        command()
    assert command.effects == ["first", "second"]
    assert command.retry_reasons() == []
