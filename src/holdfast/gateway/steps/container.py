"""The node's container: made, and put right. What is there and fits is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers import labels
from holdfast.containers.containers import ContainerView, reattach, remove_container, stop_container
from holdfast.containers.images import find_image
from holdfast.containers.networks import find_network
from holdfast.engine import Verdict, absent, done, partial
from holdfast.errors import ImageUnfitError
from holdfast.gateway.node_container import settings_fingerprint
from holdfast.gateway.steps.base import GatewayStep
from holdfast.gateway.steps.new_container import image_to_run, make_container

if TYPE_CHECKING:
    from holdfast.engine import Context
    from holdfast.gateway.work import Work


class EnsureContainer(GatewayStep):
    """The container as asked for, on the gateway's volume and network.

    One that was made with other settings is made anew on the same volume; one whose network was remade
    under it is attached again. The data is on the volume and stays where it is.
    """

    name = "ensure-container"
    title = "Container"
    needs = ("ensure-image", "ensure-network", "check-data")

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        container = self.work.container()
        if container is None:
            return absent("none yet")
        why = self._why_remake(container)
        if why:
            return partial(why)
        if self._is_detached(container):
            return partial("its network was made anew")
        return done(f"{container.name}, {container.state}")

    def run(self, ctx: Context) -> None:
        """Looks once more: that the engine's answer got lost is no reason to act twice."""
        container = self.work.container()
        image = image_to_run(self.work, container)
        if container is not None and self._why_remake(container):
            ctx.progress("stopping the old container; its data stays on the volume")
            self.work.old_image = container.image_id
            stop_container(self.work.engine, self.work.object, grace_seconds=self.work.stop_seconds)
            remove_container(self.work.engine, self.work.object)
            container = None
        if container is None:
            make_container(self.work, image)
            ctx.note(self.work.object)
        elif self._is_detached(container):
            # Whatever listens on the lost address does not find to the new one: the node starts there anew.
            ctx.progress("stopping the node: its address is lost with its network")
            stop_container(self.work.engine, self.work.object, grace_seconds=self.work.stop_seconds)
            reattach(self.work.engine, self.work.object, self.work.object, old_networks=container.networks)
            ctx.note("attached to its network again")

    def _why_remake(self, container: ContainerView) -> str:
        other_image = self._why_other_image(container)
        named = container.environment.get(self.work.profile.node_name_variable)
        if (named, container.hostname) != (self.work.node, self.work.node):
            return f"its node is not called {self.work.node}"
        if container.labels.get(labels.SETTINGS) != settings_fingerprint(self.work.spec, self.work.profile):
            return "its settings differ from what is asked for"
        return other_image

    def _why_other_image(self, container: ContainerView) -> str:
        """Asked before all else: whatever it is made anew for, never with another version on the data."""
        if self.work.settings.image is None:
            return ""
        wanted = find_image(self.work.engine, self.work.spec.image)
        if wanted is None or wanted.id == container.image_id:
            return ""
        refuse_other_version(self.work, container)
        return f"it runs another image than {self.work.spec.image}"

    def _is_detached(self, container: ContainerView) -> bool:
        """A container that never ran knows its network by name alone: an empty id is no other network."""
        network = find_network(self.work.engine, self.work.object)
        known = container.networks.get(self.work.object)
        return network is None or known is None or known not in ("", network.id)


def refuse_other_version(work: Work, container: ContainerView) -> None:
    """Refuse to go on with another Kubernetes version than that of a container; it has its image's labels."""
    running = find_image(work.engine, container.image_id)
    _refuse_version(work, (running.labels if running else container.labels).get(labels.KUBERNETES, ""))


def _refuse_version(work: Work, now: str) -> None:
    """The datastore of one Kubernetes version may not be readable by another: never by accident."""
    if work.upgrading or work.asked.wipe or (work.old_image and work.settings.image is None):
        return
    wanted = find_image(work.engine, work.spec.image)
    then = wanted.labels.get(labels.KUBERNETES) if wanted else None
    if now and then and now != then:
        raise ImageUnfitError(
            f"gateway {work.name} has Kubernetes {now}, and {work.spec.image} has {then}",
            hint=f"`holdfast upgrade {work.name}` changes the version. Leave --image out to keep it.",
        )
