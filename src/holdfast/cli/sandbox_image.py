"""Holdfast's own sandbox image in a gateway that lacks it: put there when a sandbox first needs it.

A gateway looks for an image on its node, then in registries; the one that was built on this machine is in
neither until it is pushed. Not here: images that people name (`holdfast image push`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, WaitFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.cli.progress import Progress
    from holdfast.sandbox.sdk import Sandbox
    from holdfast.sandbox.wire import SandboxView

_IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull")


def with_own_image(
    gateway: str, box: Sandbox, shown: Progress, wait: Callable[[], SandboxView], *, timeout: float
) -> SandboxView:
    """Wait for a sandbox of our own image; where the gateway lacks it, push it and start the pod anew."""
    try:
        return wait()
    except WaitFailedError:
        view = box.get()
        if view.reason not in _IMAGE_REASONS or not view.image or not _pushed(gateway, view.image, shown):
            raise
    box.suspend()
    box.wait("Suspended", timeout=timeout)
    box.resume()
    return wait()


def _pushed(gateway: str, image: str, shown: Progress) -> bool:
    from holdfast.gateway import commands

    try:
        return bool(commands.push(gateway, [image], shown.bus).pushed)
    except HoldfastError:
        return False  # what the sandbox itself said is what counts, and its hint names the push
