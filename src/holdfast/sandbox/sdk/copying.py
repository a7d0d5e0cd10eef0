"""Files and folders between this machine and a sandbox, as streams: memory stays flat, whatever their size.

A copy is named as `cp` names it: onto a folder that is there (or a name that ends in `/`) it goes inside,
else it gets that very name. Not here: archives (packing.py, unpacking.py).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import msgspec

from holdfast.errors import UsageError
from holdfast.sandbox.sdk.connection import decoded
from holdfast.sandbox.sdk.packing import packed
from holdfast.sandbox.sdk.problems import AnswerLostError, download_cut
from holdfast.sandbox.sdk.unpacking import Received, unpack
from holdfast.sandbox.wire import Unpacked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import aiohttp

    from holdfast.sandbox.sdk.connection import Connection

HOME = PurePosixPath("/sandbox")
"""Where paths that are not absolute begin."""


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did; `left_out` names what did not travel, and why."""

    entries: int
    bytes: int
    target: str
    left_out: list[str] = []


def remote_path(text: str) -> PurePosixPath:
    """A path in a sandbox: absolute, and without steps upwards."""
    path = HOME / text
    if ".." in path.parts or "\0" in text:
        raise UsageError(f"{text!r} leads upwards; give the path itself")
    return path


def local_target(source: PurePosixPath, target: str | Path) -> tuple[Path, str]:
    """The folder here that a copy goes into, and its name there."""
    path = Path(target)
    if path.is_dir() or str(target).endswith("/"):
        return path, source.name or HOME.name
    return path.parent, path.name


def own_name(source: Path) -> str:
    """What a file or folder is called, also where it is given as `.` or `..`."""
    return source.name if source.name not in ("", "..") else source.resolve().name


async def send(
    connection: Connection,
    name: str,
    source: Path,
    target: PurePosixPath,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Copied:
    """Copy `source` so that it is called `target` in the sandbox."""
    found = await asyncio.to_thread(_found, source)
    left_out: list[str] = []

    async def chunks() -> AsyncIterator[bytes]:
        made = packed(found, target.name, left_out.append)
        while (chunk := await asyncio.to_thread(next, made, None)) is not None:
            yield chunk
            progress(len(chunk))

    query = {"path": str(target.parent)}
    async with connection.stream("PUT", f"/v1/sandboxes/{name}/files", query=query, body=chunks) as answer:
        done = decoded(await answer.read(), Unpacked)
    return Copied(entries=done.entries, bytes=done.bytes, target=f"{name}:{target}", left_out=left_out)


async def fetch(
    connection: Connection,
    name: str,
    source: PurePosixPath,
    folder: Path,
    called: str,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Copied:
    """Copy `source` out of the sandbox, to `folder`, under the name `called`."""
    if not source.name:
        raise UsageError("the whole of a sandbox's files cannot be copied", hint="Name a folder in it.")
    await asyncio.to_thread(_refuse_no_folder, folder)
    async with _archive(connection, name, str(source)) as answer:
        archive = cast("BinaryIO", _Blocking(answer, asyncio.get_running_loop()))
        done = await _in_thread(
            lambda: unpack(archive, folder, rename=(source.name, called), progress=progress), answer
        )
    return Copied(entries=done.entries, bytes=done.bytes, target=str(folder / called), left_out=done.refused)


@asynccontextmanager
async def _archive(connection: Connection, name: str, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer with what is at a path; one that breaks off says what that may come from."""
    begun = False
    try:
        async with connection.stream("GET", f"/v1/sandboxes/{name}/files", query={"path": path}) as answer:
            begun = True
            yield answer
    except AnswerLostError as error:
        if not begun:
            raise
        raise download_cut(error, name, path) from error


def _found(source: Path) -> Path:
    """What is to be copied; a link that was named itself stands for what it leads to, as with `cp`."""
    if not source.exists():
        raise UsageError(f"there is no {source}")
    return source.resolve() if source.is_symlink() else source


def _refuse_no_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", hint="Make it first.")


async def _in_thread(work: Callable[[], Received], answer: aiohttp.ClientResponse) -> Received:
    """Run the unpacking beside the loop; when this is cancelled, its next read fails and it ends too."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        answer.close()
        await asyncio.gather(running, return_exceptions=True)
        raise


class _Blocking:
    """An answer's body as a file that another thread reads."""

    def __init__(self, answer: aiohttp.ClientResponse, loop: asyncio.AbstractEventLoop) -> None:
        self._answer = answer
        self._loop = loop

    def read(self, size: int) -> bytes:
        """Just so many bytes, fewer only at the end."""
        return asyncio.run_coroutine_threadsafe(self._read(size), self._loop).result()

    async def _read(self, size: int) -> bytes:
        parts: list[Any] = []
        while size > 0 and (chunk := await self._answer.content.read(size)):
            parts.append(chunk)
            size -= len(chunk)
        return b"".join(parts)
