"""Files out of a sandbox and into it, as tar archives that pass through: `tar` in the pod packs and unpacks.

Not here: which paths (paths.py) and which names in an archive (archive.py) are let through.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from holdfast.errors import TemporaryError
from holdfast.sandbox.wire import Unpacked
from holdfast.server import paths, pods
from holdfast.server.archive import ArchiveCheck
from holdfast.server.command import Command
from holdfast.server.problems import AnswerLostError, ApiError, conflict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.server.service import Service

_FILES_DIFFER = 1
_CHANGED = ("file changed as we read it", "File removed before we read it")
_NO_TAR = ("executable file not found", "no such file or directory: unknown")
_BLOCK = 512
_DRAIN_SECONDS = 10.0


async def download(service: Service, name: str, path: str) -> AsyncIterator[bytes]:
    """An archive with one file or folder; what can be refused is refused before its first piece."""
    words = paths.packing(path)
    place = await pods.running(service, name, None)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(service.usage.of(place.sandbox))
        command = await stack.enter_async_context(Command(service.cluster, place, words))
        head = await _head(command)
        if not head.strip(b"\0"):
            raise _failed(path, await command.code(), command.stderr, unpacking=False)
        return _pieces(stack.pop_all(), command, head, path)


async def upload(service: Service, name: str, path: str, body: AsyncIterator[bytes]) -> Unpacked:
    """Unpack an archive into a folder, entry by entry as it arrives; what leads out of it is refused."""
    words = paths.unpacking(path)
    check = ArchiveCheck()
    place = await pods.running(service, name, None)
    async with (
        service.usage.of(place.sandbox),
        Command(service.cluster, place, words, stdin=True) as command,
    ):
        ending = asyncio.ensure_future(_outcome(command))
        try:
            await _feed(command, check, body, ending)
            code = await ending
        except (ApiError, TemporaryError):
            await _drain(body)
            raise
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
    if code != 0:
        await _drain(body)
        raise _failed(path, code, command.stderr, unpacking=True)
    return Unpacked(entries=check.entries, bytes=check.bytes)


async def _outcome(command: Command) -> int | None:
    """How unpacking ended; the command says so as soon as it knows, then waits for the end of its input."""
    said = b""
    while not said.endswith(b"\n") and (piece := await command.read()):
        said += piece
    await command.end_input()
    return await command.code()


async def _feed(
    command: Command, check: ArchiveCheck, body: AsyncIterator[bytes], ending: asyncio.Future[Any]
) -> None:
    async for piece in body:
        check.feed(piece)
        if ending.done():
            if ending.exception() is not None or ending.result() != 0:
                return
            continue
        writing: asyncio.Future[Any] = asyncio.ensure_future(command.write(piece))
        await asyncio.wait({writing, ending}, return_when=asyncio.FIRST_COMPLETED)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    check.end()
    await command.end_input()


async def _drain(body: AsyncIterator[bytes]) -> None:
    """A client that is still sending reads the answer only when it is done."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in body:
                pass
    except TimeoutError:
        return


async def _head(command: Command) -> bytes:
    """The first block: an archive of nothing begins with zeros."""
    head = b""
    while len(head) < _BLOCK and (piece := await command.read()):
        head += piece
    return head


async def _pieces(opened: AsyncExitStack, command: Command, head: bytes, path: str) -> AsyncIterator[bytes]:
    async with opened:
        yield head
        while piece := await command.read():
            yield piece
        code = await command.code()
        if not _is_whole(code, command.stderr):
            # The answer has begun: to break it off is the only way left to say that it is not whole.
            raise AnswerLostError(f"packing {path} failed: {command.stderr}")


def _is_whole(code: int | None, said: str) -> bool:
    """Whether everything was packed; a file that changes meanwhile is packed as it was read."""
    return code == 0 or (code == _FILES_DIFFER and any(words in said for words in _CHANGED))


def _failed(path: str, code: int | None, said: str, *, unpacking: bool) -> ApiError:
    """Why `tar` did not do it, in its own words."""
    # Unpacking may miss other things than its folder: that one is named by its whole path.
    absent = any(words in said for words in ("No such file or directory", "Not a directory"))
    if absent and (not unpacking or path in said):
        return ApiError(404, "path-missing", f"there is no {path} in the sandbox")
    if "Permission denied" in said:
        return conflict("path-denied", f"{path}: permission denied in the sandbox")
    if "No space left" in said or "Disk quota exceeded" in said:
        return conflict("disk-full", "there is no space left in the sandbox", "Free some space there.")
    if code is None or any(words in said for words in _NO_TAR):
        hint = "Copying files needs `tar` in the sandbox's image."
        return conflict("no-tar", f"tar cannot be run in the sandbox: {said}".rstrip(": "), hint)
    return conflict("copy-failed", f"tar in the sandbox ended with {code}: {said}".rstrip(": "))
