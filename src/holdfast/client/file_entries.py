"""Files and directories of a sandbox, as the scripts of `holdfast.client.file_scripts` print them."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from pathlib import PurePosixPath

FileType: TypeAlias = Literal["file", "directory", "symlink", "other"]

_FILE_TYPES: dict[int, FileType] = {
    stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink",
}  # fmt: skip
# The range of `datetime`; file systems allow other times.
_MIN_TIME, _MAX_TIME = -62_135_596_800, 253_402_300_799


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file, directory or link in a sandbox.

    Attributes:
        name: last component of the path.
        path: absolute path.
        type: `file`, `directory`, `symlink` or `other`.
        size: bytes of content.
        mode: permission bits.
        mtime: time of the last change of the content.
        link_target: target of a symbolic link as it is stored, else None.
    """

    name: str
    path: str
    type: FileType
    size: int
    mode: int
    mtime: datetime
    link_target: str | None = None


def parse_entries(output: bytes, path: PurePosixPath, *, is_listing: bool = False) -> list[FileEntry]:
    """Parse the records of a script: `s` with the status of an entry, `l` with the target of a link.

    Args:
        output: the records.
        path: the directory of a listing, or the only entry.
        is_listing: whether the records contain names.

    Raises:
        ValueError: the output has another form.
    """
    statuses: dict[str, list[str]] = {}
    targets: dict[str, str] = {}
    position = 0
    while position < len(output):
        end = output.index(b"/", position)
        head = output[position + 1 : end].decode("utf-8", "surrogateescape")
        if output[position : position + 1] == b"s":
            *numbers, name = head.split(" ", 3)
            statuses[name] = numbers
            position = end + 2
        else:
            link_end = output.index(b"\0", end)
            targets[head] = output[end + 1 : link_end].decode("utf-8", "surrogateescape")
            position = link_end + 1
    return [
        _to_entry(path / name if is_listing else path, numbers, targets.get(name))
        for name, numbers in statuses.items()
    ]


def _to_entry(path: PurePosixPath, numbers: list[str], target: str | None) -> FileEntry:
    raw_mode, size, mtime = numbers
    mode = int(raw_mode, 16)
    return FileEntry(
        name=path.name,
        path=str(path),
        type=_FILE_TYPES.get(stat.S_IFMT(mode), "other"),
        size=int(size),
        mode=stat.S_IMODE(mode),
        mtime=datetime.fromtimestamp(min(max(int(mtime), _MIN_TIME), _MAX_TIME), UTC),
        link_target=target,
    )
