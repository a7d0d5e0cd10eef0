"""Asynchronous client for all sandboxes of a gateway."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar, cast
from uuid import uuid4

from holdfast.api import Phase, SandboxList, SandboxView, UsageReport
from holdfast.client.base import AsyncClient
from holdfast.client.bulk import BulkResult, run_for_each, share_pushes, wait_for_each
from holdfast.client.list_watch import watch_list
from holdfast.client.sandbox import DEFAULT_WAIT_TIMEOUT, AsyncSandbox
from holdfast.retry import Deadline
from holdfast.sandbox import build_request, validate_selector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from typing import Unpack

    from holdfast.api import DeletionResult, SandboxChange, SandboxOptions
    from holdfast.client.bulk import BulkOutcome

T = TypeVar("T")

_PAGE_SIZE = 100
_RECONNECT_TIMEOUT = 300.0


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
        self, *, selector: str | None = None, page_size: int = _PAGE_SIZE
    ) -> AsyncIterator[SandboxView]:
        """Iterate over sandboxes; the client requests pages as needed.

        Args:
            selector: only sandboxes with these labels, as in kubectl: `team=blue,tier in (web, db),!old`.
            page_size: sandboxes per request.

        Raises:
            UsageError: the selector is not valid.
        """
        query = {"limit": str(page_size)} | _selector_query(selector)
        while True:
            page = await self._transport.call("GET", "/v1/sandboxes", SandboxList, query=query)
            for view in page.items:
                yield view
            if not page.next:
                return
            query["continue"] = page.next

    async def watch(
        self, *, selector: str | None = None, reconnect_timeout: float = _RECONNECT_TIMEOUT
    ) -> AsyncIterator[SandboxChange]:
        """Iterate over the existing sandboxes as `added`, then over each change, without end.

        After a lost connection, the client watches again and reports what changed meanwhile. The states have
        the fields of `list`. A sandbox that the selector no longer selects is reported as `deleted`.

        Args:
            selector: only sandboxes with these labels; see `list`.
            reconnect_timeout: seconds without a connection after which the error is raised.

        Raises:
            UsageError: the selector is not valid.
            ApiUnreachableError: the gateway's API does not answer.
        """
        query = _selector_query(selector)
        changes = watch_list(self._transport, query.get("selector"), reconnect_timeout)
        try:
            async for change in changes:
                yield change
        finally:
            await changes.aclose()

    async def create(
        self, /, name: str, image: str | None = None, **options: Unpack[SandboxOptions]
    ) -> AsyncSandbox:
        """Create a sandbox without waiting until it is ready; see `AsyncSandbox.create`."""
        sandbox = self.sandbox(name)
        await sandbox.create(image, **options)
        return sandbox

    async def get(
        self,
        names: Iterable[str],
        *,
        on_outcome: Callable[[BulkOutcome[SandboxView]], None] | None = None,
    ) -> BulkResult[SandboxView]:
        """Return the states of several sandboxes concurrently; see `Sandbox.get` and `suspend`."""
        return await run_for_each(names, lambda name: self.sandbox(name).get(), on_outcome)

    async def usage(self) -> UsageReport:
        """Return the CPU, memory and disk that the sandboxes and their node use, in one request.

        The kubelet measures every 10 to 20 seconds. A figure that is not known is None.
        """
        return await self._transport.call("GET", "/v1/usage", UsageReport)

    async def suspend(
        self,
        names: Iterable[str],
        *,
        wait: bool = False,
        timeout: float = DEFAULT_WAIT_TIMEOUT,  # noqa: ASYNC109 (part of the public API)
        on_outcome: Callable[[BulkOutcome[SandboxView]], None] | None = None,
    ) -> BulkResult[SandboxView]:
        """Suspend several sandboxes concurrently; a failure of one does not stop the others.

        Args:
            names: names of the sandboxes, such as `[view.name for view in sandboxes.list(selector=...)]`.
            wait: wait until each one is suspended.
            timeout: seconds to wait for all of them.
            on_outcome: called with each outcome when it is known.

        Returns:
            The outcomes in the order of the names; call `raise_for_failures()` to raise an error.
        """

        async def wait_suspended(sandbox: AsyncSandbox, _view: SandboxView, seconds: float) -> SandboxView:
            return await sandbox.wait(Phase.SUSPENDED, timeout=seconds)

        return await self._request_and_wait(
            names, AsyncSandbox.suspend, wait_suspended if wait else None, timeout, on_outcome
        )

    async def resume(
        self,
        names: Iterable[str],
        *,
        wait: bool = False,
        timeout: float = DEFAULT_WAIT_TIMEOUT,  # noqa: ASYNC109 (part of the public API)
        on_outcome: Callable[[BulkOutcome[SandboxView]], None] | None = None,
    ) -> BulkResult[SandboxView]:
        """Resume several sandboxes concurrently, like `suspend`; `wait` waits until each one is ready."""

        async def wait_ready(sandbox: AsyncSandbox, _view: SandboxView, seconds: float) -> SandboxView:
            return await sandbox.wait(timeout=seconds)

        return await self._request_and_wait(
            names, AsyncSandbox.resume, wait_ready if wait else None, timeout, on_outcome
        )

    async def delete(
        self,
        names: Iterable[str],
        *,
        keep_workspace: bool = False,
        ignore_missing: bool = False,
        wait: bool = False,
        timeout: float = DEFAULT_WAIT_TIMEOUT,  # noqa: ASYNC109 (part of the public API)
        on_outcome: Callable[[BulkOutcome[DeletionResult]], None] | None = None,
    ) -> BulkResult[DeletionResult]:
        """Delete several sandboxes concurrently, like `suspend`.

        Args:
            names: names of the sandboxes.
            keep_workspace: keep the PVCs with the data.
            ignore_missing: succeed for sandboxes that do not exist.
            wait: wait until each one is gone.
            timeout: seconds to wait for all of them.
            on_outcome: called with each outcome when it is known.
        """

        async def delete(sandbox: AsyncSandbox) -> DeletionResult:
            return await sandbox.delete(keep_workspace=keep_workspace, ignore_missing=ignore_missing)

        async def wait_gone(sandbox: AsyncSandbox, result: DeletionResult, seconds: float) -> DeletionResult:
            await sandbox.wait_gone(timeout=seconds)
            return result

        return await self._request_and_wait(names, delete, wait_gone if wait else None, timeout, on_outcome)

    async def wait(
        self,
        names: Iterable[str],
        phase: Phase | str = Phase.READY,
        *,
        timeout: float = DEFAULT_WAIT_TIMEOUT,  # noqa: ASYNC109 (part of the public API)
        on_outcome: Callable[[BulkOutcome[SandboxView]], None] | None = None,
    ) -> BulkResult[SandboxView]:
        """Wait until each of several sandboxes reaches a phase, like `suspend`; see `Sandbox.wait`."""
        client = self._bulk_client()
        return await wait_for_each(
            names,
            lambda name, seconds: client(name).wait(phase, timeout=seconds),
            Deadline.after(timeout),
            on_outcome,
        )

    async def wait_gone(
        self,
        names: Iterable[str],
        *,
        timeout: float = DEFAULT_WAIT_TIMEOUT,  # noqa: ASYNC109 (part of the public API)
        on_outcome: Callable[[BulkOutcome[None]], None] | None = None,
    ) -> BulkResult[None]:
        """Wait until each of several sandboxes no longer exists, like `suspend`."""
        return await wait_for_each(
            names,
            lambda name, seconds: self.sandbox(name).wait_gone(timeout=seconds),
            Deadline.after(timeout),
            on_outcome,
        )

    def _bulk_client(self) -> Callable[[str], AsyncSandbox]:
        """Return a function like `sandbox` whose clients push a missing image once for all of them."""
        push_image = share_pushes(self._push_image)

        def client(name: str) -> AsyncSandbox:
            sandbox = self.sandbox(name)
            sandbox._push_image = push_image  # noqa: SLF001 (same base class)
            return sandbox

        return client

    async def _request_and_wait(
        self,
        names: Iterable[str],
        request: Callable[[AsyncSandbox], Awaitable[T]],
        wait: Callable[[AsyncSandbox, T, float], Awaitable[T]] | None,
        seconds: float,
        on_outcome: Callable[[BulkOutcome[T]], None] | None,
    ) -> BulkResult[T]:
        """Send the requests of all sandboxes before the first wait, so that all pods change concurrently."""
        deadline = Deadline.after(seconds)

        def report(outcome: BulkOutcome[T]) -> None:
            if on_outcome is not None and (wait is None or outcome.error is not None):
                on_outcome(outcome)

        client = self._bulk_client()
        requested = await run_for_each(names, lambda name: request(client(name)), report)
        if wait is None:
            return requested
        results = {each.name: cast("T", each.result) for each in requested if each.error is None}
        waited = await wait_for_each(
            results, lambda name, seconds: wait(client(name), results[name], seconds), deadline, on_outcome
        )
        finished = {each.name: each for each in waited}
        return BulkResult([finished.get(each.name, each) for each in requested])

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
        build_request(sandbox.name, image=image, **options)  # nothing to delete after an invalid option
        try:
            # Inside `try`: a creation that failed with a lost response may still have created the sandbox.
            await sandbox.create(image, **options)
            await sandbox.wait(timeout=timeout)
            yield sandbox
        finally:
            await sandbox.delete(ignore_missing=True)


def _selector_query(selector: str | None) -> dict[str, str]:
    return {} if selector is None else {"selector": validate_selector(selector)}
