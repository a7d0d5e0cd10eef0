"""The controller is killed at random while sandboxes come, sleep, wake and go: nothing is lost or left.

Claims on a warm pool too. The same on a real gateway, a kubelet and all: tests/e2e/test_killed_controller.py.
"""

from __future__ import annotations

import random
import threading

import pytest
from tests.support.background import Background
from tests.support.controllers import Controller, Kubelet, Place
from tests.support.lives import Lives

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

PACE = 0.05


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
    lives = Lives(place, many, boxes=many, claims=many // 3)
    lives.make_pool()
    with Kubelet(control_plane.kubeconfig, place.namespace):
        with Killer(controller, seed=many) as killer:
            while not (killer.kills >= least and lives.all_are_born):
                lives.go_on()
                threading.Event().wait(PACE)
        controller.wait_state("leading")
        lives.wait_right()
        lives.delete_all()
    controller.kill()
    assert "Traceback" not in controller.log()
