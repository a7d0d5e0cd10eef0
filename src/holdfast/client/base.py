"""Base of the asynchronous clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from typing import Self

    from holdfast.client.transport import Transport

ImagePusher: TypeAlias = Callable[[str], bool]
"""Pushes an image from the local container engine into the gateway; False if it cannot. May block."""


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
