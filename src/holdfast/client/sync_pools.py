"""Synchronous clients for templates and warm pools: the methods and docstrings of the asynchronous ones.

with Gateway("dev").templates() as templates, Gateway("dev").pools() as pools:
    templates.create("py", memory="1Gi")
    pools.create("py-pool", template="py", size=3)
    pools.wait("py-pool")
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.client import portal
from holdfast.client.base import try_push
from holdfast.client.blocking import blocking, iterator
from holdfast.client.pools import (
    AsyncPools,
    AsyncTemplates,
    image_for_larger_pool,
    image_for_new_pool,
    send_pool_change,
    send_pool_request,
    wait_for_pool,
)
from holdfast.client.sandbox import DEFAULT_WAIT_TIMEOUT
from holdfast.client.sync import _SyncClient
from holdfast.client.watch import ImageMissingError
from holdfast.sandbox import build_pool_change, build_pool_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Unpack

    from holdfast.api import PoolOptions, PoolView, TemplateView


class Templates(_SyncClient):
    """Client for the templates of one gateway. Iterate over it for all of them.

    The arguments are those of `Sandboxes`.
    """

    @cached_property
    def _delegate(self) -> AsyncTemplates:
        return AsyncTemplates(self._transport)

    async def __aenter__(self) -> AsyncTemplates:
        return AsyncTemplates(self._open_async_transport())

    def __iter__(self) -> Iterator[TemplateView]:
        return self.list()

    @property
    def is_new(self) -> bool:
        """Whether the gateway reported that the last `create` created the template; see `AsyncTemplates`."""
        return self._delegate.is_new

    create = blocking(AsyncTemplates.create)
    get = blocking(AsyncTemplates.get)
    delete = blocking(AsyncTemplates.delete)
    list = iterator(AsyncTemplates.list)


class Pools(_SyncClient):
    """Client for the warm pools of one gateway. Iterate over it for all of them.

    The arguments are those of `Sandboxes`. Images are pushed in the caller's thread, which receives Ctrl-C.
    """

    @cached_property
    def _delegate(self) -> AsyncPools:
        return AsyncPools(self._transport)

    async def __aenter__(self) -> AsyncPools:
        return AsyncPools(self._open_async_transport(), push_image=self._push_image)

    def __iter__(self) -> Iterator[PoolView]:
        return self.list()

    @property
    def is_new(self) -> bool:
        """Whether the gateway reported that the last `create` created the pool; see `AsyncPools`."""
        return self._delegate.is_new

    def create(self, /, name: str, template: str, **options: Unpack[PoolOptions]) -> PoolView:
        request = build_pool_request(name, template, **options)
        if self._push_image is not None:
            image = portal.run(image_for_new_pool(self._transport, request))
            if image is not None:
                try_push(self._push_image, image)  # `wait` reports a failure if the image is missing
        self._delegate.is_new, view = portal.run(send_pool_request(self._transport, request))
        return view

    def scale(self, name: str, size: int) -> PoolView:
        change = build_pool_change(size)
        if self._push_image is not None:
            image = portal.run(image_for_larger_pool(self._transport, name, change))
            if image is not None:
                try_push(self._push_image, image)  # `wait` reports a failure if the image is missing
        return portal.run(send_pool_change(self._transport, name, change))

    def wait(
        self,
        name: str,
        *,
        timeout: float = DEFAULT_WAIT_TIMEOUT,
        on_change: Callable[[PoolView], None] | None = None,
    ) -> PoolView:
        if self._push_image is None:
            return portal.run(wait_for_pool(self._transport, name, on_change, timeout=timeout))
        try:
            return portal.run(
                wait_for_pool(self._transport, name, on_change, timeout=timeout, detect_missing_image=True)
            )
        except ImageMissingError as missing:
            seconds_left = missing.seconds_left
            push = try_push(self._push_image, missing.image)
        return portal.run(wait_for_pool(self._transport, name, on_change, timeout=seconds_left, push=push))

    create.__doc__ = AsyncPools.create.__doc__
    scale.__doc__ = AsyncPools.scale.__doc__
    wait.__doc__ = AsyncPools.wait.__doc__

    get = blocking(AsyncPools.get)
    delete = blocking(AsyncPools.delete)
    watch = iterator(AsyncPools.watch)
    list = iterator(AsyncPools.list)
