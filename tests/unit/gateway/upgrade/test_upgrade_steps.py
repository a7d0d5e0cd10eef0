"""What an upgrade needs: a container, and a snapshot that is current when the old container is parked."""

import msgspec
import pytest
from tests.support.hints import hint_commands
from tests.support.inspected_containers import engine_with, inspected
from tests.support.upgrade_record import UPGRADE_RECORD

from holdfast.errors import GatewayNotFoundError, TemporaryError
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.registry import GatewayMetadata, write_metadata
from holdfast.gateway.settings import resolve_settings
from holdfast.gateway.spec import GatewaySpec
from holdfast.gateway.upgrade import ParkOldContainer, state_machine, upgrade_steps
from holdfast.workflow import Workflow

SPEC = GatewaySpec(name="dev", image=UPGRADE_RECORD.image, port=26443, gateway_port=26444)
STARTED_AT = "2026-01-01T00:00:00Z"


def park(monkeypatch, record, **state):
    """Run the step on a container in this state; return the renamed containers."""
    gateway = GatewayContext("dev", resolve_settings({"image": UPGRADE_RECORD.target}, environ={}))
    old = inspected(SPEC, **{"StartedAt": STARTED_AT, **state})
    gateway.engine, renamed = engine_with(old), []
    if record is not None:
        record = msgspec.structs.replace(record, image_id=old["Image"], node_started_at=STARTED_AT)
    monkeypatch.setattr(upgrade_steps, "read_record", lambda _gateway: record)
    gateway.engine.client.rename = lambda *names: renamed.append(names)
    step = ParkOldContainer(gateway)
    step.needs = ()
    Workflow("upgrade", [step]).run()
    return renamed


def test_stopped_container_with_current_snapshot_is_parked(monkeypatch):
    assert park(monkeypatch, UPGRADE_RECORD) == [("holdfast-dev", "before-of-holdfast-dev")]


@pytest.mark.parametrize(
    ("record", "state"),
    [
        (UPGRADE_RECORD, {"Status": "running"}),
        (UPGRADE_RECORD, {"StartedAt": "2026-01-01T00:01:00Z"}),
        (msgspec.structs.replace(UPGRADE_RECORD, phase="rolled-back"), {}),
        (None, {}),
    ],
    ids=["running", "ran since", "of another upgrade", "no record"],
)
def test_container_without_current_snapshot_is_not_parked(monkeypatch, record, state):
    with pytest.raises(TemporaryError, match="gateway dev: its node was started after the snapshot"):
        park(monkeypatch, record, **state)


@pytest.fixture
def missing_gateway(tmp_path, monkeypatch):
    """A gateway without container and volume, beside a recorded one with a similar name."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    write_metadata(GatewayMetadata(name="dev1", image="i", port=1))
    gateway = GatewayContext("dev", resolve_settings({}, environ={}))
    gateway.engine = engine_with()
    return gateway


def test_recorded_gateway_without_container_and_data_cannot_be_upgraded(missing_gateway):
    write_metadata(GatewayMetadata(name="dev", image="i", port=2))
    with pytest.raises(GatewayNotFoundError) as caught:
        state_machine.resolve_direction(missing_gateway)
    assert caught.value.message == "gateway dev: no container and no data"
    assert hint_commands(caught.value.hint, "Run `holdfast up {}`.") == ["holdfast up dev"]


def test_upgrade_of_an_unknown_gateway_suggests_a_similar_name(missing_gateway):
    with pytest.raises(GatewayNotFoundError, match="gateway dev: not found") as caught:
        state_machine.resolve_direction(missing_gateway)
    assert caught.value.hint == "Did you mean 'dev1'? Run `holdfast list` to see all gateways."
