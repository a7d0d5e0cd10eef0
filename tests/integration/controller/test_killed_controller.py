"""The controller is killed at random while sandboxes come, sleep, wake and go: nothing is lost or left.

Claims on a warm pool too. The same on a real gateway, a kubelet and all: tests/e2e/test_killed_controller.py.
"""

from __future__ import annotations

import random
import threading

import pytest
from tests.support.background_thread import BackgroundThread
from tests.support.controller_process import ControllerProcess, FakeKubelet, SandboxNamespace
from tests.support.random_lifecycles import RandomLifecycles

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(900)]

OPERATION_INTERVAL = 0.05


class RandomKiller(BackgroundThread):
    """Kills the controller at random moments and starts it again, until told to stop."""

    def __init__(self, controller, seed) -> None:
        super().__init__()
        self._controller, self._random = controller, random.Random(seed)
        self.kills = 0

    def run(self):
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
def test_sandboxes_converge_and_nothing_is_leaked(control_plane, objects, tmp_path, many, least):
    place = SandboxNamespace(objects, control_plane.create_namespace())
    controller = ControllerProcess(
        control_plane.kubeconfig, place.namespace, tmp_path / "log", identity="one"
    )
    lives = RandomLifecycles(place, many, boxes=many, claims=many // 3)
    lives.create_pool()
    with FakeKubelet(control_plane.kubeconfig, place.namespace):
        with RandomKiller(controller, seed=many) as killer:
            while not (killer.kills >= least and lives.all_created):
                lives.apply_random_operation()
                threading.Event().wait(OPERATION_INTERVAL)
        controller.wait_state("leading")
        lives.wait_converged()
        lives.delete_all()
    controller.kill()
    assert "Traceback" not in controller.log()
