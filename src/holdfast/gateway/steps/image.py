"""The node image: on the engine, or pulled; and really a node image for this machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.containers import labels
from holdfast.containers.images import ImageView, find_image, pull_image
from holdfast.containers.translation import is_transient
from holdfast.engine import Verdict, absent, done
from holdfast.errors import EngineCallError, HoldfastError, ImageMissingError, ImageUnfitError
from holdfast.gateway.profile import CONTRACT
from holdfast.gateway.push_names import registry_of
from holdfast.gateway.settings_logins import read_login
from holdfast.gateway.steps.base import GatewayStep, going_on

if TYPE_CHECKING:
    from holdfast.engine import Context

_REFUSED = re.compile(r"unauthorized|denied|no basic auth credentials|authentication required", re.IGNORECASE)


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
            self._look_before_it_goes(container.image_id)
            return done(f"the container has it ({container.image})")
        image = find_image(self.work.engine, reference)
        if image is None:
            return absent(f"{reference} is not on the engine")
        check_node_image(reference, image, self.work.engine.architecture)
        return done(f"{reference} is on the engine")

    def _look_before_it_goes(self, image_id: str) -> None:
        """A container that is to be replaced must have an image that another can be made of."""
        if self.work.replaces and find_image(self.work.engine, image_id) is None:
            raise ImageMissingError(
                f"the image of gateway {self.work.name} was removed from the engine; nothing was changed",
                hint="Name the image for the new container with --image.",
            )

    def run(self, ctx: Context) -> None:
        reference, unfit = self.work.spec.image, None
        try:
            if self._bring(ctx, reference):
                return
        except ImageUnfitError as error:
            unfit = error  # a registry may have it for the other host
        try:
            self._pull(ctx, reference)
        except (ImageMissingError, EngineCallError) as error:
            raise _not_to_be_had(reference, error, unfit) from error
        image = find_image(self.work.engine, reference)
        if image is not None:
            check_node_image(reference, image, self.work.engine.architecture)

    def _pull(self, ctx: Context, reference: str) -> None:
        secret = read_login(self.work.settings.registries, registry_of(reference))
        login = None
        if secret is not None:
            user, _, password = ctx.secret(secret.ref, secret.reveal()).text().partition(":")
            login = (user, ctx.secret(secret.ref, password).text())
        pull_image(self.work.engine, reference, progress=going_on(ctx), login=login)

    def _bring(self, ctx: Context, reference: str) -> bool:
        """To another host the image is sent from this machine, if it is here."""

        def check(image: ImageView) -> None:
            check_node_image(reference, image, self.work.engine.architecture)

        if not self.work.place.supply_image(reference, check, going_on(ctx)):
            return False
        ctx.note(f"{reference} was sent from this machine")
        return True


def _not_to_be_had(reference: str, error: HoldfastError, unfit: ImageUnfitError | None) -> HoldfastError:
    """Why an image cannot be pulled, and the ways to have it all the same."""
    if unfit is not None:
        return ImageUnfitError(
            f"{unfit.message}; it is not on that engine and cannot be pulled there: {error.message}",
            hint=unfit.hint,
        )
    what = f"the image {reference} is not on the engine and cannot be pulled: {error.message}"
    way_out = "build it with `holdfast image build`, or name another one with --image."
    if is_transient(error):
        return EngineCallError(what, hint=f"Run the same command again, or {way_out}")
    host = registry_of(reference)
    if _REFUSED.search(error.message):
        return ImageMissingError(
            what,
            hint=f"If {host} has it, it wants another login: set registries.credentials for {host}, "
            f"or `docker login {host}`. Else {way_out}",
        )
    return ImageMissingError(what, hint=f"Push it to {host} first, or {way_out}")


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
