"""Image layers as tar files that come out the same for the same content, whoever builds them and when.

Not here: the image around the layers (archive.py).
"""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_EPOCH = 0


class Layer:
    """A layer under construction: files, folders and links with a fixed time, owned by root unless said."""

    def __init__(self, path: Path) -> None:
        self._tar = tarfile.open(path, "w", format=tarfile.GNU_FORMAT)  # noqa: SIM115 (closed by __exit__)
        self._folders: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tar.close()

    def file(self, target: str, source: Path, *, mode: int | None = None) -> None:
        """Put a file of the build machine into the layer; executable stays executable."""
        entry = self._entry(target)
        entry.size = source.stat().st_size
        executable = source.stat().st_mode & 0o111
        entry.mode = mode if mode is not None else (0o755 if executable else 0o644)
        with source.open("rb") as content:
            self._tar.addfile(entry, content)

    def content(self, target: str, data: bytes, *, mode: int = 0o644) -> None:
        """Put bytes into the layer as a file."""
        entry = self._entry(target)
        entry.size, entry.mode = len(data), mode
        self._tar.addfile(entry, io.BytesIO(data))

    def link(self, target: str, destination: str) -> None:
        """Put a symbolic link at `target` that points to `destination`."""
        entry = self._entry(target)
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, destination, 0o777
        self._tar.addfile(entry)

    def folder(self, target: str, *, mode: int = 0o755, owner: tuple[int, int] = (0, 0)) -> None:
        """Put an empty folder into the layer."""
        name = target.strip("/")
        if not name or name in self._folders:
            return
        self._parents(name)
        self._folders.add(name)
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, mode, _EPOCH
        entry.uid, entry.gid = owner
        self._tar.addfile(entry)

    def _entry(self, target: str) -> tarfile.TarInfo:
        name = target.strip("/")
        self._parents(name)
        entry = tarfile.TarInfo(name)
        entry.mtime = _EPOCH
        return entry

    def _parents(self, name: str) -> None:
        """Name every folder on the way: an engine makes unnamed ones so that only root may enter them."""
        parts = name.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            self.folder("/".join(parts[:depth]))


def read_member(archive: Path, name: str) -> bytes:
    """The content of one file of a tar, links followed within it."""
    with tarfile.open(archive) as tar:
        for candidate in (f"./{name.strip('/')}", name.strip("/")):
            try:
                content = tar.extractfile(candidate)
            except KeyError:
                continue
            if content is not None:
                return content.read()
    raise FileNotFoundError(f"{name} is not in {archive.name}")
