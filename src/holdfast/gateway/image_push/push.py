"""Push images from this machine's container engine into a gateway's node.

Only missing images are sent, as one stream, and verified afterwards. `push_images` makes one attempt; the
step's policy retries it, and the next attempt sends only what is still missing. containerd names the images
of an archive after all of it is imported, so that an interrupted import leaves no image behind.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from holdfast.containers import (
    TransferProgress,
    find_image,
    find_volume,
    transfer_images,
    validate_reference,
    wait_for_exit,
)
from holdfast.errors import (
    ContainerEngineError,
    ContainerEnginePermissionError,
    ContainerEngineUnreachableError,
    GatewayNotFoundError,
    HoldfastError,
    ImageIncompatibleError,
    ImageNotFoundError,
    NodeStoppedError,
    UsageError,
    WaitTimeoutError,
)
from holdfast.gateway.base_steps import GatewayStep, progress_reporter
from holdfast.gateway.image_push import containerd_images
from holdfast.gateway.image_push.containerd_images import full_image_name, with_tag
from holdfast.gateway.node import NodeProgress, explain_node_failure
from holdfast.gateway.registry import check_recorded
from holdfast.gateway.spec import GATEWAY_IMAGE
from holdfast.retry import Policy, constant, exponential
from holdfast.workflow import ProbeResult, absent, done, partial

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from holdfast.containers import ImageView
    from holdfast.gateway.context import GatewayContext
    from holdfast.workflow import StepContext


# Retries while containerd is not ready, and after a lost connection or a truncated stream.
PUSH_RETRY_POLICY = Policy(
    attempts=4, backoff=exponential(0.5, cap=5), retry_on=containerd_images.is_push_retryable
)

_NODE_EXIT_SECONDS = 3.0


class PushedImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image with its full name in the node."""

    reference: str
    name: str
    id: str
    size: int


def push_images(
    gateway: GatewayContext,
    references: Sequence[str],
    *,
    progress: Callable[[str, float | None], None],
    stop: threading.Event | None = None,
) -> list[PushedImage]:
    """Push images into the gateway's node; those that it already has are not sent.

    Args:
        gateway: The gateway.
        references: Image names on this machine's container engine.
        progress: Receives a message and the completed fraction.
        stop: Set to cancel the push.

    Returns:
        The images that the node did not have.

    Raises:
        UsageError, ImageNotFoundError, ImageIncompatibleError: As `find_local_image`; nothing was sent.
        GatewayNotFoundError, NodeStoppedError: The gateway does not exist or does not run.
        WaitTimeoutError: The import did not finish, or the node does not list an image in time.
        DiskFullError: The gateway's volume is full.
        ContainerEngineError: A call to an engine or to containerd failed; `is_push_retryable` classifies it.
        OperationCancelledError: `stop` is set.
    """
    images = [find_local_image(gateway, reference) for reference in dict.fromkeys(references)]
    try:
        missing = missing_images(gateway, images)
        # An image that the node has under another name needs only a tag, not a transfer.
        unknown = _tag_existing(gateway, missing) if missing else []
        if unknown:
            _stream_images(gateway, unknown, progress, stop)
            for image in unknown:
                containerd_images.tag_config_digest(gateway, image.name, image.id)
        if missing:
            _verify_images(gateway, missing, stop)
    except ContainerEngineError as error:
        # A node that was just killed may take a moment to exit; its error is the one to report.
        if containerd_images.is_containerd_not_ready(error) or wait_for_exit(
            gateway.engine, gateway.object_name, timeout=_NODE_EXIT_SECONDS
        ):
            check_gateway_running(gateway)
        raise
    return missing


def find_gateway_image(gateway: GatewayContext) -> ImageView | None:
    """The image of the workloads on this machine's engine, or None.

    A machine that manages a remote gateway needs no usable engine: the node has the image already.
    """
    try:
        return find_image(gateway.local_engine, GATEWAY_IMAGE)
    except (ContainerEngineUnreachableError, ContainerEnginePermissionError):
        if gateway.host.remote:
            return None
        raise


def find_local_image(gateway: GatewayContext, reference: str) -> PushedImage:
    """Find an image on this machine's engine.

    Raises:
        ImageNotFoundError: The engine does not have it.
        ImageIncompatibleError: It is for another architecture than the gateway's host.
        UsageError: The reference is a digest or an image id.
    """
    tagged = with_tag(validate_reference(reference))
    image = find_image(gateway.local_engine, tagged)
    if image is None:
        raise _image_missing_error(gateway, reference)
    architecture = gateway.engine.architecture
    if architecture and image.architecture and image.architecture != architecture:
        raise ImageIncompatibleError(
            f"{reference}: built for {image.architecture}, but gateway {gateway.name} runs on {architecture}",
            hint=f"Build it for the platform linux/{architecture}.",
        )
    return PushedImage(reference=reference, name=full_image_name(tagged), id=image.id, size=image.size)


def _image_missing_error(gateway: GatewayContext, reference: str) -> HoldfastError:
    if find_image(gateway.local_engine, reference) is not None:
        return UsageError(
            f"{reference}: an image in the node needs a name, not an image id",
            hint="Give it a name with docker tag, and push that name.",
        )
    return ImageNotFoundError(
        f"image {reference}: not on this machine's container engine",
        hint="Build or pull it, then run the same command again.",
    )


def missing_images(gateway: GatewayContext, images: Sequence[PushedImage]) -> list[PushedImage]:
    """Those of the images that the node does not have, or has under that name with other content."""
    check_gateway_running(gateway)
    digests = containerd_images.config_digests(gateway, {image.name: image.id for image in images})
    return [image for image in images if digests.get(image.name) != image.id]


def _tag_existing(gateway: GatewayContext, missing: Sequence[PushedImage]) -> list[PushedImage]:
    """Tag the images that the node has under another name; return the others."""
    known = containerd_images.known_config_digests(gateway, [image.id for image in missing])
    for image in missing:
        if image.id in known:
            containerd_images.tag_image(gateway, image.id, image.name)
    return [image for image in missing if image.id not in known]


def _stream_images(
    gateway: GatewayContext,
    missing: Sequence[PushedImage],
    progress: Callable[[str, float | None], None],
    stop: threading.Event | None,
) -> None:
    names = ", ".join(image.reference for image in missing)
    # By id: the archive contains an image with several names only once.
    meter = TransferProgress(max(1, sum({image.id: image.size for image in missing}.values())), progress)
    progress(f"saving {names}", None)
    timeouts, started = gateway.settings.timeouts, time.monotonic()
    result = transfer_images(
        gateway.local_engine,
        [with_tag(image.reference) for image in missing],
        gateway.engine,
        gateway.object_name,
        containerd_images.import_command(timeouts.push),
        progress=meter,
        read_timeout=timeouts.image,
        stop=stop,
    )
    if result.exit_code == 0:
        return
    # `ctr` reports its timeout as "context deadline exceeded", which counts as transient: without this check,
    # a retry would send everything again.
    if time.monotonic() - started >= timeouts.push:
        raise WaitTimeoutError(
            f"{names}: not imported within {timeouts.push:g} s",
            hint="Raise the timeout (HOLDFAST_TIMEOUTS_PUSH=7200), then run the same command again.",
        )
    raise containerd_images.ctr_error(result)


def _verify_images(
    gateway: GatewayContext, sent: Sequence[PushedImage], stop: threading.Event | None
) -> None:
    """Wait until the CRI plugin lists the images; containerd notifies it of an import asynchronously."""

    def verify() -> None:
        if missing := missing_images(gateway, sent):
            raise WaitTimeoutError(
                f"{missing[0].reference}: sent, but the node does not list {missing[0].id}"
            )

    def is_retryable(error: Exception) -> bool:
        return isinstance(error, WaitTimeoutError) or containerd_images.is_push_retryable(error)

    seconds = gateway.settings.timeouts.runtime
    policy = Policy(attempts=None, deadline=seconds, backoff=constant(0.1), retry_on=is_retryable, stop=stop)
    policy.call(verify)


def check_gateway_running(gateway: GatewayContext) -> None:
    """Raise an error unless the gateway exists and runs."""
    container = gateway.container()
    if container is None:
        check_recorded(gateway.name)
        raise GatewayNotFoundError(
            f"gateway {gateway.name}: does not exist",
            hint=f"Run `holdfast up {gateway.name}`.",
        )
    if container.state != "running":
        raise NodeStoppedError(
            f"gateway {gateway.name}: does not run ({container.state})",
            hint=f"Run `holdfast start {gateway.name}`.",
        )


class CheckLocalImages(GatewayStep):
    """Check that all images to push exist, before anything is created; changes nothing."""

    name = "check-images"
    title = "Images to push"
    needs = ("check-engine",)
    repeat = "always"

    def run(self, ctx: StepContext) -> None:
        gateway = self.gateway
        images = [find_local_image(gateway, reference) for reference in gateway.settings.push_images]
        if gateway.settings.workloads and find_gateway_image(gateway) is None:
            # containerd stores its images on the volume: without one, the node cannot have the image.
            if find_volume(gateway.engine, gateway.object_name) is None:
                raise gateway_image_missing_error()
            ctx.note("the gateway image has to be in the node already")
            return
        ctx.note(_image_count(len(images) + gateway.settings.workloads))


class PushImages(GatewayStep):
    """Push images, so that the node has them with the content of this machine's engine."""

    name = "push-images"
    title = "Images"
    policy = PUSH_RETRY_POLICY
    attempts_setting = "push"

    def __init__(self, gateway: GatewayContext, references: Sequence[str]) -> None:
        super().__init__(gateway)
        self.references = references

    def probe(self, _ctx: StepContext) -> ProbeResult:
        images = [find_local_image(self.gateway, reference) for reference in self.references]
        container = self.gateway.container()
        if container is None or container.state != "running":
            return absent("the node does not run yet")
        missing = missing_images(self.gateway, images)
        if not missing:
            return done(f"{_image_count(len(images))} in the node")
        reason = f"{missing[0].reference} is not in the node, or differs"
        return absent(reason) if len(missing) == len(images) else partial(reason)

    def run(self, ctx: StepContext) -> list[str]:
        sent = push_images(self.gateway, self.references, progress=progress_reporter(ctx), stop=ctx.stop)
        megabytes = sum({image.id: image.size for image in sent}.values()) / 1e6
        ctx.note(f"{_image_count(len(sent))}, {megabytes:.0f} MB" if sent else "no image was missing")
        return [image.reference for image in sent]


class PushGatewayImage(PushImages):
    """Push the image of the gateway's workloads while Kubernetes starts; it is small, others may not be."""

    name = "push-gateway-image"
    title = "Gateway image"
    needs = ("wait-runtime",)

    def __init__(self, gateway: GatewayContext) -> None:
        super().__init__(gateway, (GATEWAY_IMAGE,))

    def probe(self, ctx: StepContext) -> ProbeResult:
        if find_gateway_image(self.gateway) is None:
            # The engine may have lost it (`docker image prune`) while the node still has it.
            return done("not on this machine's engine; the node keeps the image it has")
        return super().probe(ctx)

    def run(self, ctx: StepContext) -> list[str]:
        try:
            return super().run(ctx)
        except NodeStoppedError as error:
            # The node was still starting: its log has the reason.
            raise explain_node_failure(self.gateway, NodeProgress()) from error


def gateway_image_missing_error() -> ImageNotFoundError:
    """Return the error for a gateway image that neither the container engine nor the node has."""
    return ImageNotFoundError(
        f"image {GATEWAY_IMAGE}: neither on the container engine nor in the node",
        hint="Build it with `holdfast image build gateway`, load an archive of another machine with "
        "`holdfast image load FILE`, or disable holdfast's workloads with HOLDFAST_WORKLOADS=false.",
    )


def _image_count(number: int) -> str:
    return "1 image" if number == 1 else f"{number} images"
