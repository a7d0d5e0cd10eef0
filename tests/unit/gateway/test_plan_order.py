"""What comes before what in the plans, where it was chosen on purpose."""

import msgspec
import pytest
from tests.support.upgrade_record import UPGRADE_RECORD

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


def test_kubernetes_only_plan_skips_workload_dependencies():
    names = {step.name for step in up_steps(GatewayContext("dev", resolve_settings({"workloads": False})))}
    assert not names & {"wait-runtime", "push-gateway-image", "push-images", "apply-workloads"}
