"""What comes before what in the plans, where it was chosen on purpose."""

import msgspec
import pytest
from tests.support.upgrade_record import UPGRADE_RECORD

from holdfast.errors import InvalidSettingError
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.plan import rollback_steps, up_steps, upgrade_steps
from holdfast.gateway.settings import resolve_settings


def before(steps, name):
    """All that has to be over before a step begins."""
    by_name = {step.name: step for step in steps}
    found, todo = set(), [name]
    while todo:
        new = set(by_name[todo.pop()].needs) - found
        found |= new
        todo.extend(new)
    return found


@pytest.fixture
def gateway():
    return GatewayContext("dev", resolve_settings({"push_images": ["app:1"]}))


def test_gateway_image_is_loaded_while_kubernetes_starts(gateway):
    found = before(up_steps(gateway), "push-gateway-image")
    assert "wait-runtime" in found
    assert "wait-node-registered" not in found


def test_push_images_wait_for_kubernetes(gateway):
    assert "wait-node-registered" in before(up_steps(gateway), "push-images")


@pytest.mark.parametrize("way", ["upgrade", "back"])
def test_new_version_is_checked_before_image_load(gateway, way):
    back = msgspec.structs.replace(UPGRADE_RECORD, phase="back")
    steps = upgrade_steps(gateway) if way == "upgrade" else rollback_steps(gateway, back)
    assert "wait-node-registered" in before(steps, "push-gateway-image")


@pytest.mark.parametrize("made", ["replace-old", "ensure-network", "ensure-volume", "ensure-container"])
def test_push_images_are_checked_before_any_change(gateway, made):
    assert "check-images" in before(up_steps(gateway), made)


@pytest.mark.parametrize("made", ["replace-old", "ensure-network", "ensure-volume", "ensure-container"])
def test_version_compatibility_is_checked_before_any_change(gateway, made):
    assert "check-upgrade" in before(upgrade_steps(gateway), made)


@pytest.mark.parametrize("made", ["replace-old", "ensure-network", "ensure-volume", "ensure-container"])
def test_ports_are_checked_before_any_change(gateway, made):
    assert "check-ports" in before(up_steps(gateway), made)


def test_ports_are_checked_before_an_upgrade_stops_the_node(gateway):
    assert "check-ports" in before(upgrade_steps(gateway), "stop-old-node")


def test_rollback_ignores_missing_push_image_and_taken_port(gateway):
    back = msgspec.structs.replace(UPGRADE_RECORD, phase="back")
    assert not {"check-images", "check-ports"} & {step.name for step in rollback_steps(gateway, back)}


def test_rollback_needs_no_ca_file_and_no_login(tmp_path):
    """The sources of settings may have disappeared since the old version started."""
    missing = {
        "sandbox.ca_bundle": str(tmp_path / "missing"),
        "proxy.http": "http://proxy:3128",
        "proxy.credentials": "env:HOLDFAST_TEST_MISSING",
        "registries.ca_files": {"registry.example.org": str(tmp_path / "missing")},
        "registries.credentials": {"registry.example.org": "env:HOLDFAST_TEST_MISSING"},
    }
    gateway = GatewayContext("dev", resolve_settings(missing))
    with pytest.raises(InvalidSettingError):
        upgrade_steps(gateway)
    steps = rollback_steps(gateway, msgspec.structs.replace(UPGRADE_RECORD, phase="back"))
    names = {step.name for step in steps}
    assert not {"write-registries", "write-host-settings"} & names
    assert {"start-container", "wait-rollout", "wait-healthy"} <= names
    assert not [step.name for step in steps if not set(step.needs) <= names]


@pytest.mark.parametrize("needed", ["wait-rollout", "write-client-files", "write-host-settings"])
def test_health_is_checked_after_the_workloads(gateway, needed):
    assert needed in before(up_steps(gateway), "wait-healthy")


def test_registries_are_written_before_the_node_starts(gateway):
    assert "write-registries" in before(up_steps(gateway), "start-container")


def test_kubernetes_only_plan_skips_workload_dependencies():
    names = {step.name for step in up_steps(GatewayContext("dev", resolve_settings({"workloads": False})))}
    assert not names & {"wait-runtime", "push-gateway-image", "push-images", "apply-workloads"}
