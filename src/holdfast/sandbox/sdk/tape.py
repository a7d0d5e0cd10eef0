"""A tar archive from someone who is not trusted, read as a stream: one header and one piece at a time.

Knows ustar, GNU's long names and pax headers, and refuses what else there is, sparse files above all: what is
read is bounded by what was sent. Python's own reader is made for archives of friends: it keeps every entry,
reads headers of any length and numbers of any number of digits. Not here: writing to the disk (unpacking.py).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from holdfast.errors import ClusterRefusedError, TemporaryError
from holdfast.sandbox import pax

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 1 << 20
_BLOCK = 512
_LONGEST_NAME = 4096
_LONGEST_META = 64 * 1024
_MOST_META = 8
"""headers in a row that only say something about the next entry"""
_MOST_PADDING = 16 << 20
_LARGEST_SIZE = 1 << 62
_TIMES = (-(1 << 31), 1 << 34)
"""the seconds that a file's time may be: from 1901 to 2514, more than file systems hold"""
_TIME = re.compile(r"-?[0-9]{1,20}(\.[0-9]{0,20})?")
_SIZE = re.compile(r"[0-9]{1,19}")
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL = b"L", b"K", b"x", b"g"
_META = (_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL)
_OF_ONE_ENTRY = {"path", "linkpath", "size"}


class Kind(enum.Enum):
    """What an entry is."""

    FILE = enum.auto()
    FOLDER = enum.auto()
    SYMLINK = enum.auto()
    HARD_LINK = enum.auto()
    DEVICE = enum.auto()


_KINDS = {
    b"\0": Kind.FILE,
    b"0": Kind.FILE,
    b"7": Kind.FILE,
    b"1": Kind.HARD_LINK,
    b"2": Kind.SYMLINK,
    b"3": Kind.DEVICE,
    b"4": Kind.DEVICE,
    b"5": Kind.FOLDER,
    b"6": Kind.DEVICE,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One header of an archive."""

    kind: Kind
    name: str
    link: str
    mode: int
    time: float
    size: int


class Tape:
    """An archive that is being read; raises at the first thing in it that is not taken."""

    def __init__(self, archive: BinaryIO) -> None:
        self._archive = archive
        self._held = memoryview(b"")
        self._left = 0
        """bytes of the current entry's content"""
        self._padding = 0

    def entries(self) -> Iterator[Entry]:
        """Each entry; its content is skipped where it is not asked for before the next one."""
        while (entry := self._next()) is not None:
            self._left, self._padding = entry.size, -entry.size % _BLOCK
            yield entry
            for _ in self.content():
                pass
            self._exactly(self._padding)
        self._end()

    def content(self) -> Iterator[memoryview]:
        """The current entry's content, in pieces."""
        while self._left:
            piece = self._piece(self._left)
            self._left -= len(piece)
            yield piece

    def _next(self) -> Entry | None:
        said: dict[str, str] = {}
        for _ in range(_MOST_META + 1):
            block = self._exactly(_BLOCK)
            if not any(block):
                if said:
                    raise refused("it ends behind a header without an entry")
                return None
            if not _sum_is_right(block):
                raise refused("it is no tar archive")
            kind = block[156:157]
            if kind not in _META:
                return _entry(block, said)
            said |= self._meta(kind, _number(block[124:136]))
        raise refused("an entry has too many headers")

    def _meta(self, kind: bytes, size: int) -> dict[str, str]:
        """What a header says of the next entry; of all entries, nothing that matters here may be said."""
        if not 0 < size <= _LONGEST_META:
            raise refused("a header is too long")
        content = self._exactly(size + -size % _BLOCK)[:size]
        if kind in (_LONG_NAME, _LONG_LINK):
            return {"path" if kind == _LONG_NAME else "linkpath": _text(content)}
        found = _records(content)
        if any(key.startswith("GNU.sparse") for key in found):
            raise refused("it holds a sparse file")
        if kind == _PAX:
            return found
        if found.keys() & _OF_ONE_ENTRY:
            raise refused("it gives one name or size to all entries")
        return {}

    def _end(self) -> None:
        """To the very end: a stream that breaks off behind the archive says that the archive is not whole."""
        left = _MOST_PADDING
        while piece := self._some(_CHUNK):
            left -= len(piece)
            if left < 0 or bytes(piece).strip(b"\0"):
                raise refused("it goes on behind its end")

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += self._piece(size - len(found))
        return found

    def _piece(self, most: int) -> memoryview:
        piece = self._some(most)
        if not piece:
            raise TemporaryError(
                "the copy was cut short: unexpected end of data",
                hint="Run the same command again; it begins anew.",
            )
        return piece

    def _some(self, most: int) -> memoryview:
        if not self._held:
            self._held = memoryview(self._archive.read(_CHUNK))
        piece, self._held = self._held[:most], self._held[most:]
        return piece


def refused(why: str) -> ClusterRefusedError:
    """The error for an archive that no honest program makes."""
    return ClusterRefusedError(
        f"the sandbox sent an archive that is not taken: {why}; nothing more was written",
        hint="Do not trust what is in this sandbox.",
    )


def _entry(block: bytes, said: dict[str, str]) -> Entry:
    name, link = said.get("path") or _own_name(block), said.get("linkpath") or _text(block[157:257])
    if any(len(each.encode("utf-8", "surrogateescape")) > _LONGEST_NAME for each in (name, link)):
        raise refused(f"a name in it is longer than {_LONGEST_NAME} bytes")
    if not name or "\0" in name + link:
        raise refused("an entry has no name")
    kind = _KINDS.get(block[156:157])
    if kind is None:
        raise refused("an entry is neither a file, a folder, a link nor a device")
    if block[156:157] == b"\0" and name.endswith("/"):
        kind = Kind.FOLDER  # as archives said it before there was a letter for it
    size = _size(said.get("size"), block)
    if size and kind is not Kind.FILE:
        # Programs differ in whether they would skip it.
        raise refused("an entry that is no file has content")
    return Entry(kind, name, link, _number(block[100:108]) & 0o777, _time(said.get("mtime"), block), size)


def _own_name(block: bytes) -> str:
    name = _text(block[:100])
    if block[257:263] == b"ustar\0" and (prefix := _text(block[345:500])):
        return f"{prefix}/{name}"
    return name


def _size(said: str | None, block: bytes) -> int:
    if said is not None and not _SIZE.fullmatch(said):
        raise refused("an entry has no readable size")
    size = _number(block[124:136]) if said is None else int(said)
    if not 0 <= size < _LARGEST_SIZE:
        raise refused("an entry has no possible size")
    return size


def _time(said: str | None, block: bytes) -> float:
    if said is not None and not _TIME.fullmatch(said):
        raise refused("an entry has no readable time")
    earliest, latest = _TIMES
    return min(max(_number(block[136:148]) if said is None else float(said), earliest), latest)


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _number(field: bytes) -> int:
    if field[:1] in (b"\x80", b"\xff"):  # as many bytes as there are, with their sign
        return int.from_bytes(field[:1].replace(b"\x80", b"\0") + field[1:], "big", signed=True)
    digits = field.split(b"\0", 1)[0].strip()
    if digits.strip(b"01234567"):
        raise refused("a number in it cannot be read")
    return int(digits or b"0", 8)


def _records(content: bytes) -> dict[str, str]:
    try:
        return pax.records(content)
    except ValueError as error:
        raise refused(str(error)) from None


def _sum_is_right(block: bytes) -> bool:
    digits = block[148:156].split(b"\0", 1)[0].strip()
    if not digits or digits.strip(b"01234567"):
        return False
    return int(digits, 8) == sum(block[:148]) + 8 * 0x20 + sum(block[156:])
