"""Strict streaming reader for tar archives of programs that are not trusted, such as those in a sandbox.

It reads one header and one chunk at a time, so that memory is bounded by constants. It supports ustar, GNU
long names and pax headers, and rejects everything else, such as sparse files. Python's `tarfile` keeps all
entries in memory and accepts headers and numbers of any length.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class _InvalidTarError(ValueError):
    """The archive is one that a regular tar program does not write; the message is the reason."""


# `int` takes quadratic time for long digit strings, and the sandbox controls their length.
_MAX_LENGTH_DIGITS = 20


def parse_pax_records(content: bytes) -> dict[str, str]:
    """Parse the records of a pax header.

    Raises:
        ValueError: a record is malformed, so that another reader could parse it differently.
    """
    records: dict[str, str] = {}
    offset = 0
    while offset < len(content):
        digits, space, _ = content[offset : offset + _MAX_LENGTH_DIGITS].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        record = content[offset : offset + length]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        is_complete = len(digits) + 1 < length == len(record) and record[-1:] == b"\n"
        if not (is_complete and equals) or b"\0" in key:
            raise _InvalidTarError("malformed pax header")
        records[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        offset += length
    return records


_BLOCK_SIZE = 512
_MAX_NAME_BYTES = 4096
_MAX_EXTENSION_BYTES = 64 * 1024
# Maximum number of consecutive headers that only describe the next entry.
_MAX_EXTENSION_HEADERS = 8
# Tar programs pad an archive to a multiple of their record size.
_MAX_TRAILING_BYTES = 16 << 20
_MAX_ENTRY_SIZE = 1 << 62
# From 1901 to 2514: the range of file systems is smaller.
_MTIME_RANGE = (-(1 << 31), 1 << 34)
_MTIME_PATTERN = re.compile(r"-?[0-9]{1,20}(\.[0-9]{0,20})?")
_SIZE_PATTERN = re.compile(r"[0-9]{1,19}")
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL = b"L", b"K", b"x", b"g"
_EXTENSION_TYPES = (_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL)
_GNU_SPARSE = b"S"
_PER_ENTRY_KEYS = {"path", "linkpath", "size"}


class TarEntryKind(enum.Enum):
    """Type of an entry; the value lists its type flags in tar headers."""

    FILE = b"\x0007"
    HARD_LINK = b"1"
    SYMLINK = b"2"
    DEVICE = b"346"
    DIRECTORY = b"5"


@dataclass(frozen=True, slots=True)
class TarEntry:
    """Header of one entry."""

    kind: TarEntryKind
    name: str
    link_target: str
    mode: int
    mtime: float
    size: int


class TarReader:
    """Reader of one archive.

    Args:
        chunks: the archive, read to its end.
        fail: returns the error for the first invalid part, which is raised; its argument is the reason.
    """

    INCOMPLETE: Final = "unexpected end of data"
    """reason for an archive that is cut off"""
    SPARSE: Final = "contains a file in sparse format"
    """reason for a format that regular tar programs write only with an option"""

    def __init__(self, chunks: Iterable[bytes], fail: Callable[[str], Exception]) -> None:
        self._chunks, self._fail = iter(chunks), fail
        self._buffer = memoryview(b"")
        self._remaining = 0  # bytes of the current entry's content

    def entries(self) -> Iterator[TarEntry]:
        """Iterate over the entries; content that was not read is skipped."""
        while (entry := self._next_entry()) is not None:
            self._remaining = entry.size
            yield entry
            for _ in self.content():
                pass
            self._read_exactly(-entry.size % _BLOCK_SIZE)
        self._check_end()

    def content(self) -> Iterator[memoryview]:
        """Iterate over the content of the current entry."""
        while self._remaining:
            piece = self._read_piece(self._remaining)
            self._remaining -= len(piece)
            yield piece

    def _next_entry(self) -> TarEntry | None:
        try:
            return self._read_headers()
        except _InvalidTarError as error:
            raise self._fail(str(error)) from None

    def _read_headers(self) -> TarEntry | None:
        pax_headers: dict[str, str] = {}
        for _ in range(_MAX_EXTENSION_HEADERS + 1):
            block = self._read_exactly(_BLOCK_SIZE)
            if not any(block):
                if pax_headers:
                    raise _InvalidTarError("the last header has no entry")
                return None
            if not _is_checksum_valid(block):
                raise _InvalidTarError("not a tar archive")
            kind = block[156:157]
            if kind not in _EXTENSION_TYPES:
                return _parse_entry(block, pax_headers)
            pax_headers |= self._read_extension_header(kind, _parse_number(block[124:136]))
        raise _InvalidTarError("an entry has too many headers")

    def _read_extension_header(self, kind: bytes, size: int) -> dict[str, str]:
        """Read a header that describes the next entry. A global header may not set names or sizes."""
        if not 0 < size <= _MAX_EXTENSION_BYTES:
            raise _InvalidTarError("a header is too long")
        content = self._read_exactly(size + -size % _BLOCK_SIZE)[:size]
        if kind in (_LONG_NAME, _LONG_LINK):
            return {"path" if kind == _LONG_NAME else "linkpath": _decode_text(content)}
        records = parse_pax_records(content)
        if any(key.startswith("GNU.sparse") for key in records):
            raise _InvalidTarError(TarReader.SPARSE)
        if kind == _PAX:
            return records
        if records.keys() & _PER_ENTRY_KEYS:
            raise _InvalidTarError("a global header sets a name or size")
        return {}

    def _check_end(self) -> None:
        """Read to the end of the stream: an interrupted stream means that the archive is incomplete."""
        remaining = _MAX_TRAILING_BYTES
        while piece := self._read_buffered(_MAX_TRAILING_BYTES):
            remaining -= len(piece)
            if remaining < 0 or bytes(piece).strip(b"\0"):
                raise self._fail("data after the end of the archive")

    def _read_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._read_piece(size - len(data))
        return data

    def _read_piece(self, max_size: int) -> memoryview:
        piece = self._read_buffered(max_size)
        if not piece:
            raise self._fail(self.INCOMPLETE)
        return piece

    def _read_buffered(self, max_size: int) -> memoryview:
        if not self._buffer:
            self._buffer = memoryview(next(filter(None, self._chunks), b""))
        piece, self._buffer = self._buffer[:max_size], self._buffer[max_size:]
        return piece


def _parse_entry(block: bytes, pax_headers: dict[str, str]) -> TarEntry:
    name = pax_headers.get("path") or _header_name(block)
    link_target = pax_headers.get("linkpath") or _decode_text(block[157:257])
    if any(len(text.encode("utf-8", "surrogateescape")) > _MAX_NAME_BYTES for text in (name, link_target)):
        raise _InvalidTarError(f"a name is longer than {_MAX_NAME_BYTES} bytes")
    if not name or "\0" in name + link_target:
        raise _InvalidTarError("an entry has no name")
    kind = next((kind for kind in TarEntryKind if block[156:157] in kind.value), None)
    if block[156:157] == _GNU_SPARSE:
        raise _InvalidTarError(TarReader.SPARSE)
    if kind is None:
        raise _InvalidTarError("an entry is not a file, directory, link or device")
    if block[156:157] == b"\0" and name.endswith("/"):
        kind = TarEntryKind.DIRECTORY  # the notation of archives before ustar
    size = _parse_size(pax_headers.get("size"), block)
    if size and kind is not TarEntryKind.FILE:
        # Tar programs differ in whether they skip it.
        raise _InvalidTarError("an entry that is not a file has content")
    return TarEntry(
        kind,
        name,
        link_target,
        # Without setuid and setgid: a program from the sandbox must not gain privileges on this machine.
        _parse_number(block[100:108]) & 0o777,
        _parse_mtime(pax_headers.get("mtime"), block),
        size,
    )


def _header_name(block: bytes) -> str:
    name = _decode_text(block[:100])
    # GNU tar has other data in the prefix field; its magic is `ustar` with two spaces.
    if block[257:263] == b"ustar\0" and (prefix := _decode_text(block[345:500])):
        return f"{prefix}/{name}"
    return name


def _parse_size(pax_value: str | None, block: bytes) -> int:
    if pax_value is not None and not _SIZE_PATTERN.fullmatch(pax_value):
        raise _InvalidTarError("an entry has an unreadable size")
    size = _parse_number(block[124:136]) if pax_value is None else int(pax_value)
    if not 0 <= size < _MAX_ENTRY_SIZE:
        raise _InvalidTarError("an entry has an impossible size")
    return size


def _parse_mtime(pax_value: str | None, block: bytes) -> float:
    if pax_value is not None and not _MTIME_PATTERN.fullmatch(pax_value):
        raise _InvalidTarError("an entry has an unreadable time")
    earliest, latest = _MTIME_RANGE
    return min(
        max(_parse_number(block[136:148]) if pax_value is None else float(pax_value), earliest), latest
    )


def _decode_text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _parse_number(field: bytes) -> int:
    if field[:1] in (b"\x80", b"\xff"):  # GNU base-256 number
        return int.from_bytes(field[:1].replace(b"\x80", b"\0") + field[1:], "big", signed=True)
    digits = field.split(b"\0", 1)[0].strip()
    if digits.strip(b"01234567"):
        raise _InvalidTarError("an unreadable number")
    return int(digits or b"0", 8)


def _is_checksum_valid(block: bytes) -> bool:
    digits = block[148:156].split(b"\0", 1)[0].strip()
    if not digits or digits.strip(b"01234567"):
        return False
    # The checksum is computed as if its own field contained spaces.
    return int(digits, 8) == sum(block[:148]) + 8 * 0x20 + sum(block[156:])
