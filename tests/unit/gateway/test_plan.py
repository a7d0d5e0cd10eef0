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


@pytest.fixture(params=[{}, {"workloads": False, "push_images": ["app:1"]}], ids=["workloads", "push alone"])
def work(request):
    return Work("dev", resolve(request.param))


def test_images_go_in_while_kubernetes_starts(work):
    found = before(up_steps(work), "push-images")
    assert "wait-runtime" in found
    assert "wait-node-registered" not in found


@pytest.mark.parametrize("way", ["upgrade", "back"])
def test_a_new_version_is_judged_before_images_go_in(work, way):
    steps = (
        upgrade_steps(work)
        if way == "upgrade"
        else rollback_steps(work, msgspec.structs.replace(RECORD, phase="back"))
    )
    assert "wait-node-registered" in before(steps, "push-images")
