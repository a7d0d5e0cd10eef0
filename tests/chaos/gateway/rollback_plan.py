"""The rollback of an upgrade as a workflow for the crash matrix: one gateway whose upgrade always fails."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import msgspec

from holdfast.containers import GATEWAY, list_containers, run_in_container
from holdfast.events import EventBus
from holdfast.gateway import GatewayContext, commands, resolve_settings
from holdfast.gateway.plan import rollback_steps, up_steps, upgrade_steps
from holdfast.gateway.upgrade import read_record, state_machine
from holdfast.gateway.upgrade.datastore import SNAPSHOTS_DIR, volume_job_for
from holdfast.remote import connect
from holdfast.workflow import Workflow

if TYPE_CHECKING:
    from pathlib import Path

NAME = os.environ.setdefault("CRASH_MATRIX_GATEWAY", f"crash-back-{uuid.uuid4().hex[:6]}")
"""The gateway of this test; child processes read its name from the environment."""

# As a version may leave it that does not work: not one file of the datastore is any good.
_OVERWRITE_FILES_SCRIPT = 'find "$1" -type f | while read -r file; do echo ruined > "$file"; done'


def _context(image: str | None = None) -> GatewayContext:
    settings = resolve_settings({"image": image, "workloads": "false"})
    return GatewayContext(NAME, settings, is_upgrade=True)


def set_up(broken: str, home: Path) -> None:
    """Bring the gateway up; from then on each world begins with an upgrade to an image that does not work."""
    os.environ.update(CRASH_MATRIX_BROKEN=broken, HOLDFAST_HOME=str(home))
    commands.up(NAME, EventBus(), resolved=resolve_settings({"workloads": "false"}))
    os.environ["CRASH_MATRIX_ID"] = _context().container().image_id


def _fail_upgrade() -> None:
    """An upgrade as far as the start of the new node, which has ruined the datastore by then."""
    gateway = _context(os.environ["CRASH_MATRIX_BROKEN"])
    steps = upgrade_steps(gateway)
    start = [step.name for step in steps].index("start-container")
    Workflow(state_machine.UPGRADE_SCOPE, steps[: start + 1], forget_on_success=True).run()
    volume_job_for(gateway, os.environ["CRASH_MATRIX_ID"]).run(
        gateway.engine, _OVERWRITE_FILES_SCRIPT, gateway.contract.datastore
    )


def build(world: Path) -> Workflow:
    """The rollback of one world: its first run finds a failed upgrade, later runs find the remaining work.

    Before the rollback is recorded, the next command would try the new version again; here it is
    known to fail.
    """
    gateway = _context()
    if not (world / "failed").exists():
        if gateway.parked_container() is None:
            _fail_upgrade()
        world.mkdir(parents=True, exist_ok=True)
        (world / "failed").touch()
    record = read_record(gateway)
    if not record.in_progress:
        return Workflow("up", up_steps(gateway))
    back = msgspec.structs.replace(record, phase="back", reason="its node exits repeatedly")
    return Workflow(state_machine.ROLLBACK_SCOPE, rollback_steps(gateway, back), forget_on_success=True)


def observe(world: Path) -> dict[str, object]:
    """The final state: the old image in one container, and nothing of the failed version."""
    del world
    engine, gateway = connect(), _context()
    container, record = gateway.container(), read_record(gateway)
    listed = run_in_container(
        engine,
        gateway.object_name,
        ["/bin/sh", "-c", f'cd "$0" && ls -d "$1"* version.json* upgrade.json* && ls {SNAPSHOTS_DIR} | wc -l',
         gateway.contract.state_path, gateway.contract.datastore],
    )  # fmt: skip
    return {
        "containers": len(list_containers(engine, label=f"{GATEWAY}={NAME}")),
        "running": container is not None and container.is_running,
        "image": container is not None and container.image_id == os.environ["CRASH_MATRIX_ID"],
        "record": record.phase if record else "",
        "volume": listed.output.split(),
    }


def clear() -> None:
    """Take the gateway away."""
    commands.destroy(NAME, with_data=True, bus=EventBus())
    for key in ("CRASH_MATRIX_GATEWAY", "CRASH_MATRIX_BROKEN", "CRASH_MATRIX_ID", "HOLDFAST_HOME"):
        os.environ.pop(key, None)
