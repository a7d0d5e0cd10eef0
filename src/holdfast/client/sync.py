"""Synchronous clients, generated from the asynchronous ones: same methods, parameters and docstrings.

    with Gateway("dev").sandbox("a") as sandbox:
        sandbox.create()
        sandbox.wait()
        print(sandbox.exec("uname", "-a").text)

`async with Gateway("dev").sandbox("a") as sandbox:` gives the asynchronous client. Leaving the block closes
the connection; the sandbox remains until `delete()`.
"""

from __future__ import annotations

import functools
import weakref
from functools import partial
from typing import TYPE_CHECKING, Literal, cast, overload

from holdfast.api import Phase
from holdfast.client import portal
from holdfast.client.base import try_push
from holdfast.client.blocking import (
    ExecSession,
    blocking as _blocking,
    context as _context,
    iterator as _iterator,
)
from holdfast.client.sandbox import DEFAULT_WAIT_TIMEOUT, AsyncSandbox
from holdfast.client.sandboxes import AsyncSandboxes
from holdfast.client.secrets import AsyncSecrets
from holdfast.client.transport import Transport
from holdfast.client.watch import ImageMissingError, wait_for_phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from os import PathLike
    from typing import Self, Unpack

    from holdfast.api import SandboxOptions, SandboxView
    from holdfast.client.base import ImagePusher
    from holdfast.client.blocking_handles import BackgroundCommand, Files
    from holdfast.client.exec import ExecResult
    from holdfast.client.transport import EndpointResolver
    from holdfast.retry import RetryListener


class _SyncClient:
    """Base of the synchronous clients: one transport for itself, another for `async with`."""

    def __init__(
        self,
        resolve_endpoint: EndpointResolver,
        *,
        on_retry: RetryListener | None = None,
        push_image: ImagePusher | None = None,
        parent: _SyncClient | None = None,
    ) -> None:
        self._resolve_endpoint = resolve_endpoint
        self._on_retry = on_retry
        self._push_image = push_image
        # The reference also keeps the parent alive, whose finalizer closes the shared connection.
        self._parent = parent
        self._transport: Transport = parent._transport if parent else self._new_transport()  # noqa: SLF001
        # An aiohttp session belongs to one event loop: `async with` uses the caller's loop, not the portal's.
        self._async_transport: Transport | None = None
        if parent is None:
            # Close the connection of a client that is dropped without `close()`.
            weakref.finalize(self, _close_transport, self._transport)

    def close(self) -> None:
        """Close the connection, unless it belongs to another client. Sandboxes are not affected."""
        if self._parent is None:
            portal.run(self._transport.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aexit__(self, *exc_info: object) -> None:
        transport, self._async_transport = self._async_transport, None
        if transport is not None:
            await transport.close()

    def _new_transport(self) -> Transport:
        return Transport(self._resolve_endpoint, on_retry=self._on_retry)

    def _open_async_transport(self) -> Transport:
        self._async_transport = self._new_transport()
        return self._async_transport


# Not a method: the finalizer would keep a reference to the client, so that it would never run.
def _close_transport(transport: Transport) -> None:
    if transport.is_open:
        portal.run_cleanup(transport.close())


class Sandbox(_SyncClient):
    """Client for one sandbox, which may not exist yet. Sends no request until a method is called.

    Args:
        name: name of the sandbox.
        resolve_endpoint: returns the address and client certificate of the gateway.
        on_retry: called for every retried request.
        push_image: pushes a local image that the gateway cannot pull; `wait` calls it.
        parent: client whose connection to share; only the parent closes it.

    Raises:
        UsageError: the name is not valid.
    """

    def __init__(
        self,
        name: str,
        resolve_endpoint: EndpointResolver,
        *,
        on_retry: RetryListener | None = None,
        push_image: ImagePusher | None = None,
        parent: Sandboxes | None = None,
    ) -> None:
        super().__init__(resolve_endpoint, on_retry=on_retry, push_image=push_image, parent=parent)
        # Without `push_image`: `wait` calls it in the caller's thread.
        self._delegate = AsyncSandbox(name, self._transport)

    async def __aenter__(self) -> AsyncSandbox:
        return AsyncSandbox(self.name, self._open_async_transport(), push_image=self._push_image)

    @property
    def name(self) -> str:
        """Name of the sandbox."""
        return self._delegate.name

    @property
    def is_new(self) -> bool:
        """Whether the gateway reported that the last `create` created the sandbox; see `AsyncSandbox`."""
        return self._delegate.is_new

    create = _blocking(AsyncSandbox.create)
    get = _blocking(AsyncSandbox.get)
    exists = _blocking(AsyncSandbox.exists)
    suspend = _blocking(AsyncSandbox.suspend)
    resume = _blocking(AsyncSandbox.resume)
    update = _blocking(AsyncSandbox.update)
    delete = _blocking(AsyncSandbox.delete)
    watch = _iterator(AsyncSandbox.watch)
    wait_gone = _blocking(AsyncSandbox.wait_gone)
    commands = _blocking(AsyncSandbox.commands)
    session = _context(AsyncSandbox.session, lambda _, session: ExecSession(session))
    upload = _blocking(AsyncSandbox.upload)
    download = _blocking(AsyncSandbox.download)
    logs = _iterator(AsyncSandbox.logs)
    forward = _context(AsyncSandbox.forward, lambda _, forward: forward)

    def wait(
        self,
        phase: Phase | str = Phase.READY,
        *,
        timeout: float = DEFAULT_WAIT_TIMEOUT,
        min_ready_seconds: float = 0.0,
        on_change: Callable[[SandboxView], None] | None = None,
    ) -> SandboxView:
        wait = partial(wait_for_phase, self._transport, self.name, phase, min_ready_seconds, on_change)
        if self._push_image is None:
            return portal.run(wait(timeout=timeout))
        try:
            return portal.run(wait(timeout=timeout, detect_missing_image=True))
        except ImageMissingError as missing:
            seconds_left = missing.seconds_left
            # In the caller's thread, which receives Ctrl-C: the push can be interrupted.
            push = try_push(self._push_image, missing.image)
        return portal.run(wait(timeout=seconds_left, push=push))

    wait.__doc__ = AsyncSandbox.wait.__doc__

    @overload
    def exec(
        self,
        *command: str,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        check: bool = False,
        timeout: float | None = None,
        container: str | None = None,
        background: Literal[False] = False,
    ) -> ExecResult: ...

    @overload
    def exec(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        container: str | None = None,
        background: Literal[True],
    ) -> BackgroundCommand: ...

    def exec(
        self,
        *command: str,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        check: bool = False,
        timeout: float | None = None,
        container: str | None = None,
        background: bool = False,
    ) -> ExecResult | BackgroundCommand:
        result = portal.run(
            self._delegate.exec(  # type: ignore[call-overload, misc]
                *command, stdin=stdin, env=env, cwd=cwd, check=check, timeout=timeout, container=container,
                background=background,
            )
        )  # fmt: skip
        if background:
            from holdfast.client.blocking_handles import BackgroundCommand

            return BackgroundCommand(result)
        return cast("ExecResult", result)

    exec.__doc__ = AsyncSandbox.exec.__doc__  # noqa: A003

    def command(self, id: str, *, container: str | None = None) -> BackgroundCommand:  # noqa: A002
        from holdfast.client.blocking_handles import BackgroundCommand

        return BackgroundCommand(portal.run(self._delegate.command(id, container=container)))

    command.__doc__ = AsyncSandbox.command.__doc__

    @property
    def files(self) -> Files:
        """The files of the sandbox: read, write, list and change them."""
        from holdfast.client.blocking_handles import Files

        return Files(self._delegate.files)

    def __repr__(self) -> str:
        return repr(self._delegate)


class Sandboxes(_SyncClient):
    """Client for the sandboxes of one gateway. Iterate over it for all of them.

    The arguments are those of `Sandbox`.
    """

    @functools.cached_property
    def _delegate(self) -> AsyncSandboxes:
        return AsyncSandboxes(self._transport, push_image=self._push_image)

    async def __aenter__(self) -> AsyncSandboxes:
        return AsyncSandboxes(self._open_async_transport(), push_image=self._push_image)

    def __iter__(self) -> Iterator[SandboxView]:
        return self.list()

    def sandbox(self, name: str) -> Sandbox:
        """Return a client for one sandbox that shares this connection; only this client closes it."""
        return Sandbox(
            name,
            self._resolve_endpoint,
            on_retry=self._on_retry,
            push_image=self._push_image,
            parent=self,
        )

    def create(self, /, name: str, image: str | None = None, **options: Unpack[SandboxOptions]) -> Sandbox:
        """Create a sandbox without waiting until it is ready; see `Sandbox.create`."""
        sandbox = self.sandbox(name)
        sandbox.create(image, **options)
        return sandbox

    get = _blocking(AsyncSandboxes.get)
    usage = _blocking(AsyncSandboxes.usage)
    suspend = _blocking(AsyncSandboxes.suspend)
    resume = _blocking(AsyncSandboxes.resume)
    delete = _blocking(AsyncSandboxes.delete)
    wait = _blocking(AsyncSandboxes.wait)
    wait_gone = _blocking(AsyncSandboxes.wait_gone)
    watch = _iterator(AsyncSandboxes.watch)
    list = _iterator(AsyncSandboxes.list)
    temporary = _context(
        AsyncSandboxes.temporary, lambda self, sandbox: Sandboxes.sandbox(self, sandbox.name)
    )


class Secrets(_SyncClient):
    """Client for the secrets of one gateway. The values can be written, but not read.

    The arguments are those of `Sandbox`.
    """

    @functools.cached_property
    def _delegate(self) -> AsyncSecrets:
        return AsyncSecrets(self._transport)

    async def __aenter__(self) -> AsyncSecrets:
        return AsyncSecrets(self._open_async_transport())

    create = _blocking(AsyncSecrets.create)
    get = _blocking(AsyncSecrets.get)
    delete = _blocking(AsyncSecrets.delete)
    list = _blocking(AsyncSecrets.list)
