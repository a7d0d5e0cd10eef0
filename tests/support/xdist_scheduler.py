"""Who runs which file when tests are spread over several processes (`pytest -n 3 --dist loadfile`).

Files that make gateways wait more than they work, and a host has room for few nodes: the kernel gives each
user a number of inotify instances, and a node takes its share. So the first workers begin with such files,
the longest ones first, and the others with everything else; who has none of his own left helps the others.
Not here: what is in a file, and the order inside of it.
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
        """The file for a worker: of his kind if there is one left, then the longest."""
        is_for_gateways = self.nodes.index(node) < GATEWAY_WORKERS

        def place(scope: str) -> tuple[bool, int, int]:
            rank = next(
                (at for at, end in enumerate(SLOWEST_FILES) if scope.endswith(end)), len(SLOWEST_FILES)
            )
            return scope.startswith(GATEWAY_DIRECTORIES) != is_for_gateways, rank, -len(self.workqueue[scope])

        return min(self.workqueue, key=place)

    def _reschedule(self, node: WorkerController) -> None:
        """Not before his last test: a file that waits for a busy worker is one that nobody else gets.

        What a worker that died had finished comes back with the rest of its files, and is not given out.
        """
        for scope in [scope for scope, tests in self.workqueue.items() if all(tests.values())]:
            del self.workqueue[scope]
        if self._pending_of(self.assigned_work[node]) <= 1 or not self.workqueue:
            super()._reschedule(node)
