"""The gateway's own network and its volume: made when missing, never removed by anything here.

The engine would take a second network of the same name: looking again before making one keeps it at one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers.networks import create_network, create_volume, find_network, find_volume
from holdfast.engine import Verdict, absent, done
from holdfast.gateway.steps.base import GatewayStep

if TYPE_CHECKING:
    from holdfast.engine import Context


class EnsureNetwork(GatewayStep):
    """A bridge network for this gateway alone."""

    name = "ensure-network"
    title = "Network"
    needs = ("replace-old",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        network = find_network(self.work.engine, self.work.object)
        if network is None:
            return absent("none yet")
        self.work.refuse_foreign("network", network.labels)
        return done(f"{self.work.object} is there")

    def run(self, ctx: Context) -> None:
        if find_network(self.work.engine, self.work.object) is None:
            create_network(self.work.engine, self.work.object, gateway=self.work.name)
        ctx.note(self.work.object)


class EnsureVolume(GatewayStep):
    """The one volume that holds all state of the gateway and of its sandboxes."""

    name = "ensure-volume"
    title = "Volume"
    needs = ("replace-old",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        volume = find_volume(self.work.engine, self.work.object)
        if volume is None:
            return absent("none yet")
        self.work.refuse_foreign("volume", volume.labels)
        return done(f"{self.work.object} is there")

    def run(self, ctx: Context) -> None:
        create_volume(self.work.engine, self.work.object, gateway=self.work.name)
        self.work.made_volume = True
        ctx.note(self.work.object)
