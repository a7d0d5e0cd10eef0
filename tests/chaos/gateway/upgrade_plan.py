"""The plan of `upgrade` as the crash matrix wants it: one gateway that goes to and fro between two images."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from holdfast.containers import GATEWAY, find_container, find_image, list_containers
from holdfast.events import EventBus
from holdfast.gateway import GatewayContext, commands, resolve_settings
from holdfast.gateway.context import DEFAULT_IMAGE
from holdfast.gateway.plan import upgrade_steps
from holdfast.gateway.upgrade import read_record
from holdfast.remote import connect
from holdfast.workflow import Workflow

if TYPE_CHECKING:
    from pathlib import Path

NAME = os.environ.setdefault("CRASH_MATRIX_GATEWAY", f"crash-up-{uuid.uuid4().hex[:6]}")
"""The gateway of this test; child processes read its name from the environment."""


def _context(image: str | None = None, *, is_upgrade: bool = False) -> GatewayContext:
    settings = resolve_settings({"image": image, "workloads": os.environ["CRASH_MATRIX_WORKLOADS"]})
    return GatewayContext(NAME, settings, is_upgrade=is_upgrade)


def set_up(other: str, home: Path, *, workloads: str = "false") -> None:
    """Bring the gateway up; from then on each world takes it to the image that it does not have."""
    os.environ.update(CRASH_MATRIX_OTHER=other, CRASH_MATRIX_WORKLOADS=workloads, HOLDFAST_HOME=str(home))
    commands.up(NAME, EventBus(), resolved=resolve_settings({"workloads": workloads}))


def build(world: Path) -> Workflow:
    """The upgrade of one world: its first run names the image, later runs continue to it."""
    chosen = world / "target"
    if not chosen.exists():
        has_other = find_container(connect(), f"holdfast-{NAME}").image == os.environ["CRASH_MATRIX_OTHER"]
        world.mkdir(parents=True, exist_ok=True)
        chosen.write_text(DEFAULT_IMAGE if has_other else os.environ["CRASH_MATRIX_OTHER"])
    gateway = _context(chosen.read_text(), is_upgrade=True)
    return Workflow("upgrade", upgrade_steps(gateway), forget_on_success=True)


def observe(world: Path) -> dict[str, object]:
    """The final state: the requested image, one container, a finished record."""
    engine, gateway = connect(), _context()
    container, wanted = gateway.container(), find_image(engine, (world / "target").read_text())
    record = read_record(gateway)
    return {
        "containers": len(list_containers(engine, label=f"{GATEWAY}={NAME}")),
        "running": container is not None and container.is_running,
        "image": container is not None and wanted is not None and container.image_id == wanted.id,
        "record": record.phase if record else "",
    }


def clear() -> None:
    """Take the gateway away."""
    commands.destroy(NAME, with_data=True, bus=EventBus())
    for key in ("CRASH_MATRIX_GATEWAY", "CRASH_MATRIX_OTHER", "CRASH_MATRIX_WORKLOADS", "HOLDFAST_HOME"):
        os.environ.pop(key, None)
