"""Folders of files into and out of a container, running or not, in one call of the engine's archive API.

Not here: single large files and images (transfer.py), and what the files mean.
"""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

from holdfast.containers.translation import translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.containers.engine import Engine

_FOLDER_MODE = 0o755
_PRIVATE = 0o600


def read_folder(engine: Engine, container: str, path: str) -> dict[str, bytes] | None:
    """The files below a folder by their relative path; None where there is no such folder."""
    import docker.errors

    with translated(f"reading {path} from {container}", engine.address):
        try:
            stream, _ = engine.client.get_archive(container, path)
        except docker.errors.NotFound:
            return None
        packed = io.BytesIO(b"".join(stream))
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=packed) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                found[member.name.partition("/")[2]] = content.read()
    return found


def replace_folder(
    engine: Engine, container: str, parent: str, name: str, files: Mapping[str, bytes]
) -> None:
    """Make the folder `name` below `parent` hold just these files, readable by root alone.

    An archive cannot say "remove"; but a file in place of a folder takes the folder away, and a folder in
    place of that file begins anew. So one call removes what is gone and writes what is there.
    """
    with translated(f"writing {parent}/{name} in {container}", engine.address):
        engine.client.put_archive(container, parent, packed_folder(name, files))


def write_private_file(engine: Engine, container: str, parent: str, path: str, content: bytes) -> None:
    """Write one file below an existing folder, readable by root alone; folders on the way are made."""
    with translated(f"writing {parent}/{path} in {container}", engine.address):
        engine.client.put_archive(container, parent, _packed([*_folders_above([path]), (path, content)]))


def packed_folder(name: str, files: Mapping[str, bytes]) -> bytes:
    """The archive that `replace_folder` sends."""
    inside = {f"{name}/{path}": content for path, content in sorted(files.items())}
    folders = [folder for folder in _folders_above(inside) if folder[0] != name]
    return _packed([(name, b""), (name, None), *folders, *inside.items()])


def _folders_above(paths: Iterable[str]) -> list[tuple[str, bytes | None]]:
    found: dict[str, None] = {}
    for path in paths:
        parts = path.split("/")[:-1]
        found.update(dict.fromkeys("/".join(parts[:depth]) for depth in range(1, len(parts) + 1)))
    return [(folder, None) for folder in found]


def _packed(entries: Iterable[tuple[str, bytes | None]]) -> bytes:
    """A tar of files and, where there is no content, folders; all belong to root."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in entries:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type, member.mode = tarfile.DIRTYPE, _FOLDER_MODE
                archive.addfile(member)
            else:
                member.mode, member.size = _PRIVATE, len(content)
                archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
