"""The image of a replaced container is kept for the rest of its command, but not for a new gateway."""

from types import SimpleNamespace

import pytest
from tests.support.stubs import stub

from holdfast.gateway import teardown
from holdfast.gateway.context import GatewayContext, UpOptions
from holdfast.workflow import SQLiteStore, Step, Workflow

OLD_IMAGE = "sha256:old"


@pytest.fixture(autouse=True)
def engine(tmp_path, monkeypatch):
    """The containers of a fake engine: one, until the step removes it."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    containers = [SimpleNamespace(image_id=OLD_IMAGE)]
    monkeypatch.setattr(GatewayContext, "engine", None)
    monkeypatch.setattr(GatewayContext, "container", lambda _: containers[0] if containers else None)
    for kind in ("network", "volume"):
        monkeypatch.setattr(GatewayContext, kind, lambda _: None)
    monkeypatch.setattr(teardown, "check_same_version", lambda *_: None)
    stub(monkeypatch, teardown, "stop_container", lambda *_, **__: True)
    stub(monkeypatch, teardown, "remove_container", lambda *_: containers.clear())
    stub(monkeypatch, teardown, "remove_network", lambda *_: True)


def run_command(command, step):
    gateway = GatewayContext("dev")
    gateway.files.state.parent.mkdir(parents=True, exist_ok=True)
    step.needs = ()
    workflow = Workflow(command.partition(" ")[0], [step])
    return workflow.run(store=SQLiteStore(gateway.files.state), command=command).result(step.name)


def up(*, recreate=False):
    step = teardown.ReplaceOldGateway(GatewayContext("dev", options=UpOptions(recreate=recreate)))
    return run_command("up --recreate" if recreate else "up", step)


def destroy():
    run_command("destroy", Step("remove-container", run=lambda _ctx: None, repeat="safe"))


def test_interrupted_recreate_keeps_image_for_next_up():
    assert up(recreate=True)["image"] == OLD_IMAGE
    assert up()["image"] == OLD_IMAGE
    assert up()["image"] == OLD_IMAGE


def test_up_after_destroy_does_not_inherit_image():
    up(recreate=True)
    destroy()
    assert up() == {}


def test_destroy_before_recreate_has_no_effect_on_it():
    destroy()
    up(recreate=True)
    assert up()["image"] == OLD_IMAGE


def test_repeated_recreate_removes_nothing_until_another_command_ran():
    first = up(recreate=True)
    assert up(recreate=True) == first
    up()
    assert up(recreate=True)["run"] != first["run"]
