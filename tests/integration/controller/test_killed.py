"""The controller is killed at random while sandboxes come, sleep, wake and go: nothing is lost or left."""

from __future__ import annotations

import random
import threading

import pytest
from tests.support.background import Background
from tests.support.controllers import SOON, Controller, Kubelet, Place, says, status_of

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

CLAIM = {
    "metadata": {"name": "workspace"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}
PARTS = ("Pod", "PersistentVolumeClaim", "Service")


class Killer(Background):
    """Kills the controller at random moments and starts it again, until told to stop."""

    def __init__(self, controller, seed) -> None:
        super().__init__()
        self._controller, self._random = controller, random.Random(seed)
        self.kills = 0

    def work(self):
        while True:
            self._controller.start(state=None)
            # From before its first list to the middle of its work.
            if self.stop.wait(self._random.uniform(0.5, 6.0)):
                return
            self._controller.kill()
            self.kills += 1


@pytest.mark.parametrize(
    ("many", "least"), [(10, 3), pytest.param(100, 10, marks=pytest.mark.slow)], ids=["10", "100"]
)
def test_whatever_is_asked_for_comes_true_and_nothing_is_left(control_plane, objects, tmp_path, many, least):
    place = Place(objects, control_plane.create_namespace())
    controller = Controller(control_plane.kubeconfig, place.namespace, tmp_path / "log", identity="one")
    names = [f"box-{number}" for number in range(many)]
    rng = random.Random(many)
    with Kubelet(control_plane.kubeconfig, place.namespace):
        with Killer(controller, seed=many) as killer:
            for name in names:
                place.sandbox(name, service=True, volumeClaimTemplates=[CLAIM])
            asked = dict.fromkeys(names, "Running")
            while killer.kills < least:
                name = rng.choice(names)
                what = rng.choice(["Running", "Suspended", "gone", "pod"])
                change(place, asked, name, what)
                threading.Event().wait(0.05)
        controller.wait_state("leading")
        for name in names:
            wait_right(place, name, asked[name])
        SOON.call(lambda: assert_whole(place, asked))
        for name in names:
            place.delete("Sandbox", name)
        SOON.call(lambda: assert_nothing(place))
    controller.kill()
    assert "Traceback" not in controller.log()


def change(place, asked, name, what):
    """Ask for something, as users do: also for what is so already."""
    if what == "pod":
        place.delete("Pod", name)
    elif what == "gone":
        place.delete("Sandbox", name)
        asked[name] = None
    elif asked[name] is None:
        place.objects.wait(
            "Sandbox", name, lambda found: found is None, namespace=place.namespace,
            api_version="agents.x-k8s.io/v1beta1", deadline=60,
        )  # fmt: skip
        place.sandbox(name, service=True, volumeClaimTemplates=[CLAIM], operatingMode=what)
        asked[name] = what
    else:
        place.patch("Sandbox", name, {"spec": {"operatingMode": what}})
        asked[name] = what


def wait_right(place, name, mode):
    if mode is None:
        place.wait_gone("Sandbox", name)
    elif mode == "Suspended":
        place.wait_said("Sandbox", name, Ready="False SandboxSuspended", Suspended="True PodTerminated")
    else:
        place.wait_said("Sandbox", name, Ready="True DependenciesReady", Suspended="False NotSuspended")


def assert_whole(place, asked):
    """Just the parts of the sandboxes that there are, each owned by its very sandbox."""
    boxes = {each["metadata"]["name"]: each for each in place.list("Sandbox")}
    assert set(boxes) == {name for name, mode in asked.items() if mode is not None}
    running = {name for name, mode in asked.items() if mode == "Running"}
    wanted = {
        "Pod": running,
        "PersistentVolumeClaim": {f"workspace-{name}" for name in boxes},
        "Service": set(boxes),
    }
    for kind in PARTS:
        found = {each["metadata"]["name"]: each for each in place.list(kind)}
        assert set(found) == wanted[kind]
        for name, each in found.items():
            (owner,) = each["metadata"]["ownerReferences"]
            assert owner["uid"] == boxes[name.removeprefix("workspace-")]["metadata"]["uid"]
    for name in running:
        assert says(boxes[name], "Ready") == "True DependenciesReady"
        assert status_of(boxes[name])["podIPs"]


def assert_nothing(place):
    for kind in ("Sandbox", *PARTS):
        assert place.list(kind) == []
