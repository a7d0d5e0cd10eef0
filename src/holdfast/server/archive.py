"""Looks into a tar archive as it passes by: names and links that would leave the folder are refused.

Knows ustar, GNU's long names and pax headers, and refuses what it does not know: what is looked at here must
be what is unpacked there. Holds one header and one name at a time, never a file. Not here: unpacking.
"""

from __future__ import annotations

import posixpath
import sys
from typing import TYPE_CHECKING

from holdfast.sandbox import pax
from holdfast.server.problems import ApiError, bad_request

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = 512
_LARGEST_META = 64 * 1024
_LONGEST_NAME = 4096
"""bytes; no system opens a longer path"""
_MOST_ABOUT_LINKS = 8 * 1024 * 1024
_COST_OF_A_LINK = 64
"""bytes of a set for each of its members, about"""
_FILES, _HARD_LINK, _SYMLINK, _FOLDER = (b"0", b"\0", b"7"), b"1", b"2", b"5"
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL = b"L", b"K", b"x", b"g"
_META = (_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL)
_MOST_ENTRIES = 10_000_000


class ArchiveCheck:
    """Takes an archive in pieces of any size; raises at the first thing that must not be unpacked."""

    def __init__(self) -> None:
        self.entries = 0
        self.bytes = 0
        self._buffer = bytearray()
        self._skip = 0
        """bytes of content, with the padding, that are still to pass"""
        self._meta: bytes = b""
        """the kind of header whose content is being collected"""
        self._meta_size = 0
        self._zeros = 0
        self._pax: dict[str, str] = {}
        self._links: set[str] = set()
        self._about_links = 0

    def feed(self, piece: bytes) -> None:
        """Look at the next piece."""
        view = memoryview(piece)
        while view:
            if self._skip and not self._meta:
                passed = min(self._skip, len(view))
                self._skip -= passed
                view = view[passed:]
                continue
            wanted = (self._skip if self._meta else _BLOCK) - len(self._buffer)
            self._buffer += view[:wanted]
            view = view[wanted:]
            if len(self._buffer) < (self._skip if self._meta else _BLOCK):
                return
            block, self._buffer = bytes(self._buffer), bytearray()
            if self._meta:
                self._collected(block)
            else:
                self._header(block)

    def end(self) -> None:
        """The archive is over: it must have ended between two entries."""
        if self._skip or self._buffer or self._meta or (not self.entries and not self._zeros):
            raise _refused("archive-cut", "the archive ends in the middle", "Send it again.")

    def _header(self, block: bytes) -> None:
        if not any(block):
            self._zeros += 1
            return
        if self._zeros:
            # Behind its end an archive is padding; programs differ in what they would make of more.
            raise _refused("bad-archive", "the archive goes on behind its end")
        if not _sum_is_right(block):
            raise _refused("bad-archive", "it is no tar archive", "Send an uncompressed tar archive.")
        kind, size = block[156:157], _number(block[124:136])
        if kind in _META:
            self._meta_header(kind, size)
            return
        name = self._pax.get("path") or _own_name(block)
        link = self._pax.get("linkpath") or _text(block[157:257])
        size = _pax_size(self._pax, size)
        self._pax = {}
        if any(len(each.encode("utf-8", "surrogateescape")) > _LONGEST_NAME for each in (name, link)):
            raise _refused("bad-archive", "a name in the archive is too long")
        self._entry(kind, name, link)
        if size and kind not in _FILES:
            # Programs differ in whether they would skip it.
            raise _refused("bad-archive", f"{_short(name)!r} has content, but is no file")
        self.bytes += size
        self._skip = _padded(size)

    def _meta_header(self, kind: bytes, size: int) -> None:
        if not 0 < size <= _LARGEST_META:
            raise _refused("bad-archive", "a name in the archive is too long")
        self._meta, self._meta_size, self._skip = kind, size, _padded(size)

    def _collected(self, block: bytes) -> None:
        content, kind = block[: self._meta_size], self._meta
        self._meta, self._skip = b"", 0
        if kind == _LONG_NAME:
            self._pax["path"] = _text(content)
        elif kind == _LONG_LINK:
            self._pax["linkpath"] = _text(content)
        else:
            found = _records(content)
            if kind == _PAX_GLOBAL and found.keys() & {"path", "linkpath", "size"}:
                raise _refused("bad-archive", "the archive gives one name to all of its entries")
            if any(key.startswith("GNU.sparse") for key in found):
                raise _refused("bad-archive", "the archive holds a sparse file", "Pack it without --sparse.")
            if kind == _PAX:
                self._pax |= found

    def _entry(self, kind: bytes, name: str, link: str) -> None:
        self.entries += 1
        if self.entries > _MOST_ENTRIES:
            raise _refused("bad-archive", "the archive holds too many entries")
        inside = _inside(name, name)
        if self._leads_through_a_link(inside):
            raise _refused("unsafe-archive", f"{_short(name)!r} would be written through a link")
        if kind in (*_FILES, _FOLDER):
            return
        if kind == _SYMLINK:
            _inside(posixpath.join(posixpath.dirname(inside), link) if link[:1] != "/" else link, name)
            self._remember(inside)
        elif kind == _HARD_LINK:
            target = _inside(link, name)
            if target in self._links or self._leads_through_a_link(target):
                raise _refused("unsafe-archive", f"{_short(name)!r} is a link through a link")
        else:
            raise _refused("unsafe-archive", f"{_short(name)!r} is neither a file, a folder nor a link")

    def _leads_through_a_link(self, path: str) -> bool:
        return bool(self._links) and any(parent in self._links for parent in _parents(path))

    def _remember(self, link: str) -> None:
        if link in self._links:
            return
        self._about_links += sys.getsizeof(link) + _COST_OF_A_LINK
        if self._about_links > _MOST_ABOUT_LINKS:
            raise _refused("bad-archive", "the archive holds too many links", "Send it in parts.")
        self._links.add(link)


def _inside(path: str, name: str) -> str:
    """The path below the folder that is unpacked into; refused if it leads out of it."""
    if not path or "\0" in path:
        raise _refused("bad-archive", "an entry has no name")
    if path.startswith("/"):
        raise _refused("unsafe-archive", f"{_short(name)!r} leads out of the folder: it is absolute")
    if path == name and ".." in path.split("/"):
        raise _refused("unsafe-archive", f"{_short(name)!r} leads out of the folder: it holds '..'")
    normal = posixpath.normpath(path)
    if normal == ".." or normal.startswith("../"):
        raise _refused("unsafe-archive", f"{_short(name)!r} links out of the folder")
    return normal


def _parents(path: str) -> Iterator[str]:
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)


def _own_name(block: bytes) -> str:
    name = _text(block[:100])
    if block[257:263] == b"ustar\0" and (prefix := _text(block[345:500])):
        return f"{prefix}/{name}"
    return name


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        value = int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
    else:
        digits = field.split(b"\0", 1)[0].strip()
        if not all(byte in b"01234567" for byte in digits):
            raise _refused("bad-archive", "an entry has no readable size")
        value = int(digits or b"0", 8)
    if value >= 1 << 62:
        raise _refused("bad-archive", "an entry has no possible size")
    return value


def _pax_size(pax: dict[str, str], size: int) -> int:
    given = pax.get("size")
    if given is None:
        return size
    if not (given.isascii() and given.isdigit() and len(given) < 19):  # noqa: PLR2004 (2^62)
        raise _refused("bad-archive", "an entry has no readable size")
    return int(given)


def _records(content: bytes) -> dict[str, str]:
    try:
        return pax.records(content)
    except ValueError as error:
        raise _refused("bad-archive", str(error)) from None


def _sum_is_right(block: bytes) -> bool:
    digits = block[148:156].split(b"\0", 1)[0].strip()
    if not digits or not all(byte in b"01234567" for byte in digits):
        return False
    return int(digits, 8) == sum(block[:148]) + 8 * 0x20 + sum(block[156:])


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:77]}..."  # noqa: PLR2004 (one line of a message)


def _refused(code: str, message: str, hint: str = "") -> ApiError:
    return bad_request(code, message, hint)
