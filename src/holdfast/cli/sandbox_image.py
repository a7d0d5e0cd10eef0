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
    from holdfast.cli.sandbox_common import Stage
    from holdfast.sandbox.sdk import Sandbox
    from holdfast.sandbox.wire import SandboxView

_IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull")


def with_own_image(
    gateway: str,
    box: Sandbox,
    shown: Progress,
    wait: Callable[[Callable[[SandboxView, Stage], None]], SandboxView],
    *,
    timeout: float,
) -> SandboxView:
    """Wait for a sandbox of our own image; where the gateway lacks it, push it and start the pod anew.

    One that was there and sleeps is woken up: a create that was ended in the midst of that left it so.
    """
    try:
        return wait(_refuse_lacking)
    except WaitFailedError as error:
        view = error.view if isinstance(error, _LackedError) else box.get()
        if view.phase == "Suspended" and not box.made:
            box.resume()
            return wait(_ignore)
        if view.reason not in _IMAGE_REASONS or not view.image or not _pushed(gateway, view.image, shown):
            if isinstance(error, _LackedError):
                return wait(_ignore)  # it may still come from a registry, or says itself why not
            raise
    box.suspend()
    box.wait("Suspended", timeout=timeout)
    box.resume()
    return wait(_ignore)


class _LackedError(WaitFailedError):
    """The node has no such image, and no registry gave it at once."""

    def __init__(self, view: SandboxView) -> None:
        super().__init__(f"the gateway has no image {view.image}")
        self.view = view


def _refuse_lacking(view: SandboxView, at: Stage) -> None:
    """End the wait at the first sign: our image is on this machine, and waiting for a registry is in vain."""
    if view.reason in _IMAGE_REASONS:
        at.put_off = f"not yet: the gateway has no image {view.image}"
        raise _LackedError(view)


def _ignore(_view: SandboxView, _at: Stage) -> None:
    return


def _pushed(gateway: str, image: str, shown: Progress) -> bool:
    from holdfast.gateway import commands

    try:
        return bool(commands.push(gateway, [image], shown.bus).pushed)
    except HoldfastError:
        return False  # what the sandbox itself said is what counts, and its hint names the push
