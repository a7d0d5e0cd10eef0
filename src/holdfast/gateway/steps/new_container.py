"""A new container for the node, from what the gateway is asked to be. Not here: whether one is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers.containers import create_container
from holdfast.containers.images import find_image
from holdfast.errors import EngineCallError
from holdfast.gateway.node_container import container_config, host_config, networking_config

if TYPE_CHECKING:
    from holdfast.containers.containers import ContainerView
    from holdfast.gateway.work import Work


def make_container(work: Work, image: str) -> None:
    """Make it under the gateway's name; that the engine's answer got lost is no failure."""
    try:
        create_container(
            work.engine,
            work.object,
            image=image,
            config=container_config(work.spec, work.profile),
            host_config=host_config(work.spec, work.profile),
            networking=networking_config(work.spec),
        )
    except EngineCallError:
        if work.container() is None:
            raise


def image_to_run(work: Work, container: ContainerView | None) -> str:
    """What was asked for; else the very image of the old container, whatever its name means by now."""
    name = work.spec.image
    before = container.image_id if container is not None else work.old_image
    if not before or work.settings.image is not None:
        return name
    found = find_image(work.engine, name)
    return name if found is not None and found.id == before else before
