"""The step that provides the node image, and the check that an image is a node image for the engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.containers import ImageView, find_image, is_transient, labels, pull_image
from holdfast.errors import ContainerEngineError, HoldfastError, ImageIncompatibleError, ImageNotFoundError
from holdfast.gateway.base_steps import GatewayStep, progress_reporter
from holdfast.gateway.context import DEFAULT_IMAGE
from holdfast.gateway.registries import read_login, registry_host
from holdfast.gateway.spec import CONTRACT_VERSION
from holdfast.workflow import ProbeResult, absent, done

if TYPE_CHECKING:
    from holdfast.workflow import StepContext

_UNAUTHORIZED = re.compile(
    r"unauthorized|denied|no basic auth credentials|authentication required", re.IGNORECASE
)


class EnsureImage(GatewayStep):
    """Provide the node image on the engine; an existing container already has its image."""

    name = "ensure-image"
    title = "Node image"
    attempts_setting = "pull"
    needs = ("check-engine",)

    def probe(self, _ctx: StepContext) -> ProbeResult:
        gateway = self.gateway
        container, reference = gateway.container(), gateway.spec.image
        if container is not None and gateway.settings.image is None:
            # `replace-old` removes the container next; without its image no container could be created again.
            if gateway.replaces_container and find_image(gateway.engine, container.image_id) is None:
                raise ImageNotFoundError(
                    f"gateway {gateway.name}: its image was removed from the engine; nothing was changed",
                    hint="Choose the image of the new container with --image.",
                )
            return done(f"the container has it ({container.image})")
        image = find_image(gateway.engine, reference)
        if image is None:
            return absent(f"{reference} is not on the engine")
        check_node_image(reference, image, gateway.engine.architecture)
        return done(f"{reference} is on the engine")

    def run(self, ctx: StepContext) -> None:
        gateway, reference, incompatible_error = self.gateway, self.gateway.spec.image, None

        def check(image: ImageView) -> None:
            check_node_image(reference, image, gateway.engine.architecture)

        try:
            if gateway.host.transfer_image(reference, check, progress_reporter(ctx)):
                ctx.note(f"copied {reference} from this machine")
                return
        except ImageIncompatibleError as error:
            # A registry may have the image for the architecture of the remote host.
            incompatible_error = error
        try:
            self._pull(ctx, reference)
        except (ImageNotFoundError, ContainerEngineError) as error:
            raise _image_unavailable_error(reference, error, incompatible_error) from error
        image = find_image(gateway.engine, reference)
        if image is not None:
            check(image)

    def _pull(self, ctx: StepContext, reference: str) -> None:
        # Registered before the pull: an error of the registry may quote the login, or the password alone.
        secret = read_login(self.gateway.settings.registries, registry_host(reference))
        login = None
        if secret is not None:
            user, _, password = ctx.secret(secret.ref, secret.reveal()).text().partition(":")
            login = (user, ctx.secret(secret.ref, password).text())
        pull_image(self.gateway.engine, reference, progress=progress_reporter(ctx), login=login)


def _image_unavailable_error(
    reference: str, error: HoldfastError, incompatible_error: ImageIncompatibleError | None
) -> HoldfastError:
    """The error for an image that cannot be pulled, with the alternatives as its hint."""
    if incompatible_error is not None:
        return ImageIncompatibleError(
            f"{incompatible_error.message}; the remote engine has no other image and cannot pull one: "
            f"{error.message}",
            hint=incompatible_error.hint,
        )
    problem = f"image {reference}: not on the engine, and cannot be pulled: {error.message}"
    if reference == DEFAULT_IMAGE:
        return ImageNotFoundError(
            problem,
            hint="Build the images with `holdfast image build`, or load an archive of another machine with "
            "`holdfast image load FILE`.",
        )
    alternative = "build it with `holdfast image build`, or choose another one with --image."
    if is_transient(error):
        return ContainerEngineError(problem, hint=f"Run the same command again, or {alternative}")
    host = registry_host(reference)
    if _UNAUTHORIZED.search(error.message):
        return ImageNotFoundError(
            problem,
            hint=f"Log in to {host}: set registries.credentials for it, or use docker login. "
            f"Or {alternative}",
        )
    return ImageNotFoundError(problem, hint=f"Push it to {host} first, or {alternative}")


def check_node_image(reference: str, image: ImageView, architecture: str) -> None:
    """Raise ImageIncompatibleError unless the image is a node image for this architecture and holdfast."""
    contract = image.labels.get(labels.CONTRACT)
    if contract is None:
        raise ImageIncompatibleError(
            f"image {reference}: not a node image, the label {labels.CONTRACT} is missing",
            hint="Build one with `holdfast image build node`.",
        )
    if architecture and image.architecture != architecture:
        raise ImageIncompatibleError(
            f"image {reference}: built for {image.architecture}, but the engine runs {architecture}",
            hint=f"Build or pull the image for {architecture}.",
        )
    if contract != CONTRACT_VERSION:
        raise ImageIncompatibleError(
            f"image {reference}: has contract {contract}, but this holdfast needs {CONTRACT_VERSION}",
            hint="Use an image that was built for this version of holdfast.",
        )
