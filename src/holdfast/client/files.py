"""Files of one sandbox: read, write, list and change them with the shell and the file commands of its image.

Paths travel as text for `printf %b`, which can express every byte, and come back as bytes. Names that are not
valid UTF-8 are text with surrogate escapes in Python, as those of `os.listdir`.
"""

from __future__ import annotations

import asyncio
import io
import os
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeAlias

from holdfast.api import Channel
from holdfast.client import file_scripts as scripts
from holdfast.client.file_entries import FileEntry, parse_entries
from holdfast.client.paths import WORKSPACE_DIR, remote_path
from holdfast.errors import (
    ApiRequestRejectedError,
    ArgumentTypeError,
    DiskFullError,
    HoldfastError,
    InvalidArgumentError,
    ObjectConflictError,
    PathIsDirectoryError,
    PathNotDirectoryError,
    PathNotFoundError,
    PathPermissionError,
    ResponseLostError,
)

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from typing import BinaryIO

    from holdfast.client.exec import AsyncExecSession
    from holdfast.client.scripts import ScriptRunner

RemotePath: TypeAlias = str | os.PathLike[str]

_CHUNK_SIZE = 1 << 20
_MAX_MODE = 0o7777
_ERRORS: dict[int, tuple[type[HoldfastError], str, str]] = {
    scripts.MISSING: (PathNotFoundError, "not found", "Check the path."),
    scripts.DENIED: (
        PathPermissionError,
        "permission denied",
        "Choose a path that the sandbox's user may use, or change its permissions in the sandbox.",
    ),
    scripts.IS_DIRECTORY: (PathIsDirectoryError, "is a directory", "Name a file."),
    scripts.NOT_DIRECTORY: (PathNotDirectoryError, "not a directory", "Check the path and its parents."),
    scripts.NOT_EMPTY: (
        ObjectConflictError,
        "the directory is not empty",
        "Delete it with its entries: recursive.",
    ),
}
_UNDELETABLE = (PurePosixPath("/"), WORKSPACE_DIR)
_PLAIN_BYTES = frozenset(b"/._-+,=@: ") | frozenset(byte for byte in range(128) if chr(byte).isalnum())
_FULL_DISK_MESSAGES = ("No space left", "Disk quota exceeded")
_DENIED_MESSAGES = ("Permission denied", "Operation not permitted", "Read-only file system")


class AsyncFiles:
    """Files of one sandbox. Paths are relative to `/sandbox`; the commands of the image run as its user."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner

    async def read(self, path: RemotePath) -> bytes:
        """Return the content of a file.

        Raises:
            PathNotFoundError: the file does not exist.
            PathIsDirectoryError: the path is a directory.
            PathPermissionError: the user of the sandbox may not read it.
            ResponseLostError: the connection was lost.
        """
        return b"".join([chunk async for chunk in self.stream(path)])

    async def read_text(self, path: RemotePath, *, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the content of a text file.

        Args:
            path: the file.
            encoding: encoding of the text.
            errors: what to do with bytes that are not valid text, as for `bytes.decode`.

        Raises:
            UnicodeDecodeError: the content is not valid text.
            ApiRequestRejectedError: the file cannot be read; see `read`.
        """
        return (await self.read(path)).decode(encoding, errors)

    async def stream(self, path: RemotePath) -> AsyncIterator[bytes]:
        """Iterate over the content of a file, with constant memory. Raises the errors of `read`."""
        async with self._open(scripts.READ_SCRIPT, path) as session:
            stderr = b""
            async for channel, data in session:
                if channel == Channel.STDOUT:
                    yield data
                else:
                    stderr += data
            self._check(session.exit_code, stderr, path)

    async def write(
        self, path: RemotePath, data: bytes | str | BinaryIO, *, mode: int | None = None
    ) -> FileEntry:
        """Write a file. After a failure or a lost connection, it has its old content, or does not exist.

        A link to a file stays a link. Missing directories are created.

        Args:
            path: the file.
            data: content; text is encoded as UTF-8. An open file is read from its position to its end.
            mode: permission bits; those of the existing file if omitted.

        Returns:
            The written file.

        Raises:
            PathIsDirectoryError: the path is a directory.
            PathNotDirectoryError: a parent is not a directory.
            PathPermissionError: the user of the sandbox may not write there.
            DiskFullError: the disk of the sandbox is full.
            ResponseLostError: the connection was lost; the file may have been written.
        """
        source, size = _open_source(data)
        args = (str(size), _format_mode(mode))
        async with self._open(scripts.WRITE_SCRIPT, path, *args, stdin=True) as session:
            stdout, stderr = await _send_when_ready(session, source)
        self._check(session.exit_code, stderr, path)
        return self._parse(stdout.removeprefix(b"ready\n"), path)[0]

    async def list(self, path: RemotePath = ".") -> builtins.list[FileEntry]:
        """Return the entries of a directory, sorted by name.

        Raises:
            PathNotFoundError: the directory does not exist.
            PathNotDirectoryError: the path is not a directory.
            PathPermissionError: the user of the sandbox may not read it.
        """
        output = await self._run(scripts.LIST_SCRIPT, path)
        return sorted(self._parse(output, path, is_listing=True), key=lambda entry: entry.name)

    async def stat(self, path: RemotePath) -> FileEntry:
        """Return the type, size, mode and time of a file, directory or link; a link is not followed.

        Raises:
            PathNotFoundError: the path does not exist.
        """
        return self._parse(await self._run(scripts.STAT_SCRIPT, path), path)[0]

    async def exists(self, path: RemotePath) -> bool:
        """Whether a file, directory or link exists.

        Raises:
            PathPermissionError: the user of the sandbox may not search a parent directory.
        """
        try:
            await self._run(scripts.EXISTS_SCRIPT, path)
        except (PathNotFoundError, PathNotDirectoryError):
            return False
        return True

    async def make_dir(self, path: RemotePath) -> None:
        """Create a directory and its missing parents; an existing directory stays as it is.

        Raises:
            PathNotDirectoryError: the path or a parent is not a directory.
            PathPermissionError: the user of the sandbox may not write there.
            DiskFullError: the disk of the sandbox is full.
        """
        await self._run(scripts.MAKE_DIR_SCRIPT, path)

    async def remove(
        self, path: RemotePath, *, recursive: bool = False, ignore_missing: bool = False
    ) -> None:
        """Delete a file, a link or an empty directory.

        Args:
            path: what to delete; a link itself is deleted, not its target.
            recursive: delete a directory with its entries.
            ignore_missing: succeed if the path does not exist.

        Raises:
            InvalidArgumentError: the path is the root directory or the workspace.
            PathNotFoundError: the path does not exist, and `ignore_missing` is not set.
            ObjectConflictError: the directory is not empty, and `recursive` is not set.
            PathPermissionError: the user of the sandbox may not delete it.
        """
        if remote_path(path) in _UNDELETABLE:
            raise InvalidArgumentError("path", f"{remote_path(path)} cannot be deleted; name an entry in it")
        try:
            await self._run(scripts.REMOVE_SCRIPT, path, "1" if recursive else "0")
        except PathNotFoundError:
            if not ignore_missing:
                raise

    async def rename(self, source: RemotePath, target: RemotePath) -> None:
        """Rename a file, directory or link. An existing file `target` is replaced.

        Raises:
            PathNotFoundError: the source, or the directory of the target, does not exist.
            PathIsDirectoryError: the target is an existing directory.
            PathNotDirectoryError: the source is a directory and the target an existing file.
            PathPermissionError: the user of the sandbox may not write there.
        """
        async with self._open(scripts.RENAME_SCRIPT, source, _encode_path(target)) as session:
            result = await session.communicate()
        is_target = result.stderr.startswith(b"target\n")
        self._check(
            result.exit_code, result.stderr.removeprefix(b"target\n"), target if is_target else source
        )

    async def _run(self, script: str, path: RemotePath, *args: str) -> bytes:
        async with self._open(script, path, *args) as session:
            result = await session.communicate()
        self._check(result.exit_code, result.stderr, path)
        return result.stdout

    def _open(
        self, script: str, path: RemotePath, *args: str, stdin: bool = False
    ) -> AbstractAsyncContextManager[AsyncExecSession]:
        return self._runner.open(script, _encode_path(path), *args, stdin=stdin)

    def _parse(
        self, output: bytes, path: RemotePath, *, is_listing: bool = False
    ) -> builtins.list[FileEntry]:
        # A sandbox is not trusted: its programs may print anything.
        with suppress(ValueError):
            entries = parse_entries(output, remote_path(path), is_listing=is_listing)
            if entries or is_listing:
                return entries
        raise ApiRequestRejectedError(
            f"{self._describe(path)}: unexpected output of `stat`",
            hint="Use an image with `stat` of GNU coreutils, busybox or toybox.",
        )

    def _describe(self, path: RemotePath) -> str:
        return f"{_printable(str(remote_path(path)))} in sandbox {self._runner.name}"

    def _check(self, code: int, stderr: bytes, path: RemotePath) -> None:
        """Raise the error for the exit code and the messages of a script."""
        if not code:
            return
        subject = self._describe(path)
        reason = stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1]
        if any(text in reason for text in _FULL_DISK_MESSAGES):
            raise DiskFullError(f"{subject}: no space left", hint="Delete files in the sandbox.")
        if any(text in reason for text in _DENIED_MESSAGES):
            code = scripts.DENIED
        if code == scripts.INCOMPLETE:
            raise ResponseLostError(f"{subject}: not written: the content has not arrived completely")
        if code in _ERRORS:
            error, problem, hint = _ERRORS[code]
            raise error(f"{subject}: {problem}", hint=hint)
        raise ApiRequestRejectedError(
            f"{subject}: {_printable(reason) or f'exit code {code}'}",
            hint="Check the path, and that the image contains `sh` and the basic file commands.",
        )


def _open_source(data: bytes | str | BinaryIO) -> tuple[BinaryIO, int]:
    """The content to write as an open file, and its size."""
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        return io.BytesIO(data), len(data)
    if not hasattr(data, "read") or hasattr(data, "encoding"):
        raise ArgumentTypeError(
            "data", f"must be bytes, text or an open binary file, not {type(data).__name__}"
        )
    start = data.tell()
    size = data.seek(0, io.SEEK_END) - start
    data.seek(start)
    return data, size


def _format_mode(mode: int | None) -> str:
    if mode is None:
        return ""
    if isinstance(mode, bool) or not isinstance(mode, int):
        raise ArgumentTypeError("mode", f"must be permission bits such as 0o644, not {mode!r}")
    if not 0 <= mode <= _MAX_MODE:
        raise InvalidArgumentError("mode", f"{mode} is not from 0 to 0o{_MAX_MODE:o}")
    return f"{mode:04o}"


async def _send_when_ready(session: AsyncExecSession, source: BinaryIO) -> tuple[bytes, bytes]:
    """Send the content when the script is ready, until it stops; return its output."""
    buffers = {Channel.STDOUT: b"", Channel.STDERR: b""}
    sending: asyncio.Future[None] | None = None
    try:
        async for channel, data in session:
            buffers[channel] += data
            lines = buffers[Channel.STDOUT].split(b"\n")
            if b"stop" in lines:
                if sending is not None:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
                await session.close_stdin()
            elif b"ready" in lines and sending is None:
                sending = asyncio.ensure_future(_send(session, source))
    finally:
        if sending is not None:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    return buffers[Channel.STDOUT], buffers[Channel.STDERR]


async def _send(session: AsyncExecSession, source: BinaryIO) -> None:
    while chunk := await asyncio.to_thread(source.read, _CHUNK_SIZE):
        await session.write(chunk)
    await session.close_stdin()


def _encode_path(path: RemotePath) -> str:
    """The absolute path as an argument of `printf %b`, which can express every byte."""
    try:
        encoded = str(remote_path(path)).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError("path", f"{path!r} cannot be encoded as UTF-8") from error
    return "".join(chr(byte) if byte in _PLAIN_BYTES else f"\\0{byte:03o}" for byte in encoded)


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
