"""A lock that is lost during an effect: the effect stops, and the command restarts.

The locks are real, and so are their ended sessions; the engine is a fake.
"""

import shutil
import threading
import time
from types import SimpleNamespace

import pytest
from tests.support.stubs import stub

from holdfast.errors import ConnectionLostError, LockLostError
from holdfast.events import EventBus
from holdfast.gateway import commands, reconnect
from holdfast.gateway.hosts import RemoteHost
from holdfast.gateway.image_push import PushImages, push
from holdfast.gateway.node import EnsureImage, image
from holdfast.gateway.settings import Settings
from holdfast.gateway.upgrade import TakeSnapshot, upgrade_steps
from holdfast.remote import RemoteLock, parse_target
from holdfast.remote.container_engine import SshContainerEngine
from holdfast.workflow import LockHolder, Step

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock of util-linux")

CHUNKS = 4


def cut(lock):
    child = lock._process
    child.kill()
    child.wait()


class FakeSshHost:
    """An ssh host whose connection can be alive, dead, and opened again."""

    def __init__(self, folder):
        self.control_master = SimpleNamespace(is_process_alive=lambda: self.alive, command_prefix=[])
        self.target, self.folder = parse_target("me@far"), folder
        self.alive, self.connections = True, 0

    def facts(self):
        return SimpleNamespace(lock_directory=str(self.folder))

    def forward_engine_socket(self):
        self.connections += 1
        self.alive = True


@pytest.fixture
def remote_host(tmp_path, monkeypatch):
    """A remote host with a connected engine."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    host = RemoteHost("x", parse_target("me@far"))
    host.__dict__["_host"] = FakeSshHost(tmp_path)
    engine = SshContainerEngine(host._host, timeout=1, before_call=host._check_lock_held)
    engine.__dict__["_docker_client"] = "the engine's client"
    host.__dict__["_engine"] = engine
    return host


@pytest.fixture
def held_lock(remote_host):
    lock = remote_host.lock("x")
    lock.acquire(LockHolder.current_process("up", "this-run"))
    yield lock
    lock.release()


def test_call_under_lock_is_made(remote_host, held_lock):
    assert remote_host.engine().client == "the engine's client"
    held_lock.check()


def test_no_call_after_lock_is_lost(remote_host, held_lock):
    cut(held_lock)
    with pytest.raises(LockLostError):
        _ = remote_host.engine().client


def test_no_reconnect_under_lost_lock(remote_host, held_lock):
    """The remote session may outlive its connection for a moment."""
    remote_host._host.alive = False
    held_lock.check()
    with pytest.raises(LockLostError, match="me@far: lost the connection"):
        _ = remote_host.engine().client
    assert remote_host._host.connections == 0


def test_reconnect_without_lock(remote_host, held_lock):
    held_lock.release()
    remote_host._host.alive = False
    assert remote_host.engine().client == "the engine's client"
    assert remote_host._host.connections == 1


class FakeRemoteHost:
    """A remote host that loses its first lock during a transfer."""

    remote = "far"
    tunnel = None

    def __init__(self, folder):
        self.path, self.locks, self.sent = folder / "far.lock", [], []

    def lock(self, _name):
        self.locks.append(RemoteLock(str(self.path)))
        return self.locks[-1]

    def send(self, progress):
        """Transfer in chunks; the first transfer loses its lock after the second chunk."""
        for number in range(CHUNKS):
            self.sent.append(number)
            if len(self.locks) == 1 and number == 1:
                cut(self.locks[0])
            progress(f"chunk {number}", None)

    def transfer_image(self, _reference, _check, progress):
        self.send(progress)
        return True


@pytest.fixture
def gateway(tmp_path):
    return SimpleNamespace(
        parameters=dict,
        name="dev",
        object_name="holdfast-dev",
        stop=threading.Event(),
        host=FakeRemoteHost(tmp_path),
        files=SimpleNamespace(state=tmp_path / "state" / "runs.db"),
        settings=Settings(),
        spec=SimpleNamespace(image="some/node:1"),
        engine=SimpleNamespace(architecture="amd64"),
        container=lambda: None,
        parked_container=lambda: None,
        replaces_container=False,
    )


def run(gateway, *steps):
    for step in steps:
        step.needs = ()
    return reconnect.run_with_reconnect(
        lambda: gateway, lambda gateway, bus: commands._run_workflow("up", gateway, [*steps], bus), EventBus()
    )


def test_image_transfer_stops_and_restarts_under_new_lock(gateway, monkeypatch):
    stub(monkeypatch, image, "find_image", lambda *_: None)
    assert run(gateway, EnsureImage(gateway)).changed == ("ensure-image",)
    assert gateway.host.sent == [0, 1, 0, 1, 2, 3]


def test_pull_wait_ends_with_lost_lock(gateway, monkeypatch):
    stub(monkeypatch, image, "find_image", lambda *_: None)
    stub(monkeypatch, gateway.host, "transfer_image", lambda *_: False)
    stub(monkeypatch, image, "pull_image", lambda *_, progress, login: gateway.host.send(progress))
    assert run(gateway, EnsureImage(gateway)).changed == ("ensure-image",)
    assert gateway.host.sent == [0, 1, 0, 1, 2, 3]


def test_push_ends_with_lost_lock(gateway, monkeypatch):
    def push_images(_gateway, _references, *, progress, stop):
        assert not stop.is_set()
        gateway.host.send(progress)
        return []

    monkeypatch.setattr(push, "push_images", push_images)
    assert run(gateway, PushImages(gateway, ())).changed == ("push-images",)
    assert gateway.host.sent == [0, 1, 0, 1, 2, 3]


def test_datastore_copy_requires_lock(gateway, monkeypatch):
    """The lock is lost while the step inspects the old container."""
    copied = []

    def inspect():
        if len(gateway.host.locks) == 1 and gateway.host.locks[0].is_held:
            cut(gateway.host.locks[0])
        return SimpleNamespace(is_running=False, image_id="i", started_at="")

    monkeypatch.setattr(TakeSnapshot, "probe", Step.probe)
    monkeypatch.setattr(TakeSnapshot, "repeat", "safe")
    monkeypatch.setattr(gateway, "container", inspect)
    stub(monkeypatch, upgrade_steps, "new_record", lambda *_: SimpleNamespace(id="one"))
    stub(
        monkeypatch,
        upgrade_steps.datastore,
        "take_snapshot",
        lambda *_: copied.append(len(gateway.host.locks)) or 1.0,
    )
    run(gateway, TakeSnapshot(gateway))
    assert len(copied) == 1
    assert copied[0] > 1, "it was copied under the lost lock"


def test_probe_forbidden_by_lost_lock_is_not_retried(gateway):
    class ProbeStep(Step):
        name, probes = "probe", 0

        def probe(self, _ctx):
            self.probes += 1
            cut(gateway.host.locks[-1])
            raise LockLostError("the session has ended")

        def run(self, _ctx):
            pytest.fail("the step ran without the lock")

    step, began = ProbeStep(), time.monotonic()
    with pytest.raises(ConnectionLostError):
        commands._run_workflow("up", gateway, [step], EventBus())
    assert step.probes <= 2
    assert time.monotonic() - began < gateway.settings.timeouts.look
