"""All sandboxes of one gateway: listing, creating, and a fresh one for a while.

Not here: what one sandbox can do (handle.py).
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast.sandbox.sdk.handle import WAIT_SECONDS, AsyncSandbox
from holdfast.sandbox.wire import SandboxList

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType
    from typing import Any, Self

    from holdfast.sandbox.sdk.connection import Connection
    from holdfast.sandbox.wire import SandboxView

_PAGE = 100


class AsyncSandboxes:
    """The sandboxes of one gateway; iterate over `list()`, or take one by name with `sandbox()`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def sandbox(self, name: str) -> AsyncSandbox:
        """One of them by name, over the same connection."""
        return AsyncSandbox(name, self._connection)

    async def list(self, *, label: str | None = None, page: int = _PAGE) -> AsyncIterator[SandboxView]:
        """All of them, or those with a label (`key=value`), page by page as they are asked for."""
        query = {"limit": str(page)} | ({"label": label} if label else {})
        while True:
            found = await self._connection.call("GET", "/v1/sandboxes", SandboxList, query=query)
            for view in found.items:
                yield view
            if not found.next:
                return
            query["continue"] = found.next

    async def create(self, name: str, image: str | None = None, **options: Any) -> AsyncSandbox:
        """Make a sandbox, or find it there and the same; does not wait until it is ready."""
        made = self.sandbox(name)
        await made.create(image, **options)
        return made

    @asynccontextmanager
    async def fresh(
        self,
        image: str | None = None,
        *,
        prefix: str = "fresh",
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 (the name that callers know)
        **options: Any,
    ) -> AsyncIterator[AsyncSandbox]:
        """A new sandbox that is ready, and that is deleted with its data when the block ends."""
        made = self.sandbox(f"{prefix}-{uuid4().hex[:8]}")
        try:
            await made.create(image, **options)
            await made.wait(timeout=timeout)
            yield made
        finally:
            await made.delete(ignore_missing=True)

    async def close(self) -> None:
        """Close the connection; the sandboxes stay."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
