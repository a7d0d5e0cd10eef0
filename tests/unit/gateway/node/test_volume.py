"""Only the run that created the volume may assume that it is empty; any other checks the data on it."""

import pytest

from holdfast.containers import VolumeView
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.node import CheckDataVersion, EnsureVolume, volume
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
    if killed_after_volume:
        check = Step("check-data", run=lambda _ctx: None, needs=["ensure-volume"], repeat="always")
    return Workflow("up", [ensure, check]).run(store=store)


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
