"""A repeated `--wipe` on a real engine, after a command that wiped and then failed."""

import uuid

import pytest

from holdfast.containers import GATEWAY, find_volume, remove_volume
from holdfast.errors import TemporaryError
from holdfast.events import EventBus
from holdfast.gateway import GatewayContext, UpOptions, commands
from holdfast.gateway.plan import up_steps
from holdfast.remote import connect
from holdfast.workflow import Step

pytestmark = pytest.mark.engine

MARK = "dev.holdfast.test"


@pytest.fixture
def gateway_name(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    name = f"t-wipe-{uuid.uuid4().hex[:6]}"
    yield name
    commands.destroy(name, with_data=True, bus=EventBus())


def fail_step(ctx):
    raise TemporaryError("failed by the test")


def run_failing_up(name, monkeypatch, **options):
    """Run `up` up to the volume, then fail."""

    def steps(gateway):
        plan = up_steps(gateway)
        last = next(index for index, step in enumerate(plan) if step.name == "ensure-volume")
        return [*plan[: last + 1], Step("later", run=fail_step, needs=("ensure-volume",), repeat="safe")]

    monkeypatch.setattr(commands, "up_steps", steps)
    with pytest.raises(TemporaryError, match="failed by the test"):
        commands.up(name, EventBus(), options=UpOptions(**options))


def mark_volume(name):
    """Replace the volume by a labeled one, which differs from a new volume."""
    engine, volume = connect(), GatewayContext(name).object_name
    remove_volume(engine, volume)
    engine.client.create_volume(volume, labels={GATEWAY: name, MARK: "data"})


def has_data(name):
    return MARK in find_volume(connect(), GatewayContext(name).object_name).labels


def test_repeated_wipe_keeps_data_it_created(gateway_name, monkeypatch):
    run_failing_up(gateway_name, monkeypatch, wipe=True)
    mark_volume(gateway_name)
    run_failing_up(gateway_name, monkeypatch, wipe=True)
    assert has_data(gateway_name)


def test_wipe_after_another_command_wipes_again(gateway_name, monkeypatch):
    run_failing_up(gateway_name, monkeypatch, wipe=True)
    run_failing_up(gateway_name, monkeypatch)
    mark_volume(gateway_name)
    run_failing_up(gateway_name, monkeypatch, wipe=True)
    assert not has_data(gateway_name)
    mark_volume(gateway_name)
    commands.destroy(gateway_name, with_data=False, bus=EventBus())
    run_failing_up(gateway_name, monkeypatch, wipe=True)
    assert not has_data(gateway_name)
