"""Local images in the node: those that were asked for and the gateway's own; only what is missing of them.

Not here: how they get there (gateway/push.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers.images import find_image
from holdfast.containers.networks import find_volume
from holdfast.engine import Verdict, absent, done, partial
from holdfast.errors import ImageMissingError, NodeStoppedError
from holdfast.gateway.push import PUSH_CALLS, find_source, missing_images, push_images, source_engine
from holdfast.gateway.steps.base import GatewayStep, going_on
from holdfast.gateway.steps.node_end import Told, explained
from holdfast.gateway.workloads.blueprint import GATEWAY_IMAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine import Context
    from holdfast.gateway.work import Work


class CheckImages(GatewayStep):
    """Only looks: all that is to be put into the node later is here, before anything is made for it."""

    name = "check-images"
    title = "Images to push"
    needs = ("check-engine",)
    repeat = "always"

    def run(self, ctx: Context) -> None:
        work, source = self.work, source_engine(self.work)
        wanted = [find_source(source, reference, work) for reference in work.settings.push_images]
        if work.settings.workloads and find_image(source, GATEWAY_IMAGE) is None:
            if find_volume(work.engine, work.object) is None:
                raise no_gateway_image()
            ctx.note("the gateway's own has to be in the node already")
            return
        ctx.note(_count(len(wanted) + work.settings.workloads))


class PushImages(GatewayStep):
    """Every image under its name in the node, with the very content that this machine's engine has."""

    name = "push-images"
    title = "Images"
    needs: Sequence[str] = ("wait-node-registered",)
    policy = PUSH_CALLS
    attempts = "push"

    def __init__(self, work: Work, references: Sequence[str], *, needs: Sequence[str] | None = None) -> None:
        super().__init__(work)
        self.references = references
        if needs is not None:
            self.needs = needs

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        source = source_engine(self.work)
        wanted = [find_source(source, reference, self.work) for reference in self.references]
        container = self.work.container()
        if container is None or container.state != "running":
            return absent("the node does not run yet")
        missing = missing_images(self.work, wanted)
        if not missing:
            return done(f"{_count(len(wanted))} in the node")
        words = f"{missing[0].reference} is not in the node, or is another one there"
        return absent(words) if len(missing) == len(wanted) else partial(words)

    def run(self, ctx: Context) -> list[str]:
        pushed = push_images(self.work, self.references, progress=going_on(ctx), stop=ctx.stop)
        sent = [image for image in pushed if image.changed]
        megabytes = sum({image.id: image.size for image in sent}.values()) / 1e6
        ctx.note(f"{_count(len(sent))}, {megabytes:.0f} MB" if sent else "nothing was missing")
        return [image.reference for image in sent]


class PushGatewayImage(PushImages):
    """The image that the gateway's own workloads run from: it goes in while Kubernetes starts.

    Others wait until that is over: they may be of any size.
    """

    name = "push-gateway-image"
    title = "Gateway image"
    needs = ("wait-runtime",)

    def __init__(self, work: Work) -> None:
        super().__init__(work, (GATEWAY_IMAGE,))

    def probe(self, ctx: Context) -> Verdict:
        if find_image(source_engine(self.work), GATEWAY_IMAGE) is None:
            # An engine may have lost it (`docker image prune`) while the node has it: then it stays there.
            return done("not on the engine, so that the node keeps the one it has")
        return super().probe(ctx)

    def run(self, ctx: Context) -> list[str]:
        try:
            return super().run(ctx)
        except NodeStoppedError as error:
            # It was starting, and its log says why it did not come far.
            raise explained(self.work, Told()) from error


def no_gateway_image() -> ImageMissingError:
    """Neither here nor there: what to do."""
    return ImageMissingError(
        f"the image {GATEWAY_IMAGE} is neither on the engine nor in the node",
        hint="Build it: holdfast image build gateway. Or go without holdfast's own workloads: "
        "HOLDFAST_WORKLOADS=false.",
    )


def _count(number: int) -> str:
    return "1 image" if number == 1 else f"{number} images"
