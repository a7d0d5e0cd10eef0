"""Uploads and downloads of files and directories, streamed with constant memory.

The target is the name of the copy. With a trailing `/`, or `.`, it is the directory to copy into. A file is
also copied into a target that is an existing directory. An uploaded directory is merged with it: `cp` would
copy into it, so that a repeated call after an interruption would nest the copy in its finished predecessor. A
downloaded directory is merged only with its own predecessor, and otherwise copied into the target.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec

from holdfast.api import FAILURE_MARKER_HEADER, UploadResult
from holdfast.client.archive import pack
from holdfast.client.errors import packing_error
from holdfast.client.extraction import UnpackResult, unpack
from holdfast.client.local_copies import LocalCopies
from holdfast.client.paths import WORKSPACE_DIR, remote_path
from holdfast.client.transport import decode_response
from holdfast.errors import ApiRequestRejectedError, ResponseLostError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import aiohttp

    from holdfast.client.exec import ExecResult
    from holdfast.client.transport import Transport
    from holdfast.errors import HoldfastError


# More than the server's report of a failed `tar`, with its marker.
_MAX_FAILURE_BYTES = 16 << 10


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


def resolve_local_target(source: PurePosixPath, target: str | Path) -> LocalTarget:
    """Where a copy of `source` goes on the local disk."""
    path, name = Path(target), source.name or WORKSPACE_DIR.name
    if _names_parent(str(target)):
        return LocalTarget(path, name)
    if path.is_dir():
        return LocalTarget(path, name, is_copy=True)
    return LocalTarget(path.parent, path.name)


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """Local directory for a copy.

    Attributes:
        directory: the directory.
        name: name of the copy in it.
        is_copy: whether the copy of a directory is `directory` itself, if that is an earlier copy or empty.
    """

    directory: Path
    name: str
    is_copy: bool = False


def _names_parent(target: str) -> bool:
    """Whether a target always is the directory to copy into."""
    return target.rpartition("/")[2] in ("", ".", "..")


def base_name(source: Path) -> str:
    """Name of a local file or directory, also for `.` and `..`."""
    return source.name if source.name not in ("", "..") else source.resolve().name


@dataclass(frozen=True, slots=True)
class RemoteTarget:
    """Path of a copy in a sandbox, and whether it is an existing directory to merge with."""

    path: PurePosixPath
    is_merged: bool = False

    @property
    def directory(self) -> PurePosixPath:
        """Directory for the entries of the archive."""
        return self.path if self.is_merged else self.path.parent


async def upload(
    transport: Transport,
    name: str,
    source: Path,
    target: str,
    execute: Callable[..., Awaitable[ExecResult]],
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> CopyResult:
    """Copy a local path into the sandbox; see `AsyncSandbox.upload`."""
    resolved = await asyncio.to_thread(_resolve_source, source)
    destination = await _resolve_remote_target(execute, source, resolved.is_dir(), target)
    skipped: list[str] = []
    failures: list[BaseException] = []

    async def chunks() -> AsyncIterator[bytes]:
        skipped.clear()  # of an earlier attempt
        archive = pack(resolved, destination.path.name, skipped.append, contents_only=destination.is_merged)
        try:
            # Reading files blocks; in a thread it does not delay other work on this event loop.
            while (chunk := await asyncio.to_thread(next, archive, None)) is not None:
                yield chunk
                progress(len(chunk))
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            # aiohttp reads this generator in a separate task and reports every error as a lost connection.
            failures.append(error)
            raise

    query = {"path": str(destination.directory)}
    try:
        async with transport.stream(
            "PUT", f"/v1/sandboxes/{name}/files", query=query, body=chunks
        ) as response:
            result = decode_response(await response.read(), UploadResult)
    except ResponseLostError:
        if failures:
            raise failures[0] from None
        raise
    return CopyResult(
        entries=result.entries + destination.is_merged,  # with the directory itself
        bytes=result.bytes,
        target=f"{name}:{destination.path}",
        skipped=skipped,
    )


async def _resolve_remote_target(
    execute: Callable[..., Awaitable[ExecResult]], source: Path, is_directory: bool, target: str
) -> RemoteTarget:
    path = remote_path(target)
    if not _names_parent(target) and path != WORKSPACE_DIR:
        existing = await _find_directory(execute, path)
        if existing is None:
            return RemoteTarget(path)
        if is_directory:
            return RemoteTarget(existing, is_merged=True)
    return RemoteTarget(path / base_name(source))


async def _find_directory(
    execute: Callable[..., Awaitable[ExecResult]], path: PurePosixPath
) -> PurePosixPath | None:
    """Path without links of a directory in the sandbox; None if it is not a directory."""
    try:
        result = await execute("sh", "-c", 'cd -P -- "$1" && pwd', "find-directory", str(path))
    except ApiRequestRejectedError:
        return None  # without `sh`; the upload itself reports that
    if result.exit_code:
        return None
    return remote_path(result.stdout.decode("utf-8", "surrogateescape").removesuffix("\n"))


async def download(
    transport: Transport,
    name: str,
    source: PurePosixPath,
    target: LocalTarget,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> CopyResult:
    """Copy `source` out of the sandbox; see `AsyncSandbox.download`."""
    if not source.name:
        raise UsageError("the root directory of a sandbox cannot be copied", hint="Name a directory in it.")
    await asyncio.to_thread(_require_directory, target.directory)
    names = (source.name, target.name)
    marker = secrets.token_hex(16)
    async with _download_stream(transport, name, str(source), marker) as response:
        reader = _BlockingReader(response, asyncio.get_running_loop(), marker.encode(), transport.gateway)
        archive = cast("BinaryIO", reader)
        copies = LocalCopies(transport.gateway, name, str(source))
        work = partial(
            unpack,
            archive,
            target.directory,
            rename=names,
            merge=target.is_copy,
            copies=copies,
            progress=progress,
        )
        result = await _run_in_thread(work, response)
    return CopyResult(
        entries=result.entries,
        bytes=result.bytes,
        target=str(target.directory if result.is_merged else target.directory / target.name),
        skipped=result.skipped,
    )


@asynccontextmanager
async def _download_stream(
    transport: Transport, name: str, path: str, marker: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Open a download. If it is interrupted, the error names the copy and the cause."""
    # In a header, which older servers ignore: they reject unknown query parameters.
    headers = {FAILURE_MARKER_HEADER: marker}
    subject = f"download of {path} from sandbox {name}"
    started = False
    try:
        files = f"/v1/sandboxes/{name}/files"
        async with transport.stream("GET", files, query={"path": path}, headers=headers) as response:
            started = True
            yield response
    except ResponseLostError as error:
        if not started:
            raise
        raise ResponseLostError(f"{subject}: interrupted: {error.message}", hint=error.hint) from error
    except _PackingFailedError as failure:
        raise type(failure.error)(f"{subject}: {failure.error.message}", hint=failure.error.hint) from None


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

    def __init__(
        self, response: aiohttp.ClientResponse, loop: asyncio.AbstractEventLoop, marker: bytes, gateway: str
    ) -> None:
        self._response = response
        self._loop = loop
        self._marker = marker
        self._gateway = gateway
        self._buffer = bytearray()
        self._is_at_end = False

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes, fewer only at the end.

        Raises:
            _PackingFailedError: the response ends with the marker and the report of a failure.
        """
        # Only for the unpacking thread: on the event loop itself, `result` would deadlock.
        return asyncio.run_coroutine_threadsafe(self._read(size), self._loop).result()

    async def _read(self, size: int) -> bytes:
        # The end is kept back until it is known to be a part of the archive.
        while not self._is_at_end and len(self._buffer) < size + _MAX_FAILURE_BYTES:
            chunk = await self._response.content.read(size)
            self._buffer += chunk
            self._is_at_end = not chunk
            if self._is_at_end and (marked := self._buffer.rpartition(self._marker))[1]:
                raise _PackingFailedError(packing_error(bytes(marked[2]), self._gateway))
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data


class _PackingFailedError(Exception):
    """`tar` in the sandbox failed after the download had started."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(error.message)
        self.error = error
