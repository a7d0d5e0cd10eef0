"""Steps that stop a gateway, remove it, or replace it (`up --recreate`, `up --wipe`).

Each step removes one thing; a thing that is already gone counts as removed. The data is removed only on
request.
"""

from __future__ import annotations

import math
from contextlib import closing
from typing import TYPE_CHECKING, Any

from holdfast.containers import remove_container, remove_network, remove_volume, stop_container
from holdfast.errors import HoldfastError
from holdfast.gateway.base_steps import GatewayStep
from holdfast.gateway.cluster import kubeconfig
from holdfast.gateway.node import check_same_version
from holdfast.gateway.registry import has_local_files, remove_local_files
from holdfast.gateway.upgrade import remove_leftover_job, remove_parked_container
from holdfast.workflow import ProbeResult, SQLiteStore, absent, done

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.gateway.context import GatewayContext
    from holdfast.workflow import RunRecord, StepContext

REPLACE_OLD = "replace-old"


class ReplaceOldGateway(GatewayStep):
    """Remove the old container and network if requested; later steps create them again.

    A new container looks like an old one, so only the record of this step tells whether it was done: a
    second run of the same command must not remove what the first has just created. The last step of `up`
    deletes the record, and any other command in between makes it obsolete. The result names the image of
    the old container.
    """

    name = REPLACE_OLD
    title = "Replacement"
    needs = ("ensure-image",)

    def __init__(self, gateway: GatewayContext) -> None:
        super().__init__(gateway)
        self._image = ""  # kept for a retry after the container was removed
        if gateway.options.wipe:
            self.touches = (
                f"volume {gateway.object_name}: ALL data of the gateway and its sandboxes is removed",
            )
        elif gateway.options.recreate:
            self.touches = (f"container and network {gateway.object_name} are recreated; the data stays",)

    def probe(self, ctx: StepContext) -> ProbeResult:
        previous: dict[str, Any] = ctx.previous_result or {}
        commands = self._commands_since(previous, ctx)
        wipe = self.gateway.options.wipe
        if not self.gateway.replaces_container:
            # After `destroy`, the gateway is a new one, which does not inherit the image.
            is_same_gateway = commands and "destroy" not in commands
            return done("not requested", result=previous if is_same_gateway else {})
        if not ctx.in_flight and previous.get("wipe") is wipe and len(set(commands)) == 1:
            return done("done by the run that this one continues", result=previous)
        return absent("requested, with its data" if wipe else "requested")

    def _commands_since(self, previous: dict[str, Any], ctx: StepContext) -> list[str]:
        if not previous:
            return []
        with closing(SQLiteStore(self.gateway.files.state, readonly=True)) as store:
            store.open()
            return commands_since(store.runs(), str(previous.get("run", "")), excluding=ctx.run_id)

    def run(self, ctx: StepContext) -> dict[str, Any]:
        if not self.gateway.replaces_container:
            return {}
        engine, name, wipe = self.gateway.engine, self.gateway.object_name, self.gateway.options.wipe
        # Before the first removal: an object of another program stops the step while nothing is removed.
        self.gateway.network()
        self.gateway.volume()
        container = self.gateway.container()
        if container is not None:
            if not wipe:
                check_same_version(self.gateway, container)
            self._image = container.image_id
            ctx.progress("stopping the old container")
            stop_container(engine, name, grace_seconds=self.gateway.stop_seconds)
            remove_container(engine, name)
        remove_network(engine, name)
        if wipe:
            # The stop above may have taken long. If the lock was lost meanwhile, another command may
            # already use the volume.
            ctx.check_lock()
            # The engine refuses to remove a volume while a container mounts it, even a stopped one.
            remove_leftover_job(self.gateway)
            remove_parked_container(self.gateway)
            remove_volume(engine, name)
        ctx.note("removed with all data" if wipe else "removed; the data stays")
        return {"wipe": wipe, "image": self._image, "run": ctx.run_id}


def commands_since(runs: Sequence[RunRecord], run: str, *, excluding: str) -> list[str]:
    """The commands of `run` and of all later runs; empty if the limited history has lost that run."""
    started = next((record.started for record in runs if record.id == run), math.inf)
    return [record.command for record in runs if record.started >= started and record.id != excluding]


class StopContainer(GatewayStep):
    """Stop the node; it terminates its pods first and then its datastore."""

    name = "stop-container"
    title = "Stop"
    needs = ("let-stop",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        container = self.gateway.container()
        if container is None:
            return done("no container")
        return absent("running") if container.is_running else done("stopped")

    def run(self, ctx: StepContext) -> None:
        stop_container(self.gateway.engine, self.gateway.object_name, grace_seconds=self.gateway.stop_seconds)
        ctx.note("the data stays on the volume")


class RemoveContainer(GatewayStep):
    """Remove the stopped container; the volume stays."""

    name = "remove-container"
    title = "Container removed"
    needs = ("stop-container",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        container = self.gateway.container() or self.gateway.parked_container()
        return done("no container") if container is None else absent("still exists")

    def run(self, ctx: StepContext) -> None:
        remove_leftover_job(self.gateway)
        remove_container(self.gateway.engine, self.gateway.object_name)
        remove_parked_container(self.gateway)
        ctx.note(self.gateway.object_name)


class RemoveNetwork(GatewayStep):
    """Remove the gateway's network."""

    name = "remove-network"
    title = "Network removed"
    needs = ("remove-container",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        return done("no network") if self.gateway.network() is None else absent("still exists")

    def run(self, ctx: StepContext) -> None:
        remove_network(self.gateway.engine, self.gateway.object_name)
        ctx.note(self.gateway.object_name)


class RemoveVolume(GatewayStep):
    """Remove the volume with all data; part of the plan only with `--data`."""

    name = "remove-volume"
    title = "Data removed"
    needs = ("remove-container",)
    touches = ("all data of the gateway and its sandboxes",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        return done("no volume") if self.gateway.volume() is None else absent("still exists")

    def run(self, ctx: StepContext) -> None:
        remove_leftover_job(self.gateway)
        remove_volume(self.gateway.engine, self.gateway.object_name)
        ctx.note(self.gateway.object_name)


class RemoveLocalFiles(GatewayStep):
    """Remove metadata, kubeconfig and client files from this machine, and the active-gateway mark."""

    name = "forget-gateway"
    title = "Files removed"
    needs = ("remove-network",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        return absent("still exist") if has_local_files(self.gateway.name) else done("no files")

    def run(self, ctx: StepContext) -> None:
        # The user's kubeconfig first: the probe looks only at holdfast's own files.
        ctx.note("metadata, kubeconfig and client files")
        merged = kubeconfig.user_kubeconfig_path()
        try:
            if kubeconfig.remove_from(merged, name=self.gateway.name):
                ctx.note(f"metadata, kubeconfig and client files, and the context in {merged}")
        except HoldfastError as error:
            ctx.note(f"the kubeconfig context stays: {error.message}")
        remove_local_files(self.gateway.name)
