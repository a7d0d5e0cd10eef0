"""What comes before what in the plans, where it was chosen on purpose."""

import msgspec
import pytest
from tests.support.upgrade_records import RECORD

from holdfast.gateway.plan import rollback_steps, up_steps, upgrade_steps
from holdfast.gateway.settings import resolve
from holdfast.gateway.work import Work


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
def work():
    return Work("dev", resolve({"push_images": ["app:1"]}))


def test_the_gateways_image_goes_in_while_kubernetes_starts(work):
    found = before(up_steps(work), "push-gateway-image")
    assert "wait-runtime" in found
    assert "wait-node-registered" not in found


def test_images_of_any_size_wait_until_it_has_started(work):
    assert "wait-node-registered" in before(up_steps(work), "push-images")


@pytest.mark.parametrize("way", ["upgrade", "back"])
def test_a_new_version_is_judged_before_its_image_goes_in(work, way):
    back = msgspec.structs.replace(RECORD, phase="back")
    steps = upgrade_steps(work) if way == "upgrade" else rollback_steps(work, back)
    assert "wait-node-registered" in before(steps, "push-gateway-image")


@pytest.mark.parametrize("made", ["replace-old", "ensure-network", "ensure-volume", "ensure-container"])
def test_images_to_push_are_looked_for_before_anything_is_made(work, made):
    assert "check-images" in before(up_steps(work), made)


@pytest.mark.parametrize("made", ["replace-old", "ensure-network", "ensure-volume", "ensure-container"])
def test_versions_are_known_to_fit_before_anything_is_made(work, made):
    assert "check-upgrade" in before(upgrade_steps(work), made)


def test_the_way_back_is_never_refused_for_an_image_to_push(work):
    back = msgspec.structs.replace(RECORD, phase="back")
    assert "check-images" not in {step.name for step in rollback_steps(work, back)}


def test_kubernetes_alone_waits_for_nothing_that_only_workloads_need():
    names = {step.name for step in up_steps(Work("dev", resolve({"workloads": False})))}
    assert not names & {"wait-runtime", "push-gateway-image", "push-images", "apply-workloads"}
