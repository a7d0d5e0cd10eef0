"""Local images in the node: those that were asked for, and only what is missing of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine import Verdict, absent, done, partial
from holdfast.errors import NodeStoppedError
from holdfast.gateway.push import PUSH_CALLS, find_source, missing_images, push_images, source_engine
from holdfast.gateway.steps.base import GatewayStep
from holdfast.gateway.steps.node_end import Told, explained
from holdfast.gateway.steps.readiness import WaitRuntime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine import Context
    from holdfast.gateway.work import Work


class PushImages(GatewayStep):
    """Every image under its name in the node, with the very content that this machine's engine has."""

    name = "push-images"
    title = "Images"
    needs: Sequence[str] = ("wait-runtime",)
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
        try:
            pushed = push_images(self.work, self.references, progress=ctx.progress, stop=ctx.stop)
        except NodeStoppedError as error:
            if WaitRuntime.name in self.needs:  # it was starting, and its log says why it did not come far
                raise explained(self.work, Told()) from error
            raise
        sent = [image for image in pushed if image.changed]
        megabytes = sum({image.id: image.size for image in sent}.values()) / 1e6
        ctx.note(f"{_count(len(sent))}, {megabytes:.0f} MB" if sent else "nothing was missing")
        return [image.reference for image in sent]


def _count(number: int) -> str:
    return "1 image" if number == 1 else f"{number} images"
