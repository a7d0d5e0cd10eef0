"""Asynchronous clients for the templates and the warm pools of a gateway.

    async with Gateway("dev").templates() as templates, Gateway("dev").pools() as pools:
        await templates.create("py", memory="1Gi")
        await pools.create("py-pool", template="py", size=3)
        await pools.wait("py-pool")

`holdfast.client.sync` has the same methods for programs without an event loop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from holdfast.api import (
    Phase,
    PoolChange,
    PoolDeletionResult,
    PoolEventType,
    PoolList,
    PoolView,
    SandboxClaimReason,
    TemplateDeletionResult,
    TemplateList,
    TemplateView,
)
from holdfast.client.base import NO_PUSH, AsyncClient, try_push
from holdfast.client.event_stream import watch_object
from holdfast.client.sandbox import DEFAULT_WAIT_TIMEOUT
from holdfast.client.watch import (
    IMAGE_PULL_REASONS,
    ImageMissingError,
    WaitState,
    evaluate_reason,
    explained_errors,
    own_image_hint,
    repeat_until,
    stop_at_missing_image,
    summarize,
    watch_until,
)
from holdfast.errors import (
    DeadlineExceededError,
    PoolNotFoundError,
    TemplateNotFoundError,
    WaitFailedError,
    WaitTimeoutError,
)
from holdfast.retry import Deadline
from holdfast.sandbox import (
    build_pool_change,
    build_pool_request,
    build_template_request,
    from_request,
    validate_name,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Unpack

    from holdfast.api import PoolOptions, PoolRequest, TemplateOptions
    from holdfast.client.base import ImagePush, ImagePusher
    from holdfast.client.transport import Transport
    from holdfast.errors import HoldfastError

P = TypeVar("P", PoolList, TemplateList)

_PAGE_SIZE = 100
_HTTP_CREATED = 201
_TEMPLATES, _POOLS = "/v1/templates", "/v1/pools"


class AsyncTemplates(AsyncClient):
    """Client for the templates of one gateway. `async for` iterates over all of them.

    Attributes:
        is_new: whether the gateway reported that the last `create` created the template. False if it existed
            already, and if the first response was lost, so that the client repeated the request.
    """

    def __init__(self, transport: Transport, *, push_image: ImagePusher | None = None) -> None:
        super().__init__(transport, push_image=push_image)
        self.is_new = False

    def __aiter__(self) -> AsyncIterator[TemplateView]:
        return self.list()

    async def list(self, *, page_size: int = _PAGE_SIZE) -> AsyncIterator[TemplateView]:
        """Iterate over the templates; the client requests pages of `page_size` as needed."""
        async for page in _iter_pages(self._transport, _TEMPLATES, TemplateList, page_size):
            for view in page.items:
                yield view

    async def create(
        self, /, name: str, image: str | None = None, **options: Unpack[TemplateOptions]
    ) -> TemplateView:
        """Create a template. If it exists with the same options, nothing happens.

        Args:
            name: name of the template.
            image: container image; holdfast's sandbox image if omitted.
            **options: fields of `holdfast.api.TemplateOptions`, such as `env` or `memory`.

        Raises:
            UsageError: an option is unknown or invalid.
            ObjectConflictError: a template with this name and other options exists.
        """
        body = build_template_request(name, image=image, **options)
        status, view = await self._transport.call_with_status("POST", _TEMPLATES, TemplateView, body=body)
        self.is_new = status == _HTTP_CREATED
        return view

    async def get(self, name: str) -> TemplateView:
        """Return one template.

        Raises:
            TemplateNotFoundError: no template has this name.
        """
        return await self._transport.call("GET", _template_path(name), TemplateView)

    async def delete(self, name: str, *, ignore_missing: bool = False) -> TemplateDeletionResult:
        """Delete a template. Sandboxes that were created from it stay.

        Args:
            name: name of the template.
            ignore_missing: succeed if the template does not exist.

        Returns:
            Whether the template existed, and the pools that still use it: they create no more sandboxes.

        Raises:
            TemplateNotFoundError: no template has this name, and `ignore_missing` is not set.
        """
        try:
            return await self._transport.call("DELETE", _template_path(name), TemplateDeletionResult)
        except TemplateNotFoundError as error:
            if not (ignore_missing or error.maybe_deleted):
                raise
            return TemplateDeletionResult(deleted=error.maybe_deleted)


class AsyncPools(AsyncClient):
    """Client for the warm pools of one gateway. `async for` iterates over all of them.

    A pool of one of holdfast's own sandbox images needs that image in the gateway. `create`, `scale` and
    `wait` push it from the local container engine if it is missing there.

    Attributes:
        is_new: whether the gateway reported that the last `create` created the pool; see `AsyncTemplates`.
    """

    def __init__(self, transport: Transport, *, push_image: ImagePusher | None = None) -> None:
        super().__init__(transport, push_image=push_image)
        self.is_new = False

    def __aiter__(self) -> AsyncIterator[PoolView]:
        return self.list()

    async def list(self, *, page_size: int = _PAGE_SIZE) -> AsyncIterator[PoolView]:
        """Iterate over the pools; the client requests pages of `page_size` as needed."""
        async for page in _iter_pages(self._transport, _POOLS, PoolList, page_size):
            for view in page.items:
                yield view

    async def create(self, /, name: str, template: str, **options: Unpack[PoolOptions]) -> PoolView:
        """Create a pool without waiting until it is ready; see `wait`.

        If the pool exists with the same template, size and update strategy, nothing happens.

        Args:
            name: name of the pool.
            template: template of its sandboxes.
            **options: fields of `holdfast.api.PoolOptions`: `size` (default: 1) and `update_strategy`.

        Raises:
            UsageError: an option is unknown or invalid, or the template does not exist.
            ObjectConflictError: a pool with this name that differs exists.
        """
        request = build_pool_request(name, template, **options)
        if push := self._push_image:
            image = await image_for_new_pool(self._transport, request)
            if image is not None:
                # A push may take minutes; in a thread it does not block the event loop. `wait` reports a
                # failure if the image is missing.
                await asyncio.to_thread(try_push, push, image)
        self.is_new, view = await send_pool_request(self._transport, request)
        return view

    async def get(self, name: str) -> PoolView:
        """Return one pool.

        Raises:
            PoolNotFoundError: no pool has this name.
        """
        return await self._transport.call("GET", _pool_path(name), PoolView)

    async def scale(self, name: str, size: int) -> PoolView:
        """Change the number of sandboxes that wait in a pool. Returns before they are ready; see `wait`.

        Args:
            name: name of the pool.
            size: the new number; 0 creates each sandbox on demand.

        Raises:
            PoolNotFoundError: no pool has this name.
            UsageError: the size is not valid.
        """
        change = build_pool_change(size)
        if push := self._push_image:
            image = await image_for_larger_pool(self._transport, name, change)
            if image is not None:
                await asyncio.to_thread(try_push, push, image)
        return await send_pool_change(self._transport, name, change)

    async def delete(self, name: str, *, ignore_missing: bool = False) -> PoolDeletionResult:
        """Delete a pool and the sandboxes that wait in it.

        Args:
            name: name of the pool.
            ignore_missing: succeed if the pool does not exist.

        Returns:
            Whether the pool existed, and the sandboxes that were created from it: they stay, with their data.

        Raises:
            PoolNotFoundError: no pool has this name, and `ignore_missing` is not set.
        """
        try:
            return await self._transport.call("DELETE", _pool_path(name), PoolDeletionResult)
        except PoolNotFoundError as error:
            if not (ignore_missing or error.maybe_deleted):
                raise
            return PoolDeletionResult(deleted=error.maybe_deleted)

    def watch(self, name: str) -> AsyncIterator[PoolView]:
        """Iterate over the current state of a pool and each change, until it is deleted.

        Raises:
            PoolNotFoundError: no pool has this name.
            ResponseLostError: the stream was interrupted; call `watch` again.
        """
        return watch_object(self._transport, _pool_path(name), PoolEventType.STATE, PoolView)

    async def wait(
        self,
        name: str,
        *,
        timeout: float = DEFAULT_WAIT_TIMEOUT,  # noqa: ASYNC109 (part of the public API)
        on_change: Callable[[PoolView], None] | None = None,
    ) -> PoolView:
        """Wait until the desired number of sandboxes is ready.

        Args:
            name: name of the pool.
            timeout: seconds to wait; the time to push a missing image does not count.
            on_change: called with each new state.

        Raises:
            PoolNotFoundError: the pool does not exist, or is deleted during the wait.
            WaitFailedError: its sandboxes cannot become ready without manual action.
            WaitTimeoutError: the timeout passed.
        """
        if self._push_image is None:
            return await wait_for_pool(self._transport, name, on_change, timeout=timeout)
        try:
            return await wait_for_pool(
                self._transport, name, on_change, timeout=timeout, detect_missing_image=True
            )
        except ImageMissingError as missing:
            seconds_left = missing.seconds_left
            push = await asyncio.to_thread(try_push, self._push_image, missing.image)
        return await wait_for_pool(self._transport, name, on_change, timeout=seconds_left, push=push)


async def image_for_new_pool(transport: Transport, request: PoolRequest) -> str | None:
    """Return the image to push before a pool is created: holdfast's own, if the pool does not exist yet."""
    if not request.size:
        return None
    try:
        await transport.call("GET", _pool_path(request.name), PoolView)
    except PoolNotFoundError:
        with suppress(TemplateNotFoundError):  # the creation fails, with the names of the existing templates
            template = await transport.call("GET", _template_path(request.template), TemplateView)
            return _own_image(template.image)
    return None


async def image_for_larger_pool(transport: Transport, name: str, change: PoolChange) -> str | None:
    """Return the image to push before a pool grows: holdfast's own, if no sandbox of the pool is ready."""
    pool = await transport.call("GET", _pool_path(name), PoolView)
    return None if pool.ready or change.size <= pool.size else _own_image(pool.image)


def _own_image(image: str | None) -> str | None:
    return image if image and from_request.is_sandbox_image(image) else None


async def send_pool_request(transport: Transport, request: PoolRequest) -> tuple[bool, PoolView]:
    """Create a pool; return whether the gateway reported that this request created it, and the pool."""
    status, view = await transport.call_with_status("POST", _POOLS, PoolView, body=request)
    return status == _HTTP_CREATED, view


async def send_pool_change(transport: Transport, name: str, change: PoolChange) -> PoolView:
    """Change the size of a pool."""
    _, view = await transport.call_with_status("PATCH", _pool_path(name), PoolView, body=change)
    return view


async def wait_for_pool(
    transport: Transport,
    name: str,
    on_change: Callable[[PoolView], None] | None = None,
    *,
    timeout: float,  # noqa: ASYNC109
    detect_missing_image: bool = False,
    push: ImagePush = NO_PUSH,
) -> PoolView:
    """Wait until a pool is ready; see `AsyncPools.wait`.

    Args:
        transport: connection to the gateway.
        name: name of the pool.
        on_change: called with each new state.
        timeout: seconds to wait.
        detect_missing_image: raise ImageMissingError at the first failed pull.
        push: the push of its image; the kubelet finds a pushed image at its next attempt.
    """
    path, deadline = _pool_path(name), Deadline.after(timeout)
    last: list[PoolView] = []
    if detect_missing_image:
        on_change = stop_at_missing_image(on_change, deadline)

    def evaluate(view: PoolView) -> WaitState:
        if view.phase == Phase.READY:
            return WaitState.REACHED
        if view.phase == Phase.DELETING:
            return WaitState.FAILED
        if push.is_pushed and view.reason in IMAGE_PULL_REASONS:
            return WaitState.PENDING
        return evaluate_reason(view.reason, view.message)

    async def follow() -> PoolView:
        stream = watch_object(transport, path, PoolEventType.STATE, PoolView)
        return await watch_until(stream, evaluate, _wait_failed_error, on_change=on_change, last=last)

    with explained_errors(transport, push):
        try:
            return await repeat_until(deadline, transport, f"wait for pool {name}", follow)
        except (TimeoutError, DeadlineExceededError) as error:
            summary = summarize(last[-1]) if last else "its state is unknown"
            raise WaitTimeoutError(
                f"pool {name}: not ready within {round(timeout, 1):g} s: {summary}",
                hint=f"Run `holdfast pool get {name}` to see its state, or `holdfast pool wait {name}` "
                "to keep waiting.",
                cause=error,
            ) from error


def _wait_failed_error(view: PoolView) -> HoldfastError:
    if view.phase == Phase.DELETING:
        return PoolNotFoundError(f"pool {view.name}: deleted or being deleted")
    hint = own_image_hint(view)
    if view.reason == SandboxClaimReason.TEMPLATE_NOT_FOUND:
        hint = f"Run `holdfast template create {view.template}`: the pool then creates its sandboxes."
    return WaitFailedError(
        f"pool {view.name}: cannot become ready: {summarize(view)}",
        hint=hint or f"Run `holdfast pool get {view.name}`. Correct the template, then create both again.",
    )


async def _iter_pages(
    transport: Transport, path: str, page_type: type[P], page_size: int
) -> AsyncIterator[P]:
    query = {"limit": str(page_size)}
    while True:
        page = await transport.call("GET", path, page_type, query=query)
        yield page
        if not page.next:
            return
        query["continue"] = page.next


def _template_path(name: str) -> str:
    return f"{_TEMPLATES}/{validate_name(name, 'template')}"


def _pool_path(name: str) -> str:
    return f"{_POOLS}/{validate_name(name, 'pool')}"
