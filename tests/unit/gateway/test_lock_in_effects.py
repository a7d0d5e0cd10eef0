"""A lock that is lost in the middle of an effect: nothing of it goes on, and the command begins anew.

The locks are real, held through sessions that are really ended; the engine behind them is not.
"""

import shutil
import time
from types import SimpleNamespace

import pytest

from holdfast.containers.ssh import parse_target
from holdfast.containers.ssh_engine import SshEngine
from holdfast.engine import CommandLock, Holder, Step
from holdfast.errors import ConnectionCutError, LockLostError
from holdfast.events import Bus
from holdfast.gateway import commands, unbroken
from holdfast.gateway.place import There
from holdfast.gateway.settings import Settings
from holdfast.gateway.steps import image, push, snapshot
from holdfast.gateway.steps.image import EnsureImage
from holdfast.gateway.steps.push import PushImages
from holdfast.gateway.steps.snapshot import TakeSnapshot

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")

CHUNKS = 4


def cut(lock):
    child = lock._child
    child.kill()
    child.wait()


class Host:
    """The other host, as far as its connection can be alive, dead, and made again."""

    def __init__(self, folder):
        self.master = SimpleNamespace(is_alive=lambda: self.alive, prefix=[])
        self.target, self.folder = parse_target("me@far"), folder
        self.alive, self.reached = True, 0

    def facts(self):
        return SimpleNamespace(lock_folder=str(self.folder))

    def reach(self):
        self.reached += 1
        self.alive = True


@pytest.fixture
def far(tmp_path, monkeypatch):
    """A place over there whose engine answers whatever it is asked."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    place = There("x", parse_target("me@far"))
    place.__dict__["_host"] = Host(tmp_path)
    engine = SshEngine(place._host, timeout=1, guard=place._refuse_without_lock)
    engine.__dict__["_sdk"] = "the engine's client"
    place.__dict__["_engine"] = engine
    return place


@pytest.fixture
def held(far):
    lock = far.lock("x")
    lock.acquire(Holder.me("up", "this-run"))
    yield lock
    lock.release()


def test_a_call_under_the_lock_is_made(far, held):
    assert far.engine().client == "the engine's client"
    held.check()


def test_no_call_is_made_once_the_lock_is_lost(far, held):
    cut(held)
    with pytest.raises(LockLostError):
        _ = far.engine().client


def test_no_connection_is_made_again_under_a_lock_that_went_with_the_old_one(far, held):
    """The session over there may live a moment longer than the connection that it came through."""
    far._host.alive = False
    held.check()
    with pytest.raises(LockLostError, match="the connection to me@far was cut"):
        _ = far.engine().client
    assert far._host.reached == 0


def test_without_a_lock_a_connection_that_is_gone_is_made_again(far, held):
    held.release()
    far._host.alive = False
    assert far.engine().client == "the engine's client"
    assert far._host.reached == 1


class Far:
    """A place whose locks are held through sessions that can be cut; the first of them is, when asked to."""

    remote = "far"
    tunnel = None

    def __init__(self, folder):
        self.path, self.locks, self.sent = folder / "far.lock", [], []

    def lock(self, _name):
        self.locks.append(CommandLock(str(self.path)))
        return self.locks[-1]

    def send(self, progress):
        """A long transfer, whose first one is cut after its second chunk."""
        for number in range(CHUNKS):
            self.sent.append(number)
            if len(self.locks) == 1 and number == 1:
                cut(self.locks[0])
            progress(f"chunk {number}", None)

    def supply_image(self, _reference, _check, progress):
        self.send(progress)
        return True


@pytest.fixture
def work(tmp_path):
    return SimpleNamespace(
        name="dev",
        object="holdfast-dev",
        place=Far(tmp_path),
        files=SimpleNamespace(state=tmp_path / "state" / "runs.db"),
        settings=Settings(),
        spec=SimpleNamespace(image="some/node:1"),
        engine=SimpleNamespace(architecture="amd64"),
        container=lambda: None,
        predecessor=lambda: None,
        replaces=False,
    )


def run(work, *steps):
    for step in steps:
        step.needs = ()
    return unbroken.unbroken(lambda: work, lambda work, bus: commands._run("up", work, [*steps], bus), Bus())


def test_an_image_on_its_way_is_not_sent_on_and_is_sent_anew_under_the_new_lock(work, monkeypatch):
    monkeypatch.setattr(image, "find_image", lambda *_: None)
    assert run(work, EnsureImage(work)).changed == ("ensure-image",)
    assert work.place.sent == [0, 1, 0, 1, 2, 3]


def test_a_pull_is_not_waited_for_without_the_lock(work, monkeypatch):
    monkeypatch.setattr(image, "find_image", lambda *_: None)
    monkeypatch.setattr(work.place, "supply_image", lambda *_: False)
    monkeypatch.setattr(image, "pull_image", lambda *_, progress, login: work.place.send(progress))
    assert run(work, EnsureImage(work)).changed == ("ensure-image",)
    assert work.place.sent == [0, 1, 0, 1, 2, 3]


def test_a_push_is_not_gone_on_with_either(work, monkeypatch):
    def push_images(_work, _references, *, progress, stop):
        assert not stop.is_set()
        work.place.send(progress)
        return []

    monkeypatch.setattr(push, "source_engine", lambda _work: None)
    monkeypatch.setattr(push, "push_images", push_images)
    assert run(work, PushImages(work, ())).changed == ("push-images",)
    assert work.place.sent == [0, 1, 0, 1, 2, 3]


def test_a_datastore_is_not_copied_without_the_lock(work, monkeypatch):
    """The look at the old container was slow, and the lock was lost in it."""
    copied = []

    def look():
        if len(work.place.locks) == 1 and work.place.locks[0].held:
            cut(work.place.locks[0])
        return SimpleNamespace(running=False, image_id="i", started_at="")

    monkeypatch.setattr(TakeSnapshot, "probe", Step.probe)
    monkeypatch.setattr(TakeSnapshot, "repeat", "safe")
    monkeypatch.setattr(work, "container", look)
    monkeypatch.setattr(snapshot, "new_record", lambda *_: SimpleNamespace(id="one"))
    monkeypatch.setattr(
        snapshot.volume, "take_snapshot", lambda *_: copied.append(len(work.place.locks)) or 1.0
    )
    run(work, TakeSnapshot(work))
    assert len(copied) == 1
    assert copied[0] > 1, "it was copied under the lost lock"


def test_a_question_that_a_lost_lock_forbids_is_not_asked_again_and_again(work):
    class Looks(Step):
        name, asked = "looks", 0

        def probe(self, _ctx):
            self.asked += 1
            cut(work.place.locks[-1])
            raise LockLostError("the session has ended")

        def run(self, _ctx):
            pytest.fail("it was done without the lock")

    step, began = Looks(), time.monotonic()
    with pytest.raises(ConnectionCutError):
        commands._run("up", work, [step], Bus())
    assert step.asked <= 2
    assert time.monotonic() - began < work.settings.timeouts.look
