"""Stopping and destroying: each step takes away one thing, and what is gone already counts as done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers.containers import remove_container, stop_container
from holdfast.containers.networks import find_network, find_volume, remove_network, remove_volume
from holdfast.engine import Verdict, absent, done
from holdfast.errors import DamagedFileError
from holdfast.gateway import kubeconfig
from holdfast.gateway.spec import forget, is_remembered
from holdfast.gateway.steps.base import GatewayStep
from holdfast.gateway.steps.upgrade import remove_predecessor
from holdfast.gateway.upgrade.volume import clear_helpers

if TYPE_CHECKING:
    from holdfast.engine import Context


class StopContainer(GatewayStep):
    """Ask the node to stop; it ends its pods and then its datastore in order."""

    name = "stop-container"
    title = "Stop"
    needs = ("let-stop",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        container = self.work.container()
        if container is None:
            return done("there is no container")
        return absent("it runs") if container.running else done("it is stopped")

    def run(self, ctx: Context) -> None:
        stop_container(self.work.engine, self.work.object, grace_seconds=self.work.stop_seconds)
        ctx.note("its data stays on the volume")


class RemoveContainer(GatewayStep):
    """Remove the stopped container; the volume is not part of it."""

    name = "remove-container"
    title = "Container removed"
    needs = ("stop-container",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        found = self.work.container() or self.work.predecessor()
        return done("there is none") if found is None else absent("it is still there")

    def run(self, ctx: Context) -> None:
        clear_helpers(self.work)
        remove_container(self.work.engine, self.work.object)
        remove_predecessor(self.work)
        ctx.note(self.work.object)


class RemoveNetwork(GatewayStep):
    """Remove the gateway's network."""

    name = "remove-network"
    title = "Network removed"
    needs = ("remove-container",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        network = find_network(self.work.engine, self.work.object)
        if network is None:
            return done("there is none")
        self.work.refuse_foreign("network", network.labels)
        return absent("it is still there")

    def run(self, ctx: Context) -> None:
        remove_network(self.work.engine, self.work.object)
        ctx.note(self.work.object)


class RemoveVolume(GatewayStep):
    """Remove the volume with all data on it; only part of a plan when the data was named."""

    name = "remove-volume"
    title = "Data removed"
    needs = ("remove-container",)
    touches = ("all data of the gateway and of its sandboxes",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        volume = find_volume(self.work.engine, self.work.object)
        if volume is None:
            return done("there is none")
        self.work.refuse_foreign("volume", volume.labels)
        return absent("it is still there")

    def run(self, ctx: Context) -> None:
        clear_helpers(self.work)
        remove_volume(self.work.engine, self.work.object)
        ctx.note(self.work.object)


class ForgetGateway(GatewayStep):
    """Remove metadata, kubeconfig and client files of this machine, and that it is the active gateway."""

    name = "forget-gateway"
    title = "Files removed"
    needs = ("remove-network",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        return absent("they are still there") if is_remembered(self.work.name) else done("there are none")

    def run(self, ctx: Context) -> None:
        """The user's own kubeconfig first: the step counts as done when all of ours is gone."""
        ctx.note("what this machine knew of it")
        merged = kubeconfig.default_target()
        try:
            if kubeconfig.remove_from(merged, name=self.work.name):
                ctx.note(f"what this machine knew of it, and its context in {merged}")
        except DamagedFileError as error:
            ctx.note(f"its context stays: {error.message}")
        forget(self.work.name)
