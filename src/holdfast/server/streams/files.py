"""Copy files out of and into a sandbox as tar archives; `tar` in the pod packs and extracts them.

An upload is extracted into a hidden directory next to its target. When the server has received the whole
archive, it adds a last entry; only with that entry, the files are moved to their target. A file thus has its
old or its new content, even if client, server or connection are killed.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
import secrets
import tarfile
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import UploadResult
from holdfast.errors import TemporaryError
from holdfast.server.errors import ApiError, PodResponseLostError, bad_request, conflict
from holdfast.server.sandboxes import use_container
from holdfast.server.streams.spdy import run_in_pod

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.api import Problem
    from holdfast.server.sandboxes import SandboxService
    from holdfast.server.streams.spdy import PodCommand


MAX_PATH_LENGTH = 4096
PATH_PATTERN = r"^/(?!([\s\S]*/)?[.][.](/|$))[^\u0000]*$"
"""The check of `validate_path` as a pattern for the OpenAPI document."""
# The path, which the client controls, is a positional parameter and never part of the script.
# With -o, the files belong to the user of the sandbox, not to the owners in the archive.
# `rename` needs write permission for a directory that gets another parent, hence `chmod`. The target of `mv`
# is always the parent: with a link to a directory as target, `mv` would move into that directory.
_EXTRACT_SCRIPT = r"""
stage=$1/.holdfast-upload-$$

merge() (
  from=$1 to=$2
  shift 2
  [ -w "$from" ] || chmod u+w "$from" || exit
  for entry in "$from"/* "$from"/.[!.]* "$from"/..?*; do
    [ -e "$entry" ] || [ -L "$entry" ] || continue
    target=$to/${entry##*/}
    if [ -L "$entry" ] || [ ! -d "$entry" ]; then
      [ -L "$target" ] || [ ! -d "$target" ] || rmdir -- "$target" || exit
      set -- "$@" "$entry"
      [ $# -lt 200 ] || { mv -f -- "$@" "$to/" && set --; } || exit
      continue
    fi
    if [ -L "$target" ] || [ -f "$target" ]; then rm -f -- "$target" || exit; fi
    if [ -d "$target" ]; then
      merge "$entry" "$target" || exit
    elif [ -w "$entry" ]; then
      mv -f -- "$entry" "$to/" || exit
    else
      chmod u+w "$entry" && mv -f -- "$entry" "$to/" && chmod u-w "$target" || exit
    fi
  done
  [ $# -eq 0 ] || mv -f -- "$@" "$to/"
)

remove() {
  chmod -R u+rwx "$1" 2>/dev/null
  rm -rf -- "$1"
}

# Of uploads whose process was killed with the pod; another pod may have used the number of this process.
for old in "$1"/.holdfast-upload-*; do
  if [ "$old" = "$stage" ] || ! kill -0 "${old##*-}" 2>/dev/null; then remove "$old"; fi
done
mkdir -m 700 -- "$stage" && tar -C "$stage" -xof -
code=$?
echo "$code"
cat >/dev/null
if [ "$code" = 0 ]; then
  chmod u+rwx "$stage" && rmdir -- "$stage/$2" && merge "$stage" "$1"
  code=$?
fi
remove "$stage"
exit "$code"
"""


def validate_path(path: str) -> str:
    """Return the normalised absolute path.

    Raises:
        ApiError: 400 for a relative path or one with `..`.
    """
    if not path.startswith("/"):
        raise bad_request("bad-path", "path: not absolute", "Use the absolute path in the sandbox.")
    if "\0" in path or len(path) > MAX_PATH_LENGTH:
        raise bad_request("bad-path", "path: too long, or contains a null byte")
    if ".." in path.split("/"):
        raise bad_request("bad-path", "path: contains '..'", "Use the resolved path.")
    return "/" + posixpath.normpath(path).lstrip("/")


def tar_create_command(path: str) -> list[str]:
    """Return the command that writes a file or directory as an archive to standard output."""
    folder, name = posixpath.split(validate_path(path))
    # After `--`, a file name that starts with a dash is not an option.
    return ["tar", "-C", folder, "-cf", "-", "--", name or "."]


def tar_extract_command(path: str, last_entry: str) -> list[str]:
    """Return the command that extracts an archive from standard input into a directory.

    It prints the exit code of `tar` and then reads the rest of its input: the container runtime may never
    report the end of a command that exits before its input ends.

    Args:
        path: The directory.
        last_entry: Name of the empty directory without which the archive is incomplete; `tar` itself accepts
            an archive that ends after any of its entries.
    """
    return ["sh", "-c", _EXTRACT_SCRIPT, "unpack", validate_path(path), last_entry]


_TAR_FILES_DIFFER = 1
_FILE_CHANGED_MESSAGES = ("file changed as we read it", "File removed before we read it")
_TAR_MISSING_MESSAGES = ("executable file not found", "no such file or directory: unknown")
_TAR_BLOCK_BYTES = tarfile.BLOCKSIZE
_METADATA_TYPES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
# In a header of GNU tar for a sparse file, and in the blocks that continue it: whether another one follows.
_SPARSE_CONTINUES_AT, _SPARSE_BLOCK_CONTINUES_AT = 482, 504
_PAX_SIZE = re.compile(rb"(?:^|\n)\d+ size=(\d{1,18})\n")
_MAX_PAX_BYTES = 64 * 1024
_DRAIN_TIMEOUT = 10.0
# As JSON, these are at most 6 KB: the client keeps more than that back until the stream ends.
_MAX_REPORTED_CHARACTERS = 1000


async def download(
    service: SandboxService, name: str, path: str, failure_marker: str = ""
) -> AsyncIterator[bytes]:
    """Stream a file or directory as an archive; errors are raised before the first piece.

    Args:
        service: the sandboxes.
        name: Name of the sandbox.
        path: Path in the sandbox.
        failure_marker: Text with which the stream ends if `tar` fails later, followed by a Problem. Without
            it, the response is cut off.
    """
    argv = tar_create_command(path)
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(use_container(service, name))
        command = await stack.enter_async_context(run_in_pod(service.cluster, target, argv))
        head = await _read_first_block(command)
        if not head.strip(b"\0"):
            raise _tar_error(path, await command.wait(), command.stderr, extracting=False)
        # From here on, the generator closes the stack: at its end, or when the client disconnects.
        return _iter_archive(stack.pop_all(), command, head, path, failure_marker)


async def upload(service: SandboxService, name: str, path: str, body: AsyncIterator[bytes]) -> UploadResult:
    """Extract an archive into a directory. Nothing is changed before the whole archive has arrived."""
    last_entry = f".holdfast-complete-{secrets.token_hex(8)}"
    argv = tar_extract_command(path, last_entry)
    counter = EntryCounter()
    async with (
        use_container(service, name) as target,
        run_in_pod(service.cluster, target, argv, stdin=True) as command,
    ):
        # Read while the body is sent: `tar` may fail before the body ends, for example on a full disk.
        tar_exited = asyncio.ensure_future(_wait_for_tar(command))
        try:
            async for piece in body:
                await _write(command, counter.feed(piece), tar_exited)
                if tar_exited.done():
                    break  # `tar` has failed: do not wait for the rest of a large body
            await _write(command, counter.end(last_entry), tar_exited)
            await command.close_stdin()
            await tar_exited
            code = await command.wait()
        except (ApiError, TemporaryError):
            await _drain_body(body)
            raise
        finally:
            tar_exited.cancel()
            await asyncio.gather(tar_exited, return_exceptions=True)
    if code != 0:
        await _drain_body(body)
        if last_entry in command.stderr:
            raise conflict("copy-failed", "the archive is incomplete: it has no end", "Send it again.")
        raise _tar_error(path, code, command.stderr, extracting=True)
    return UploadResult(entries=counter.entries, bytes=counter.bytes)


class EntryCounter:
    """Count entries and content bytes of a tar archive that arrives in pieces of any size, and find its end.

    Only `tar` in the sandbox validates the archive: the uploader may run any command there anyway.

    Attributes:
        entries: Number of entries.
        bytes: Bytes of content.
        is_complete: Whether the block of zeros at the end of the archive has arrived.
    """

    def __init__(self) -> None:
        self.entries = self.bytes = 0
        self.is_complete = False
        self._block, self._pax = bytearray(), bytearray()
        self._skip = self._pax_bytes = 0
        self._is_sparse_map = False

    def feed(self, piece: bytes) -> bytes:
        """Count what begins in the next piece; return what is known to be before the end of the archive."""
        view, passed = memoryview(piece), bytearray()
        while view and not self.is_complete:
            if self._skip and not self._is_sparse_map:
                skipped = view[: self._skip]
                self._pax += skipped[: max(0, self._pax_bytes - len(self._pax))]
                self._skip -= len(skipped)
                passed += skipped
                view = view[len(skipped) :]
                continue
            missing = _TAR_BLOCK_BYTES - len(self._block)
            self._block += view[:missing]
            view = view[missing:]
            if len(self._block) == _TAR_BLOCK_BYTES:
                self._count_entry(bytes(self._block))
                passed += b"" if self.is_complete else self._block
                self._block.clear()
        return bytes(passed)

    def end(self, last_entry: str) -> bytes:
        """Return the last entry and the end of the archive, or the rest of an incomplete archive."""
        if not self.is_complete:
            return bytes(self._block)
        entry = tarfile.TarInfo(last_entry)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o700
        return entry.tobuf(tarfile.USTAR_FORMAT).ljust(tarfile.RECORDSIZE, b"\0")

    def _count_entry(self, header: bytes) -> None:
        if self._is_sparse_map:
            self._is_sparse_map = header[_SPARSE_BLOCK_CONTINUES_AT] != 0
            return
        try:
            entry = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError:  # padding, or not an archive: `tar` reports that
            self.is_complete = self.is_complete or not header.strip(b"\0")
            return
        size = entry.size
        if entry.type in _METADATA_TYPES:
            # A pax header holds the sizes that do not fit into the octal digits of the header.
            if entry.type == tarfile.XHDTYPE:
                self._pax, self._pax_bytes = bytearray(), min(size, _MAX_PAX_BYTES)
        else:
            if pax_size := _PAX_SIZE.search(self._pax):
                size = int(pax_size[1])
            self._pax, self._pax_bytes = bytearray(), 0
            self.entries += 1
            self.bytes += size
            self._is_sparse_map = entry.type == tarfile.GNUTYPE_SPARSE and header[_SPARSE_CONTINUES_AT] != 0
        # `tarfile` accepts negative sizes, which `tar` rejects.
        self._skip = max(0, -(-size // _TAR_BLOCK_BYTES) * _TAR_BLOCK_BYTES)


async def _wait_for_tar(command: PodCommand) -> None:
    """Wait for the line that the command prints when `tar` has exited, or for the end of its output."""
    while (piece := await command.read()) and b"\n" not in piece:
        pass  # not kept: programs in the sandbox control the output


async def _write(command: PodCommand, data: bytes, tar_exited: asyncio.Future[Any]) -> None:
    if tar_exited.done():
        return  # `tar` has failed
    write: asyncio.Future[Any] = asyncio.ensure_future(command.write(data))
    # A command that has ended reads no input: a plain `await write` could block forever.
    await asyncio.wait({write, tar_exited}, return_when=asyncio.FIRST_COMPLETED)
    write.cancel()
    await asyncio.gather(write, return_exceptions=True)


async def _drain_body(body: AsyncIterator[bytes]) -> None:
    """Read the rest of the body: many clients read the response only after sending everything."""
    try:
        async with asyncio.timeout(_DRAIN_TIMEOUT):
            async for _ in body:
                pass
    except TimeoutError:
        return


async def _read_first_block(command: PodCommand) -> bytes:
    """Read the first block; an empty archive begins with zeros."""
    head = b""
    while len(head) < _TAR_BLOCK_BYTES and (piece := await command.read()):
        head += piece
    return head


async def _iter_archive(
    stack: AsyncExitStack, command: PodCommand, first_block: bytes, path: str, failure_marker: str
) -> AsyncIterator[bytes]:
    async with stack:
        yield first_block
        while piece := await command.read():
            yield piece
        code = await command.wait()
        if _is_complete(code, command.stderr):
            return
        if code is None or not failure_marker:
            # The response has started: only aborting it tells the client that the archive is incomplete.
            raise PodResponseLostError(f"{path}: packing failed: {command.stderr}")
        yield failure_marker.encode() + msgspec.json.encode(_packing_error(path, code, command.stderr))


def _is_complete(code: int | None, stderr: str) -> bool:
    """Return whether everything was packed; a file that changes meanwhile is packed as it was read."""
    return code == 0 or (code == _TAR_FILES_DIFFER and any(text in stderr for text in _FILE_CHANGED_MESSAGES))


def _packing_error(path: str, code: int, stderr: str) -> Problem:
    """Describe the failure of a `tar` that has sent a part of the archive; its messages name the files."""
    problem = _tar_error(path, code, stderr, extracting=False).problem
    messages = stderr[:_MAX_REPORTED_CHARACTERS]
    return msgspec.structs.replace(problem, message=f"tar: exit code {code} in the sandbox: {messages}")


def _tar_error(path: str, code: int | None, stderr: str, *, extracting: bool) -> ApiError:
    """Convert the failure of `tar` to an API error."""
    # When extracting, other paths may be missing too; the target directory appears with its full path.
    is_missing = any(text in stderr for text in ("No such file or directory", "Not a directory"))
    if is_missing and (not extracting or path in stderr):
        return ApiError(404, "path-missing", f"{path}: not found in the sandbox")
    if "Permission denied" in stderr:
        hint = "Choose a path that the sandbox's user may use, or change its permissions in the sandbox."
        return conflict("path-denied", f"{path}: permission denied in the sandbox", hint)
    if "No space left" in stderr or "Disk quota exceeded" in stderr:
        return conflict("disk-full", "no space left in the sandbox", "Delete files in the sandbox.")
    if code is None or any(text in stderr for text in _TAR_MISSING_MESSAGES):
        hint = "Use an image that contains `tar`."
        return conflict("no-tar", f"tar: cannot run in the sandbox: {stderr}".rstrip(": "), hint)
    return conflict("copy-failed", f"tar: exit code {code} in the sandbox: {stderr}".rstrip(": "))
