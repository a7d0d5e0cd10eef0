"""Base of the asynchronous clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from holdfast.errors import HoldfastError, OperationCancelledError

if TYPE_CHECKING:
    from typing import Self

    from holdfast.client.transport import Transport

ImagePusher: TypeAlias = Callable[[str], bool]
"""Pushes an image from the local container engine into the gateway. May block.

Returns whether the gateway has the image now: False for an image that is not pushed.
Raises a HoldfastError if the push fails.
"""


class ImagePush(NamedTuple):
    """The end of a push: whether the gateway has the image now, or why the push failed."""

    is_pushed: bool = False
    error: HoldfastError | None = None


NO_PUSH = ImagePush()


def try_push(push: ImagePusher, image: str) -> ImagePush:
    """Push an image that a node may still get without it; Ctrl-C ends the call."""
    try:
        return ImagePush(push(image))
    except OperationCancelledError:
        raise
    except HoldfastError as error:
        return ImagePush(error=error)


class AsyncClient:
    """Base of the asynchronous clients. `async with` closes the transport, unless another client owns it."""

    _owns_transport = True

    def __init__(self, transport: Transport, *, push_image: ImagePusher | None = None) -> None:
        self._transport = transport
        self._push_image = push_image

    async def close(self) -> None:
        """Close the connection, unless it belongs to another client. Sandboxes are not affected."""
        if self._owns_transport:
            await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def query_bool(value: bool) -> str:
    """Return a boolean query parameter."""
    return "true" if value else "false"
