"""The old container is parked only if its snapshot is still current."""

import msgspec
import pytest
from tests.support.inspected_containers import engine_with, inspected
from tests.support.upgrade_record import UPGRADE_RECORD

from holdfast.errors import TemporaryError
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.settings import resolve_settings
from holdfast.gateway.spec import GatewaySpec
from holdfast.gateway.upgrade import ParkOldContainer, upgrade_steps
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
