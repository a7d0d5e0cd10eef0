"""The node image: on the engine, or pulled; and really a node image for this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.containers import labels
from holdfast.containers.images import ImageView, find_image, pull_image
from holdfast.containers.translation import is_transient
from holdfast.engine import Verdict, absent, done
from holdfast.errors import EngineCallError, ImageMissingError, ImageUnfitError
from holdfast.gateway.profile import CONTRACT
from holdfast.gateway.steps.base import GatewayStep

if TYPE_CHECKING:
    from holdfast.engine import Context


class EnsureImage(GatewayStep):
    """A container that exists brings its image along: nothing is looked up or pulled for it."""

    name = "ensure-image"
    title = "Node image"
    attempts = "pull"
    needs = ("check-engine",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        container = self.work.container()
        reference = self.work.spec.image
        if container is not None and self.work.settings.image is None:
            return done(f"the container has it ({container.image})")
        image = find_image(self.work.engine, reference)
        if image is None:
            return absent(f"{reference} is not on the engine")
        check_node_image(reference, image, self.work.engine.architecture)
        return done(f"{reference} is on the engine")

    def run(self, ctx: Context) -> None:
        reference = self.work.spec.image
        if self._bring(ctx, reference):
            return
        try:
            pull_image(self.work.engine, reference, progress=ctx.progress)
        except (ImageMissingError, EngineCallError) as error:
            what = f"the image {reference} is not on the engine and cannot be pulled: {error.message}"
            way_out = "build it with `holdfast image build`, or name another one with --image."
            if is_transient(error):
                raise EngineCallError(what, hint=f"Run the same command again, or {way_out}") from error
            raise ImageMissingError(what, hint=way_out.capitalize()) from error
        image = find_image(self.work.engine, reference)
        if image is not None:
            check_node_image(reference, image, self.work.engine.architecture)

    def _bring(self, ctx: Context, reference: str) -> bool:
        """To another host the image is sent from this machine, if it is here."""

        def progress(message: str, fraction: float | None) -> None:
            ctx.check_stop()
            ctx.progress(message, fraction)

        if not self.work.place.supply_image(reference, progress):
            return False
        ctx.note(f"{reference} was sent from this machine")
        return True


def check_node_image(reference: str, image: ImageView, architecture: str) -> None:
    """Refuse an image that does not promise what holdfast relies on."""
    contract = image.labels.get(labels.CONTRACT)
    if contract is None:
        raise ImageUnfitError(
            f"{reference} is no node image: the label {labels.CONTRACT} is missing",
            hint="Build one with `holdfast image build`.",
        )
    if architecture and image.architecture != architecture:
        raise ImageUnfitError(
            f"{reference} is for {image.architecture}, and this engine runs {architecture}",
            hint="Build or pull the image for this kind of machine.",
        )
    if contract != CONTRACT:
        raise ImageUnfitError(
            f"{reference} speaks contract {contract}, this holdfast speaks {CONTRACT}",
            hint="Use an image that was built for this version of holdfast.",
        )
