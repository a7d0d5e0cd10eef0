"""A run whose connection is cut goes on by itself: real locks, whose sessions are really ended."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import threading
from types import SimpleNamespace

import pytest

from holdfast.engine import CommandLock, FileLock, Holder, Step
from holdfast.errors import (
    CancelledError,
    ConnectionCutError,
    EngineCallError,
    HostUnreachableError,
    ImageMissingError,
    LockedError,
    LockLostError,
    TemporaryError,
)
from holdfast.events import Bus, RetryScheduled
from holdfast.gateway import commands, unbroken
from holdfast.gateway.settings import Settings, Timeouts
from holdfast.gateway.upgrade import flow
from holdfast.retry import constant

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")

ATTEMPTS = Settings().attempts.engine_call


class Far:
    """A place whose locks are held through sessions that can be cut; each is counted."""

    remote = "far"
    tunnel = None

    def __init__(self, folder):
        self.path = folder / "far.lock"
        self.locks = []

    def lock(self, _name):
        self.locks.append(CommandLock(str(self.path)))
        return self.locks[-1]

    def cut(self):
        child = self.locks[-1]._child
        child.kill()
        child.wait()


class Here(Far):
    remote = ""

    def lock(self, _name):
        return FileLock(self.path)


class Command:
    """A command of two steps; in the second of them something happens, each time another thing."""

    def __init__(self, folder, place, *happens):
        self.folder, self.place, self.happens = folder, place, list(happens)
        self.effects, self.heard, self.more = [], [], []
        self.settings = Settings()

    def work(self):
        files = SimpleNamespace(state=self.folder / "state" / "runs.db")
        return SimpleNamespace(name="dev", place=self.place, files=files, settings=self.settings)

    def do(self, work, bus):
        steps = [
            Step("first", run=lambda _ctx: self.effects.append("first"), repeat="safe"),
            Step("second", run=self._second, needs=["first"], repeat="safe"),
            *self.more,
        ]
        return commands._run("up", work, steps, bus)

    def _second(self, _ctx):
        self.effects.append("second")
        if self.happens:
            self.happens.pop(0)()

    def __call__(self):
        return unbroken.unbroken(self.work, self.do, Bus(self.heard.append))

    def told(self):
        return [event.reason for event in self.heard if isinstance(event, RetryScheduled)]


@pytest.fixture
def far(tmp_path):
    return Far(tmp_path)


def raising(error, *before):
    def act():
        for each in before:
            each()
        raise error

    return act


def is_free(path):
    lock = FileLock(path)
    lock.acquire(Holder.me())
    lock.release()
    return True


def test_a_command_that_was_cut_once_goes_on_from_its_checkpoints(tmp_path, far):
    command = Command(tmp_path, far, raising(EngineCallError("the connection was cut"), far.cut))
    ended = command()
    assert command.effects == ["first", "second", "second"]
    assert ended.changed == ("second",)
    assert command.told() == ["the connection to far was cut; it is made anew, and the command goes on"]
    assert is_free(far.path)


@pytest.mark.parametrize("error", [LockLostError("lost"), HostUnreachableError("away"), TimeoutError("no")])
def test_however_the_cut_shows_itself(tmp_path, far, error):
    command = Command(tmp_path, far, raising(error, far.cut))
    assert command().changed == ("second",)


def test_a_lock_that_was_let_go_after_a_long_silence_is_taken_again(tmp_path, far):
    """As after a sleep of the laptop: the session over there has ended in order, and nobody was cut."""

    def fall_silent():
        child = far.locks[-1]._child
        child.stdin.close()
        assert child.wait(10) == 0
        child.stdin = None

    command = Command(tmp_path, far, fall_silent)
    command.more = [Step("third", run=lambda _ctx: None, needs=["second"], repeat="safe")]
    assert command().changed == ("third",)
    assert command.effects == ["first", "second"]
    assert len(command.told()) == 1


def test_one_that_is_always_cut_ends_after_the_attempts_of_the_settings(tmp_path, far):
    command = Command(tmp_path, far, *[raising(EngineCallError("no answer"), far.cut)] * 9)
    with pytest.raises(ConnectionCutError, match="connection to far was cut: no answer") as caught:
        command()
    assert command.effects == ["first", *["second"] * ATTEMPTS]
    assert len(command.told()) == ATTEMPTS - 1
    assert caught.value.exit_code == 1
    assert isinstance(caught.value.cause, EngineCallError)


def test_somebody_else_who_has_the_lock_by_now_is_left_alone(tmp_path, far):
    other = FileLock(far.path)

    def take():
        other.acquire(Holder.me("up", "run-of-another"))

    command = Command(tmp_path, far, raising(EngineCallError("cut"), far.cut, take))
    with pytest.raises(LockedError, match="another run is at work"):
        command()
    assert command.effects == ["first", "second"]
    other.release()


def test_a_lock_that_the_cut_session_still_holds_is_waited_for(tmp_path, far):
    """The other side notices a silent cut late: until then the file says our own run."""
    kept, waited = [], threading.Event()

    def keep():
        kept.append(os.open(far.path, os.O_RDWR))
        fcntl.flock(kept[0], fcntl.LOCK_EX | fcntl.LOCK_NB)

    command = Command(tmp_path, far, raising(EngineCallError("cut"), far.cut, keep))

    def let_go(event):
        command.heard.append(event)
        if isinstance(event, RetryScheduled) and "has not noticed yet" in event.reason and kept:
            os.close(kept.pop())
            waited.set()

    assert unbroken.unbroken(command.work, command.do, Bus(let_go)).changed == ("second",)
    assert waited.is_set()


def test_one_that_never_lets_go_ends_in_time(tmp_path, far, monkeypatch):
    monkeypatch.setattr(unbroken, "SILENCE", 0.0)
    monkeypatch.setattr(unbroken, "_ANEW", constant(0.1))
    with far.path.open("w") as kept:

        def keep():
            # The words of the session that was cut are still in it, as nobody has emptied it.
            fcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)

        command = Command(tmp_path, far, raising(EngineCallError("cut"), far.cut, keep))
        command.settings = Settings(timeouts=Timeouts(ssh=1.0))
        with pytest.raises(TemporaryError, match="has not noticed yet"):
            command()
    assert command.effects == ["first", "second"]


def test_ctrl_c_ends_it_although_it_was_cut(tmp_path, far):
    def press():
        os.kill(os.getpid(), signal.SIGINT)

    command = Command(tmp_path, far, raising(CancelledError("stopped"), press, far.cut))
    with pytest.raises(CancelledError):
        command()
    assert command.told() == []
    assert command.effects == ["first", "second"]


def test_ctrl_c_while_it_connects_again_ends_it(tmp_path, far, monkeypatch):
    def interrupted(*_args):
        raise KeyboardInterrupt

    command = Command(tmp_path, far, raising(EngineCallError("cut"), far.cut))
    monkeypatch.setattr(unbroken, "_take_anew", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command()
    assert command.effects == ["first", "second"]


def test_a_refusal_is_no_cut(tmp_path, far):
    command = Command(tmp_path, far, raising(ImageMissingError("no such image"), far.cut))
    with pytest.raises(ImageMissingError):
        command()
    assert command.effects == ["first", "second"]


def test_without_a_cut_an_error_stays_what_it_is(tmp_path, far):
    for error in (EngineCallError("busy"), HostUnreachableError("the tunnel's end is away")):
        command = Command(tmp_path, far, raising(error))
        with pytest.raises(type(error), match=error.message) as caught:
            command()
        assert caught.value.cause is None
        assert not command.told()


def test_a_host_that_is_away_again_before_the_lock_is_held_counts_too(tmp_path, far):
    command = Command(tmp_path, far, raising(EngineCallError("cut"), far.cut))
    plain, count = command.do, []

    def do(work, bus):
        count.append(1)
        if len(count) == 2:
            raise HostUnreachableError("cannot be reached by ssh")
        return plain(work, bus)

    command.do = do
    assert command().changed == ("second",)
    assert len(count) == 3


def test_a_host_that_was_never_reached_is_not_begun_again(tmp_path, far):
    command, count = Command(tmp_path, far), []

    def do(_work, _bus):
        count.append(1)
        raise HostUnreachableError("cannot be reached by ssh")

    command.do = do
    with pytest.raises(HostUnreachableError):
        command()
    assert len(count) == 1


def test_a_way_back_that_was_cut_goes_on_too(tmp_path, far):
    """`upgrade` tells in its own words that going back is not finished: the cut is underneath."""
    command = Command(tmp_path, far, raising(EngineCallError("cut"), far.cut))
    plain = command.do

    def do(work, bus):
        try:
            return plain(work, bus)
        except ConnectionCutError as error:
            raise TemporaryError("going back is not finished", cause=error) from error

    command.do = do
    assert command().changed == ("second",)


def test_a_cut_in_the_gate_of_an_upgrade_says_nothing_about_the_version(tmp_path, far):
    command = Command(tmp_path, far, raising(EngineCallError("its node keeps ending"), far.cut))
    with pytest.raises(ConnectionCutError) as caught:
        command.do(command.work(), Bus())
    assert not any(flow.is_unwell(caught.value, step) for step in flow._GATE)
    assert isinstance(caught.value, flow._OUT_OF_REACH)


def test_on_this_machine_a_lost_lock_ends_the_command(tmp_path):
    here = Here(tmp_path)
    command = Command(tmp_path, here, raising(LockLostError("replaced"), here.path.unlink))
    with pytest.raises(LockLostError):
        command()
    assert command.effects == ["first", "second"]
    assert command.told() == []
