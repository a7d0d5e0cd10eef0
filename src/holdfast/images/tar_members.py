"""Read the members of a tar archive as a stream, with bounded memory.

Python's `tarfile` keeps headers of any length in memory: a small compressed archive could fill the memory.
This reader supports what container engines write, and rejects everything else, such as sparse files.
"""

from __future__ import annotations

import io
import tarfile
from typing import IO, TYPE_CHECKING, NamedTuple

from holdfast.images.image_archive import CHUNK_SIZE, TAR_BLOCK_SIZE, read_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.errors import CorruptFileError

# Headers that only describe the next member. `tarfile` itself keeps any number of any size in memory.
_MAX_EXTENDED_HEADERS = 8
_MAX_EXTENDED_HEADER_BYTES = 4096
_LONG_NAME_FIELDS = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
_MEMBER_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE)


class TarMember(NamedTuple):
    """The header of a member, and its content."""

    header: tarfile.TarInfo
    chunks: Iterator[bytes]


class _ChunkFile(io.RawIOBase):
    """A file that reads from chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def read_members(chunks: Iterable[bytes], fail: Callable[[str], CorruptFileError]) -> Iterator[TarMember]:
    """Yield the members of a tar archive; read the chunks of one before the next.

    Args:
        chunks: the archive, read to its end.
        fail: returns the error for a problem, which is raised.
    """
    source = io.BufferedReader(_ChunkFile(chunks), CHUNK_SIZE)
    while (header := _read_header(source, fail)) is not None:
        yield TarMember(header, _read_content(source, header, fail))
        source.read(-header.size % TAR_BLOCK_SIZE)
    # Only the end of the source proves that nothing was cut off.
    while source.read(CHUNK_SIZE):
        pass


def _read_header(source: IO[bytes], fail: Callable[[str], CorruptFileError]) -> tarfile.TarInfo | None:
    """Read the header of the next member; None at the end mark."""
    fields: dict[str, str] = {}
    for _ in range(_MAX_EXTENDED_HEADERS + 1):
        block = source.read(TAR_BLOCK_SIZE)
        if len(block) == TAR_BLOCK_SIZE and not any(block):
            return None
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
            if header.type in (tarfile.XHDTYPE, tarfile.XGLTYPE, *_LONG_NAME_FIELDS):
                fields |= _read_extended_header(source, header, fail)
                continue
            header.name = fields.get("path", header.name)
            header.linkname = fields.get("linkpath", header.linkname)
            header.size = int(fields.get("size", header.size)) if header.isreg() else 0
        except (tarfile.TarError, ValueError):
            raise fail("its content is not a tar archive") from None
        if (
            header.type not in _MEMBER_TYPES
            or header.size < 0
            or any(key.startswith("GNU.") for key in fields)
        ):
            raise fail(f"the type of {header.name} is not supported")
        return header
    raise fail("a member has too many headers")


def _read_extended_header(
    source: IO[bytes], header: tarfile.TarInfo, fail: Callable[[str], CorruptFileError]
) -> dict[str, str]:
    if not 0 <= header.size <= _MAX_EXTENDED_HEADER_BYTES:
        raise fail("a header is too long")
    content = source.read(header.size + -header.size % TAR_BLOCK_SIZE)[: header.size]
    if header.type in _LONG_NAME_FIELDS:
        return {_LONG_NAME_FIELDS[header.type]: content.split(b"\0", 1)[0].decode()}
    fields = {}
    while content:  # records of the form "LENGTH KEY=VALUE\n"
        length = int(content.partition(b" ")[0])
        key, _, value = content[:length].partition(b" ")[2].removesuffix(b"\n").partition(b"=")
        fields[key.decode()] = value.decode(errors="replace")
        content = content[max(length, 1) :]
    # A global header describes all members, so that it cannot have the name or size of one.
    return fields if header.type == tarfile.XHDTYPE else {}


def _read_content(
    source: IO[bytes], header: tarfile.TarInfo, fail: Callable[[str], CorruptFileError]
) -> Iterator[bytes]:
    left = header.size
    for chunk in read_chunks(source, left):
        left -= len(chunk)
        yield chunk
    if left:
        raise fail(f"{header.name} is cut off")
