"""Only the run that created the volume may assume that it is empty; any other checks the data on it.

An interrupted rollback without containers is finished before a node opens the data.
"""

import msgspec
import pytest
from tests.support.stubs import stub
from tests.support.upgrade_record import UPGRADE_RECORD

from holdfast.containers import VolumeView
from holdfast.errors import ImageIncompatibleError
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.node import CheckDataVersion, EnsureVolume, FinishInterruptedRollback, volume
from holdfast.gateway.settings import resolve_settings
from holdfast.workflow import MemoryStore, Step, Workflow


@pytest.fixture
def engine(monkeypatch):
    """The volumes of an engine by name, and the reads of the data on them."""
    volumes, reads = {}, []

    def create(_engine, name, *, gateway):
        volumes[name] = VolumeView(name=name, labels={"dev.holdfast.gateway": gateway})

    monkeypatch.setattr("holdfast.gateway.context.find_volume", lambda _engine, name: volumes.get(name))
    monkeypatch.setattr(volume, "create_volume", create)
    monkeypatch.setattr(volume.datastore, "read_orphaned_record", lambda _gateway: reads.append("record"))
    monkeypatch.setattr(volume.datastore, "read_data_version", lambda _gateway: "v1.34.4")
    monkeypatch.setattr(volume, "target_kubernetes_version", lambda _gateway: "v1.34.4")
    monkeypatch.setattr(GatewayContext, "engine", None)
    monkeypatch.setattr(GatewayContext, "container", lambda _: None)
    monkeypatch.setattr(GatewayContext, "parked_container", lambda _: None)
    return reads


def run_steps(store, *, killed_after_volume=False):
    ports = {"port": 16443, "gateway_port": 16444, "image": "node:1"}
    gateway = GatewayContext("dev", resolve_settings(ports, environ={}))
    ensure, check = EnsureVolume(gateway), CheckDataVersion(gateway)
    ensure.needs, check.needs = (), ("ensure-volume",)
    finish = FinishInterruptedRollback(gateway)
    if killed_after_volume:
        check = Step("check-data", run=lambda _ctx: None, needs=["ensure-volume"], repeat="always")
    return Workflow("up", [ensure, check, finish]).run(store=store)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


def test_new_volume_is_not_read(engine):
    run_steps(MemoryStore())
    assert engine == []


def test_volume_of_earlier_run_is_read(engine):
    store = MemoryStore()
    run_steps(store)
    run_steps(store)
    assert engine == ["record"]


def test_rerun_after_kill_between_volume_and_check_reads_the_volume(engine):
    store = MemoryStore()
    run_steps(store, killed_after_volume=True)
    run_steps(store)
    assert engine == ["record"]


@pytest.fixture
def rollback(engine, monkeypatch):
    """The records that the next runs find on the volume, and what they do with them."""
    records, calls, store = [], [], MemoryStore()

    def restore(*_args, image):
        state = store.load("up")["finish-interrupted-rollback"].state
        calls.append(("restore", image, state))

    def finish(_gateway, record, image):
        calls.append((record.phase, image))

    monkeypatch.setattr(volume.datastore, "read_orphaned_record", lambda _gateway: records.pop(0))
    stub(monkeypatch, volume.datastore, "restore_snapshot", restore)
    stub(monkeypatch, volume.datastore, "finish_rollback", finish)
    run_steps(store)  # creates the volume
    return records, calls, store


def test_interrupted_rollback_is_a_recorded_effect(rollback):
    records, calls, store = rollback
    back = msgspec.structs.replace(UPGRADE_RECORD, phase="back")
    records += [back, msgspec.structs.replace(back, phase="rolled-back")]
    assert run_steps(store).changed == ("finish-interrupted-rollback",)
    assert calls == [("restore", "node:1", "intent"), ("rolled-back", "node:1")]
    assert run_steps(store).changed == ()
    assert len(calls) == 2


def test_rollback_to_an_incompatible_version_is_not_finished(rollback, monkeypatch):
    records, calls, store = rollback
    records.append(msgspec.structs.replace(UPGRADE_RECORD, phase="back"))
    monkeypatch.setattr(volume, "target_kubernetes_version", lambda _gateway: "v1.35.0")
    with pytest.raises(ImageIncompatibleError):
        run_steps(store)
    assert calls == []
