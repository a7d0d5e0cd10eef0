"""Asynchronous client for one sandbox.

`holdfast.client.sync` offers the same methods for programs without an event loop. Modules that only copies
and forwards need are imported on first use, so that `sandbox exec` starts quickly.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.api import DeletionResult, Phase, SandboxUpdateResult, SandboxView
from holdfast.client.base import query_bool, try_push
from holdfast.client.commands import AsyncCommands
from holdfast.client.paths import remote_path
from holdfast.client.watch import ImageMissingError, wait_for_phase, wait_until_gone, watch_sandbox
from holdfast.errors import SandboxMaybeDeletedError, SandboxNotFoundError
from holdfast.sandbox import build_request, build_update

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from typing import Unpack

    from holdfast.api import SandboxOptions, SandboxUpdateOptions
    from holdfast.client.base import ImagePusher
    from holdfast.client.copy import CopyResult
    from holdfast.client.files import AsyncFiles
    from holdfast.client.port_forward import PortForward
    from holdfast.client.transport import Transport
    from holdfast.errors import HoldfastError

DEFAULT_WAIT_TIMEOUT = 180.0
_HTTP_CREATED = 201


def _ignore(_: object) -> None:
    """Default callback."""


class AsyncSandbox(AsyncCommands):
    """Client for one sandbox, which may not exist yet. Sends no request until a method is called.

    Attributes:
        name: name of the sandbox.
        is_new: whether the gateway reported that the last `create` created the sandbox. False if it existed
            already, and if the first response was lost, so that the client repeated the request.
    """

    def __init__(self, name: str, transport: Transport, *, push_image: ImagePusher | None = None) -> None:
        super().__init__(name, transport, push_image=push_image)
        self.is_new = False

    async def create(self, /, image: str | None = None, **options: Unpack[SandboxOptions]) -> SandboxView:
        """Create the sandbox. If it exists with the same options, nothing happens.

        Args:
            image: container image; holdfast's sandbox image if omitted.
            **options: fields of `holdfast.api.SandboxOptions`, such as `env` or `memory`.

        Returns:
            The state of the sandbox, which is usually not ready yet; see `wait`.

        Raises:
            UsageError: an option is unknown or invalid.
            ObjectConflictError: a sandbox with this name and other options exists.
        """
        body = build_request(self.name, image=image, **options)
        status, view = await self._transport.call_with_status("POST", "/v1/sandboxes", SandboxView, body=body)
        self.is_new = status == _HTTP_CREATED
        return view

    async def get(self) -> SandboxView:
        """Return the current state.

        Raises:
            SandboxNotFoundError: no sandbox has this name.
        """
        return await self._transport.call("GET", self._path, SandboxView)

    async def exists(self) -> bool:
        """Whether a sandbox with this name exists."""
        try:
            await self.get()
        except SandboxNotFoundError:
            return False
        return True

    async def suspend(self) -> SandboxView:
        """Delete the pod and keep the workspace. Returns before the pod is gone; see `wait`.

        Returns:
            The state of the sandbox; a suspended one stays as it is.

        Raises:
            SandboxNotFoundError: no sandbox has this name.
            ObjectConflictError: its SandboxClaim has no sandbox yet.
        """
        return await self._transport.call("POST", f"{self._path}/suspend", SandboxView)

    async def resume(self) -> SandboxView:
        """Start a new pod on the same workspace. Returns before it is ready; see `wait`.

        Returns and raises the same as `suspend`.
        """
        return await self._transport.call("POST", f"{self._path}/resume", SandboxView)

    async def update(self, **options: Unpack[SandboxUpdateOptions]) -> SandboxUpdateResult:
        """Change options of the sandbox; the others stay. The pod is not restarted.

        CPU, memory and labels of a running sandbox change immediately if the gateway's Kubernetes can resize
        its pod. Variables and the image change when the sandbox is suspended and resumed.

        Args:
            **options: fields of `holdfast.api.SandboxUpdateOptions`. None restores the default of a field,
                and removes a variable or label: `update(memory="1Gi", env={"DEBUG": "1", "OLD": None})`.

        Returns:
            The state, the fields that are in effect (`applied`), and those that wait (`pending`).

        Raises:
            UsageError: an option is unknown or invalid, or the template of the sandbox determines it.
            SandboxNotFoundError: no sandbox has this name.
        """
        body = build_update(**options)
        response = await self._transport.call_with_status("PATCH", self._path, SandboxUpdateResult, body=body)
        return response[1]

    async def delete(self, *, keep_workspace: bool = False, ignore_missing: bool = False) -> DeletionResult:
        """Delete the sandbox. Returns before it is gone; see `wait_gone`.

        Args:
            keep_workspace: keep the PVC with the data.
            ignore_missing: succeed if the sandbox does not exist.

        Returns:
            Whether the sandbox existed, and what happened to its data. After a lost response, the repeated
            request may not find the sandbox: it is then reported as deleted, and its data as `unknown`.

        Raises:
            SandboxNotFoundError: no sandbox has this name, and `ignore_missing` is not set.
        """
        try:
            return await self._transport.call(
                "DELETE", self._path, DeletionResult, query={"keep_workspace": query_bool(keep_workspace)}
            )
        except SandboxMaybeDeletedError:
            # An earlier attempt of this call, whose response was lost, has probably deleted it.
            return DeletionResult(deleted=True, workspace="unknown")
        except SandboxNotFoundError:
            if not ignore_missing:
                raise
            return DeletionResult(deleted=False, workspace="none")

    def watch(self) -> AsyncIterator[SandboxView]:
        """Iterate over the current state and each change, until the sandbox is deleted.

        Raises:
            SandboxNotFoundError: no sandbox has this name.
            ResponseLostError: the stream was interrupted; watch again to continue.
        """
        return watch_sandbox(self._transport, self.name)

    async def wait(
        self,
        phase: Phase | str = Phase.READY,
        *,
        timeout: float = DEFAULT_WAIT_TIMEOUT,  # noqa: ASYNC109 (part of the public API)
        min_ready_seconds: float = 0.0,
        on_change: Callable[[SandboxView], None] | None = None,
    ) -> SandboxView:
        """Wait until the sandbox reaches a phase.

        Args:
            phase: the phase to wait for.
            timeout: seconds to wait; the time to push a missing image does not count.
            min_ready_seconds: seconds that the phase must last, for programs that may exit immediately.
            on_change: called with each new state.

        Returns:
            The state in that phase.

        Raises:
            SandboxNotFoundError: the sandbox does not exist, or is deleted during the wait.
            WaitFailedError: the sandbox cannot reach the phase without manual action. If a push of its image
                failed, that error is the cause.
            WaitTimeoutError: the timeout passed.
        """
        wait = partial(wait_for_phase, self._transport, self.name, phase, min_ready_seconds, on_change)
        if self._push_image is None:
            return await wait(timeout=timeout)
        try:
            return await wait(timeout=timeout, detect_missing_image=True)
        except ImageMissingError as missing:
            seconds_left = missing.seconds_left
            # A push may take minutes; in a thread it does not block the event loop.
            push = await asyncio.to_thread(try_push, self._push_image, missing.image)
        return await wait(timeout=seconds_left, push=push)

    async def wait_gone(self, *, timeout: float = DEFAULT_WAIT_TIMEOUT) -> None:  # noqa: ASYNC109 (part of the public API)
        """Wait until the sandbox no longer exists.

        Raises:
            WaitTimeoutError: the timeout passed.
        """
        await wait_until_gone(self._transport, self.name, timeout=timeout)

    async def upload(
        self, source: Path | str, target: str = ".", *, progress: Callable[[int], None] | None = None
    ) -> CopyResult:
        """Copy a file or directory into the sandbox.

        Args:
            source: local path.
            target: path of the copy in the sandbox, relative to `/sandbox`. A trailing `/` means to copy into
                it. An existing directory receives a file, and is merged with a directory.
            progress: called with the number of bytes of each chunk.

        Raises:
            UsageError: a local file cannot be read, or the target contains `..`.
            ObjectConflictError: the sandbox has no running pod.
            ApiRequestRejectedError: the sandbox has no `tar`, or its user may not write there.
            DiskFullError: the disk of the sandbox is full.
        """
        from holdfast.client import copy

        return await copy.upload(
            self._transport, self.name, Path(source), target, self.exec, progress=progress or _ignore
        )

    async def download(
        self, source: str, target: Path | str = ".", *, progress: Callable[[int], None] | None = None
    ) -> CopyResult:
        """Copy a file or directory out of the sandbox. Nothing is written outside the copy.

        Args:
            source: path in the sandbox, relative to `/sandbox`.
            target: local path, with the rules of `upload`. An existing directory is merged with a directory
                only if it is empty or an earlier copy of the source; otherwise the copy is placed inside it.
            progress: called with the number of bytes of each chunk.

        Raises:
            UsageError: a local file cannot be written, the copy would be merged with another directory, or
                the source contains `..`.
            ApiRequestRejectedError: the source does not exist or cannot be read, or an entry leads out of the
                copy.
            DiskFullError: the local disk is full.
        """
        from holdfast.client import copy

        path = remote_path(source)
        local_target = copy.resolve_local_target(path, target)
        return await copy.download(
            self._transport, self.name, path, local_target, progress=progress or _ignore
        )

    @property
    def files(self) -> AsyncFiles:
        """The files of the sandbox: read, write, list and change them."""
        from holdfast.client.files import AsyncFiles

        return AsyncFiles(self._scripts)

    async def logs(
        self,
        *,
        follow: bool = False,
        tail: int | None = None,
        previous: bool = False,
        container: str | None = None,
    ) -> AsyncIterator[bytes]:
        """Iterate over the output of the sandbox's main program.

        Args:
            follow: continue with new output until the program ends.
            tail: start with the last `tail` lines.
            previous: read the output of the previous container.
            container: container to read; the first one if omitted.
        """
        query = {"follow": query_bool(follow), "previous": query_bool(previous)}
        query |= {"tail": str(tail)} if tail is not None else {}
        query |= {"container": container} if container else {}
        async with self._transport.stream("GET", f"{self._path}/logs", query=query) as response:
            async for chunk in response.content.iter_any():
                yield chunk

    def forward(
        self,
        remote_port: int,
        local_port: int = 0,
        *,
        on_error: Callable[[HoldfastError], None] | None = None,
    ) -> AbstractAsyncContextManager[PortForward]:
        """Forward a port of 127.0.0.1 to the sandbox while the block runs.

        Args:
            remote_port: port in the sandbox.
            local_port: local port; 0 for a free one.
            on_error: called when a forwarded connection fails; the others continue.

        Raises:
            SandboxNotFoundError: no sandbox has this name.
            ObjectConflictError: the sandbox is suspended, finished, expired or being deleted.
            PortInUseError: the local port is in use.
        """
        from holdfast.client.port_forward import forward_port

        return forward_port(self._transport, self.name, remote_port, local_port, on_error=on_error or _ignore)

    def __repr__(self) -> str:
        return f"<sandbox {self.name}>"
