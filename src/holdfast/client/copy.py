"""Uploads and downloads of files and directories, streamed with constant memory.

Targets follow the rules of `cp`: an existing directory, or a name with a trailing `/`, means to copy into it.
"""

from __future__ import annotations

import asyncio
import shlex
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import msgspec

from holdfast.api import UploadResult
from holdfast.client.archive import UnpackResult, pack, unpack
from holdfast.client.errors import interrupted_download_error
from holdfast.client.transport import decode_response
from holdfast.errors import ResponseLostError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import aiohttp

    from holdfast.client.transport import Transport

# Relative paths in a sandbox start here.
WORKSPACE_DIR = PurePosixPath("/sandbox")


class CopyResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a copy.

    Attributes:
        entries: number of files, directories and links copied.
        bytes: bytes of content copied.
        target: where the copy is.
        skipped: messages for entries that were not copied.
    """

    entries: int
    bytes: int
    target: str
    skipped: list[str] = []


def remote_path(text: str) -> PurePosixPath:
    """Absolute path in a sandbox.

    Raises:
        UsageError: the path contains `..`.
    """
    path = WORKSPACE_DIR / text
    if ".." in path.parts or "\0" in text:
        raise UsageError(f"{text!r}: `..` is not allowed in a sandbox path", hint="Use the resolved path.")
    return path


def resolve_local_target(source: PurePosixPath, target: str | Path) -> tuple[Path, str]:
    """Local directory for a copy, and the name of the copy in it."""
    path = Path(target)
    if path.is_dir() or str(target).endswith("/"):
        return path, source.name or WORKSPACE_DIR.name
    return path.parent, path.name


def base_name(source: Path) -> str:
    """Name of a local file or directory, also for `.` and `..`."""
    return source.name if source.name not in ("", "..") else source.resolve().name


async def upload(
    transport: Transport,
    name: str,
    source: Path,
    target: PurePosixPath,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> CopyResult:
    """Copy a local path to exactly `target` in the sandbox; see `AsyncSandbox.upload`."""
    resolved = await asyncio.to_thread(_resolve_source, source)
    skipped: list[str] = []
    failures: list[BaseException] = []

    async def chunks() -> AsyncIterator[bytes]:
        skipped.clear()  # of an earlier attempt
        archive = pack(resolved, target.name, skipped.append)
        try:
            # Reading files blocks; in a thread it does not delay other work on this event loop.
            while (chunk := await asyncio.to_thread(next, archive, None)) is not None:
                yield chunk
                progress(len(chunk))
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            # aiohttp reads this generator in a separate task and reports every error as a lost connection.
            failures.append(error)
            raise

    query = {"path": str(target.parent)}
    try:
        async with transport.stream(
            "PUT", f"/v1/sandboxes/{name}/files", query=query, body=chunks
        ) as response:
            result = decode_response(await response.read(), UploadResult)
    except ResponseLostError:
        if failures:
            raise failures[0] from None
        raise
    return CopyResult(entries=result.entries, bytes=result.bytes, target=f"{name}:{target}", skipped=skipped)


async def download(
    transport: Transport,
    name: str,
    source: PurePosixPath,
    directory: Path,
    target_name: str,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> CopyResult:
    """Copy `source` to `directory`, with the name `target_name`; see `AsyncSandbox.download`."""
    if not source.name:
        raise UsageError("the root directory of a sandbox cannot be copied", hint="Name a directory in it.")
    await asyncio.to_thread(_require_directory, directory)
    async with _download_stream(transport, name, str(source)) as response:
        archive = cast("BinaryIO", _BlockingReader(response, asyncio.get_running_loop()))
        result = await _run_in_thread(
            lambda: unpack(archive, directory, rename=(source.name, target_name), progress=progress), response
        )
    return CopyResult(
        entries=result.entries,
        bytes=result.bytes,
        target=str(directory / target_name),
        skipped=result.skipped,
    )


@asynccontextmanager
async def _download_stream(
    transport: Transport, name: str, path: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Open a download. If it is interrupted, the error names the likely cause."""
    started = False
    try:
        async with transport.stream("GET", f"/v1/sandboxes/{name}/files", query={"path": path}) as response:
            started = True
            yield response
    except ResponseLostError as error:
        if not started:
            raise
        raise interrupted_download_error(error, name, path) from error


def _resolve_source(source: Path) -> Path:
    """The path to copy; as with `cp`, a link that the user names stands for its target."""
    if not source.exists():
        raise UsageError(f"{source}: not found")
    return source.resolve() if source.is_symlink() else source


def _require_directory(directory: Path) -> None:
    if not directory.is_dir():
        raise UsageError(
            f"{directory}: no such directory",
            hint=f"Run `mkdir -p {shlex.quote(str(directory))}`, then run the same command again.",
        )


async def _run_in_thread(work: Callable[[], UnpackResult], response: aiohttp.ClientResponse) -> UnpackResult:
    """Unpack in a thread. A cancellation closes the response, so that the thread's next read fails."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        # A thread cannot be cancelled: without the shield, it would still write after this call has ended.
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        response.close()
        await asyncio.gather(running, return_exceptions=True)
        raise


class _BlockingReader:
    """File interface to a response body, for a thread."""

    def __init__(self, response: aiohttp.ClientResponse, loop: asyncio.AbstractEventLoop) -> None:
        self._response = response
        self._loop = loop

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes, fewer only at the end."""
        # Only for the unpacking thread: on the event loop itself, `result` would deadlock.
        return asyncio.run_coroutine_threadsafe(self._read(size), self._loop).result()

    async def _read(self, size: int) -> bytes:
        parts: list[Any] = []
        while size > 0 and (chunk := await self._response.content.read(size)):
            parts.append(chunk)
            size -= len(chunk)
        return b"".join(parts)
