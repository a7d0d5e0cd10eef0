"""The plan of the way back from an upgrade as the crash matrix wants it: one gateway that fails each time."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import msgspec

from holdfast.containers.commands import run_in
from holdfast.containers.containers import list_containers
from holdfast.containers.engine import connect
from holdfast.containers.labels import GATEWAY
from holdfast.engine import Workflow
from holdfast.events import Bus
from holdfast.gateway import commands
from holdfast.gateway.plan import rollback_steps, up_steps, upgrade_steps
from holdfast.gateway.settings import resolve
from holdfast.gateway.upgrade import flow
from holdfast.gateway.upgrade.record import SNAPSHOTS, read_record
from holdfast.gateway.upgrade.volume import helper_of
from holdfast.gateway.work import Work

if TYPE_CHECKING:
    from pathlib import Path

NAME = os.environ.setdefault("CRASH_MATRIX_GATEWAY", f"crash-back-{uuid.uuid4().hex[:6]}")
"""The gateway of this test alone; its children are told by their environment."""

# As a version may leave it that does not work: not one file of the datastore is any good.
_RUIN = 'find "$1" -type f | while read -r file; do echo ruined > "$file"; done'


def _work(image: str | None = None) -> Work:
    work = Work(NAME, resolve({"image": image, "workloads": "false"}))
    work.upgrading = True
    return work


def set_up(broken: str, home: Path) -> None:
    """Bring the gateway up; from then on each world begins with an upgrade to an image that does not work."""
    os.environ.update(CRASH_MATRIX_BROKEN=broken, HOLDFAST_HOME=str(home))
    commands.up(NAME, Bus(), resolved=resolve({"workloads": "false"}))
    os.environ["CRASH_MATRIX_ID"] = _work().container().image_id


def _fail() -> None:
    """An upgrade as far as the start of the new node, which has ruined the datastore by then."""
    work = _work(os.environ["CRASH_MATRIX_BROKEN"])
    steps = upgrade_steps(work)
    start = [step.name for step in steps].index("start-container")
    Workflow(flow.FORWARD, steps[: start + 1], forget=True).run()
    helper_of(work, os.environ["CRASH_MATRIX_ID"]).run(work.engine, _RUIN, work.profile.datastore)


def build(world: Path) -> Workflow:
    """The way back of one world: its first run finds an upgrade that failed, those after it what is left.

    Before the way back is marked a person's next command would try the new version once more; here it is
    known not to work.
    """
    work = _work()
    if not (world / "failed").exists():
        if work.predecessor() is None:
            _fail()
        world.mkdir(parents=True, exist_ok=True)
        (world / "failed").touch()
    record = read_record(work)
    if not record.under_way:
        return Workflow("up", up_steps(work))
    back = msgspec.structs.replace(record, phase="back", reason="its node keeps ending")
    return Workflow(flow.BACK, rollback_steps(work, back), forget=True)


def observe(world: Path) -> dict[str, object]:
    """What is there when all is done: the old image in one container, nothing of the failed version."""
    del world
    engine, work = connect(), _work()
    container, record = work.container(), read_record(work)
    listed = run_in(
        engine,
        work.object,
        ["/bin/sh", "-c", f'cd "$0" && ls -d "$1"* version.json* upgrade.json* && ls {SNAPSHOTS} | wc -l',
         work.profile.state_path, work.profile.datastore],
    )  # fmt: skip
    return {
        "containers": len(list_containers(engine, label=f"{GATEWAY}={NAME}")),
        "running": container is not None and container.running,
        "image": container is not None and container.image_id == os.environ["CRASH_MATRIX_ID"],
        "record": record.phase if record else "",
        "volume": listed.output.split(),
    }


def clear() -> None:
    """Take the gateway away."""
    commands.destroy(NAME, with_data=True, bus=Bus())
    for key in ("CRASH_MATRIX_GATEWAY", "CRASH_MATRIX_BROKEN", "CRASH_MATRIX_ID", "HOLDFAST_HOME"):
        os.environ.pop(key, None)
