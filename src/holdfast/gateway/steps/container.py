"""The node's container: made, put right, started. What is there and fits is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers import labels
from holdfast.containers.containers import (
    ContainerView,
    create_container,
    reattach,
    remove_container,
    start_container,
    stop_container,
    unpause_container,
)
from holdfast.containers.images import find_image
from holdfast.containers.networks import find_network
from holdfast.containers.ports import holder_of
from holdfast.containers.translation import is_transient
from holdfast.engine import Verdict, absent, done, partial
from holdfast.errors import EngineCallError, ImageUnfitError, PortTakenError
from holdfast.gateway.node_container import (
    STOP_SECONDS,
    container_config,
    host_config,
    networking_config,
    settings_fingerprint,
)
from holdfast.gateway.steps.base import GatewayStep
from holdfast.retry import Policy, exponential

if TYPE_CHECKING:
    from holdfast.engine import Context
    from holdfast.gateway.work import Work

_PORT_TAKEN = ("port is already allocated", "address already in use")


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
        image = self._image_to_run(container)
        if container is not None and self._why_remake(container):
            ctx.progress("stopping the old container; its data stays on the volume")
            self.work.old_image = container.image_id
            stop_container(self.work.engine, self.work.object, grace_seconds=STOP_SECONDS)
            remove_container(self.work.engine, self.work.object)
            container = None
        if container is None:
            self._make(image)
            ctx.note(self.work.object)
        elif self._is_detached(container):
            reattach(self.work.engine, self.work.object, self.work.object, old_networks=container.networks)
            ctx.note("attached to its network again")

    def _make(self, image: str) -> None:
        spec, profile = self.work.spec, self.work.profile
        try:
            create_container(
                self.work.engine,
                self.work.object,
                image=image,
                config=container_config(spec, profile),
                host_config=host_config(spec, profile),
                networking=networking_config(spec),
            )
        except EngineCallError:
            if self.work.container() is None:
                raise

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

    def _image_to_run(self, container: ContainerView | None) -> str:
        """What was asked for; else the very image of the old container, whatever its name means by now."""
        name = self.work.spec.image
        before = container.image_id if container is not None else self.work.old_image
        if not before or self.work.settings.image is not None:
            return name
        found = find_image(self.work.engine, name)
        return name if found is not None and found.id == before else before

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


class StartContainer(GatewayStep):
    """Start the container; the engine restarts it by itself from then on, until it is stopped on purpose."""

    name = "start-container"
    title = "Start"
    needs = ("keep-running",)
    attempts = "start"
    policy = Policy(
        attempts=5,
        backoff=exponential(0.3, cap=2),
        retry_on=lambda error: is_transient(error) or isinstance(error, PortTakenError),
    )

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        container = self.work.container()
        if container is not None and container.state == "paused":
            return partial("paused")
        if container is not None and container.running:
            return done(f"running since {container.started_at[:19].replace('T', ' ')} UTC")
        return absent("stopped")

    def run(self, ctx: Context) -> None:
        container = self.work.container()
        if container is not None and container.state == "paused":
            unpause_container(self.work.engine, self.work.object)
            ctx.note("it was paused")
            return
        try:
            start_container(self.work.engine, self.work.object)
        except EngineCallError as error:
            if _is_port_conflict(error):
                raise self._port_taken(error) from error
            raise
        ctx.note(f"API on {self.work.server}")

    def _port_taken(self, error: EngineCallError) -> PortTakenError:
        port = self.work.spec.port
        holder = holder_of(self.work.engine, port) if self.work.engine.is_local else "another program"
        return PortTakenError(
            f"port {port} is already allocated: {holder} has it",
            hint="Stop that, or choose another port: --port N, or --port auto.",
            cause=error,
        )


def _is_port_conflict(error: BaseException) -> bool:
    return any(words in str(error).lower() for words in _PORT_TAKEN)
