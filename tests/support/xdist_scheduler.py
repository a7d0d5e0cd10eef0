"""Assign test files to workers (`pytest -n 3 --dist loadfile`).

Files that create gateways mostly wait, and a host can run few nodes: the kernel limits the inotify instances
of each user, and a node uses many. So the first workers start with these files, the longest first, and the
other workers with all other files. A worker without files of its kind takes those of the other kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

GATEWAY_WORKERS = 2
GATEWAY_DIRECTORIES = ("tests/e2e/", "tests/chaos/gateway/")
SHARED_GATEWAY_DIRECTORY = "tests/e2e/shared"
"""Files of this folder have one gateway, so one worker runs them all."""

SLOWEST_FILES = (
    "e2e/test_workspace_survival.py",
    # Two nodes at a time, so these two come while no third worker makes any.
    "e2e/test_two_gateways.py",
    "test_up_matrix.py",
    SHARED_GATEWAY_DIRECTORY,
    "e2e/test_documentation.py",
    "e2e/test_sandbox_cli.py",
    "e2e/test_recreate.py",
    "e2e/test_upgrade.py",
    "e2e/test_remote_gateway.py",
    "e2e/test_lifecycle.py",
    "e2e/test_sandbox_image.py",
    "e2e/test_up_and_certificates.py",
    "e2e/test_controller.py",
    "e2e/test_doctor.py",
    "e2e/test_killed_commands.py",
    "e2e/test_stale_nodes.py",
    "e2e/test_secret_leaks.py",
    "test_engine_failures.py",
)
"""From eight minutes down to one; what is not here is shorter. It need not be exact."""


class GatewayScheduling(LoadFileScheduling):
    """Files are given out as a whole, in the order that leaves no worker alone with a long one."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return SHARED_GATEWAY_DIRECTORY if file.startswith(SHARED_GATEWAY_DIRECTORY) else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(self._next(node), last=False)
        super()._assign_work_unit(node)

    def _next(self, node: WorkerController) -> str:
        """The next file of a worker: of its kind if one is left, and of these the longest."""
        is_for_gateways = self.nodes.index(node) < GATEWAY_WORKERS

        def place(scope: str) -> tuple[bool, int, int]:
            rank = next(
                (at for at, end in enumerate(SLOWEST_FILES) if scope.endswith(end)), len(SLOWEST_FILES)
            )
            return scope.startswith(GATEWAY_DIRECTORIES) != is_for_gateways, rank, -len(self.workqueue[scope])

        return min(self.workqueue, key=place)

    def _reschedule(self, node: WorkerController) -> None:
        """Assign a file only when the worker has one test left: other workers cannot take an assigned file.

        Finished tests of a crashed worker come back with its other files, and are not assigned again.
        """
        for scope in [scope for scope, tests in self.workqueue.items() if all(tests.values())]:
            del self.workqueue[scope]
        if self._pending_of(self.assigned_work[node]) <= 1 or not self.workqueue:
            super()._reschedule(node)
