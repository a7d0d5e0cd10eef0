"""Asynchronous client for all sandboxes of a gateway."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast.api import SandboxList, SandboxView
from holdfast.client.base import AsyncClient
from holdfast.client.sandbox import DEFAULT_WAIT_TIMEOUT, AsyncSandbox
from holdfast.errors import ArgumentTypeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Unpack

    from holdfast.api import SandboxOptions

_PAGE_SIZE = 100


class AsyncSandboxes(AsyncClient):
    """Client for the sandboxes of one gateway. `async for` iterates over all of them."""

    def __aiter__(self) -> AsyncIterator[SandboxView]:
        return self.list()

    def sandbox(self, name: str) -> AsyncSandbox:
        """Return a client for one sandbox that shares this connection; only this client closes it."""
        sandbox = AsyncSandbox(name, self._transport, push_image=self._push_image)
        sandbox._owns_transport = False  # noqa: SLF001 (same base class)
        return sandbox

    async def list(
        self, *, label: str | None = None, page_size: int = _PAGE_SIZE
    ) -> AsyncIterator[SandboxView]:
        """Iterate over sandboxes; the client requests pages as needed.

        Args:
            label: only sandboxes with this label, as `key=value`.
            page_size: sandboxes per request.

        Raises:
            UsageError: the label has another form.
        """
        if label is not None and not isinstance(label, str):
            raise ArgumentTypeError("label", f"must be text of the form 'key=value', not {label!r}")
        query = {"limit": str(page_size)} | ({"label": label} if label else {})
        while True:
            page = await self._transport.call("GET", "/v1/sandboxes", SandboxList, query=query)
            for view in page.items:
                yield view
            if not page.next:
                return
            query["continue"] = page.next

    async def create(
        self, /, name: str, image: str | None = None, **options: Unpack[SandboxOptions]
    ) -> AsyncSandbox:
        """Create a sandbox without waiting until it is ready; see `AsyncSandbox.create`."""
        sandbox = self.sandbox(name)
        await sandbox.create(image, **options)
        return sandbox

    @asynccontextmanager
    async def temporary(
        self,
        /,
        image: str | None = None,
        *,
        prefix: str = "tmp",
        timeout: float = DEFAULT_WAIT_TIMEOUT,  # noqa: ASYNC109 (part of the public API)
        **options: Unpack[SandboxOptions],
    ) -> AsyncIterator[AsyncSandbox]:
        """Create a sandbox, wait until it is ready, and delete it with its data after the block.

        Args:
            image: container image; holdfast's sandbox image if omitted.
            prefix: start of the generated name.
            timeout: seconds to wait until it is ready.
            **options: fields of `holdfast.api.SandboxOptions`.

        Raises:
            UsageError: an option is unknown or invalid.
            WaitFailedError: the sandbox cannot become ready without manual action.
            WaitTimeoutError: it was not ready within the timeout.
        """
        sandbox = self.sandbox(f"{prefix}-{uuid4().hex[:8]}")
        try:
            # Inside `try`: a creation that failed with a lost response may still have created the sandbox.
            await sandbox.create(image, **options)
            await sandbox.wait(timeout=timeout)
            yield sandbox
        finally:
            await sandbox.delete(ignore_missing=True)
