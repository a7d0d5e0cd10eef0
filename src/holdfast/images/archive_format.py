"""The format of `holdfast image save`: a Docker archive with an index and checksums, compressed with gzip.

    holdfast-images.json       the index: version of holdfast, architecture, images
    ...                        layers and configurations, as the container engine exports them
    holdfast-checksums.json    the SHA-256 of every other member
    manifest.json, ...         the members that name the images

`docker load` accepts the archive too. The members that name the images are last: a reader passes on only a
manifest that it has verified, after everything else. Without it a container engine loads nothing.
"""

from __future__ import annotations

import hashlib
import posixpath
import tarfile
import zlib
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast import __version__
from holdfast.errors import CorruptFileError, ImageIncompatibleError
from holdfast.images.image_archive import CHUNK_SIZE, TAR_END, tar_member
from holdfast.images.tar_reader import TarEntry, TarEntryKind, TarReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_T = TypeVar("_T")

FORMAT_VERSION = 1
_INDEX_FILE, _CHECKSUMS_FILE = "holdfast-images.json", "holdfast-checksums.json"
_MANIFEST_FILE = "manifest.json"
# Docker's manifest, and those that newer engines add.
_NAMING_FILES = (_MANIFEST_FILE, "repositories", "index.json", "oci-layout")
# Members that holdfast keeps in memory; a larger one is not from `image save`.
_MAX_JSON_BYTES = 1 << 20
_MAX_MEMBERS = 10_000
_TYPE_FLAGS = {
    TarEntryKind.FILE: tarfile.REGTYPE,
    TarEntryKind.DIRECTORY: tarfile.DIRTYPE,
    TarEntryKind.SYMLINK: tarfile.SYMTYPE,
    TarEntryKind.HARD_LINK: tarfile.LNKTYPE,
}
_GZIP_WINDOW = 31
_GZIP_MAGIC = b"\x1f\x8b"
# A higher level costs three times as much CPU time for 8 % less.
_GZIP_LEVEL = 1


class SavedImage(msgspec.Struct, frozen=True, kw_only=True):
    """One image in an archive."""

    image: str
    reference: str
    id: str
    inputs: str
    size: int


class ArchiveIndex(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive contains."""

    format: int
    version: str
    architecture: str
    images: tuple[SavedImage, ...]

    @property
    def size(self) -> int:
        """About how many bytes the images have in the archive before compression."""
        return sum({image.id: image.size for image in self.images}.values())


class _IndexVersion(msgspec.Struct, frozen=True):
    """What the index contains in every format."""

    format: int
    version: str


class _DockerImage(msgspec.Struct, frozen=True):
    """An entry of Docker's manifest.json."""

    config: str = msgspec.field(name="Config")
    tags: tuple[str, ...] = msgspec.field(name="RepoTags")
    layers: tuple[str, ...] = msgspec.field(name="Layers")


def compress(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress with gzip."""
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def decompress(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Decompress with gzip.

    Raises:
        CorruptFileError: the content is not gzip, is damaged, or ends too early.
    """
    decompressor, is_first = zlib.decompressobj(_GZIP_WINDOW), True
    try:
        for chunk in chunks:
            if is_first and not chunk.startswith(_GZIP_MAGIC):
                raise foreign_file_error(name)
            is_first = False
            if decompressor.eof:
                raise damaged_error(name, "there is data after its end")
            pending, data = chunk, b""
            # Also while the last output had the full size: the decompressor may hold more.
            while pending or len(data) == CHUNK_SIZE:
                # With a limit: a small part of an archive may expand to gigabytes.
                data = decompressor.decompress(pending, CHUNK_SIZE)
                pending = decompressor.unconsumed_tail
                yield data
            if decompressor.unused_data:
                raise damaged_error(name, "there is data after its end")
    except zlib.error:
        raise damaged_error(name, "its compressed data is invalid") from None
    if not decompressor.eof:
        raise damaged_error(name, "its end is missing")


def encode_archive(index: ArchiveIndex, exported: Iterable[bytes]) -> Iterator[bytes]:
    """Yield an archive, not compressed.

    Args:
        index: what the archive contains.
        exported: the chunks of a Docker archive with these images.

    Raises:
        CorruptFileError: the Docker archive is incomplete.
    """
    members = _Members(_export_error)
    encoded = msgspec.json.encode(index)
    yield from _encode_json(_INDEX_FILE, encoded)
    members.checksums[_INDEX_FILE] = hashlib.sha256(encoded).hexdigest()
    reader = TarReader(exported, _export_error)
    for entry in reader.entries():
        yield from members.take(entry, reader)
    members.check_complete(members.manifest())
    yield from _encode_json(_CHECKSUMS_FILE, msgspec.json.encode(members.checksums, order="deterministic"))
    for header, content in members.naming.values():
        yield from tar_member(header, [content])
    yield TAR_END


class ArchiveReader:
    """Reads an archive once, and verifies it.

    Args:
        chunks: the archive, not compressed.
        name: name of the archive in errors.

    Raises:
        CorruptFileError: it is not an archive of `image save`.
    """

    def __init__(self, chunks: Iterable[bytes], name: str) -> None:
        self._fail = partial(damaged_error, name)
        self._reader = TarReader(chunks, self._fail)
        self._entries = self._reader.entries()
        first = next(self._entries, None)
        if first is None or first.name != _INDEX_FILE:
            raise foreign_file_error(name)
        encoded = _read_json(first, self._reader, self._fail)
        found = self._decode(encoded, _IndexVersion)
        if found.format != FORMAT_VERSION:
            raise _other_format_error(name, found)
        self.index = self._decode(encoded, ArchiveIndex)
        self._members = _Members(self._fail)
        self._members.checksums[_INDEX_FILE] = hashlib.sha256(encoded).hexdigest()

    def docker_archive(self) -> Iterator[bytes]:
        """Yield the images as a Docker archive.

        Raises:
            CorruptFileError: the archive is damaged or incomplete. The chunks before this error contain no
                names of images, so a container engine loads nothing.
        """
        expected: dict[str, str] = {}
        for entry in self._entries:
            if entry.name == _CHECKSUMS_FILE:
                expected = self._decode(_read_json(entry, self._reader, self._fail), dict[str, str])
            else:
                yield from self._members.take(entry, self._reader)
        manifest = self._verify(expected)
        # Encoded again, and alone: another member or spelling of a field could name an image that was not
        # compared with the index. containerd prefers `index.json` to the manifest.
        yield from _encode_json(_MANIFEST_FILE, msgspec.json.encode(manifest))
        yield TAR_END

    def _verify(self, expected: dict[str, str]) -> tuple[_DockerImage, ...]:
        if not expected:
            raise self._fail("its end is missing")
        if self._members.checksums != expected:
            different = self._members.checksums.items() ^ expected.items()
            raise self._fail(f"the checksum of {min(name for name, _ in different)} differs")
        manifest = self._members.manifest()
        # The archive must not replace other images of the container engine.
        tags = {tag for image in manifest for tag in image.tags}
        if tags != {image.reference for image in self.index.images}:
            raise self._fail("its images differ from its index")
        self._members.check_complete(manifest)
        return manifest

    def _decode(self, content: bytes, kind: type[_T]) -> _T:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError:
            raise self._fail("its index is invalid") from None


class _Members:
    """The members of an archive that were read so far."""

    def __init__(self, fail: Callable[[str], CorruptFileError]) -> None:
        self._fail = fail
        self._needed: set[str] = set()  # targets of links
        self.checksums: dict[str, str] = {}
        self.naming: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def take(self, entry: TarEntry, reader: TarReader) -> Iterator[bytes]:
        """Yield a member for a Docker archive; keep it if it names images."""
        header = _tar_header(entry, self._fail)
        # The checksum covers the type and the link target, too.
        digest, path = (
            hashlib.sha256(header.type + header.linkname.encode() + b"\0"),
            _clean_path(header.name),
        )
        if header.name in self.checksums or path in self.naming:
            raise self._fail(f"{header.name} occurs twice")
        if len(self.checksums) == _MAX_MEMBERS:
            raise self._fail("it has too many members")
        if path in _NAMING_FILES:
            content = _read_json(entry, reader, self._fail)
            digest.update(content)
            self.naming[path] = (header, content)
        else:
            yield from tar_member(header, _hash_chunks(reader.content(), digest))
        if header.issym() or header.islnk():
            folder = posixpath.dirname(header.name) if header.issym() else ""
            self._needed.add(_clean_path(f"{folder}/{header.linkname}"))
        self.checksums[header.name] = digest.hexdigest()

    def manifest(self) -> tuple[_DockerImage, ...]:
        """Return the images of manifest.json."""
        if _MANIFEST_FILE not in self.naming:
            raise self._fail("it has no manifest")
        _, content = self.naming[_MANIFEST_FILE]
        try:
            return msgspec.json.decode(content, type=tuple[_DockerImage, ...])
        except msgspec.MsgspecError:
            raise self._fail("its manifest is invalid") from None

    def check_complete(self, manifest: Iterable[_DockerImage]) -> None:
        """Check that the configurations and layers of all images are there."""
        needed = self._needed.union(*((image.config, *image.layers) for image in manifest))
        missing = needed - {_clean_path(name) for name in self.checksums}
        if missing:
            raise self._fail(f"{min(missing)} is missing")


def foreign_file_error(name: str) -> CorruptFileError:
    """The error for a file that is something else."""
    return CorruptFileError(
        f"{name}: not an archive of `holdfast image save`",
        hint="Create one with `holdfast image save FILE` on a machine that has the images.",
    )


def damaged_error(name: str, problem: str) -> CorruptFileError:
    """The error for an archive that cannot be used."""
    return CorruptFileError(
        f"{name}: the archive is damaged or incomplete: {problem}",
        hint="Copy it again, or create it again with `holdfast image save FILE`.",
    )


def _export_error(problem: str) -> CorruptFileError:
    return CorruptFileError(
        f"export of the container engine: incomplete: {problem}",
        hint="Run the same command again.",
    )


def _other_format_error(name: str, found: _IndexVersion) -> ImageIncompatibleError:
    return ImageIncompatibleError(
        f"{name}: its format is {found.format}, but holdfast {__version__} reads format {FORMAT_VERSION}",
        hint=f"Create the archive again with holdfast {__version__}.",
    )


def _tar_header(entry: TarEntry, fail: Callable[[str], CorruptFileError]) -> tarfile.TarInfo:
    """Return a header to write; container engines read regular files, directories and links."""
    header = tarfile.TarInfo(entry.name.rstrip("/"))
    if entry.kind not in _TYPE_FLAGS:
        raise fail(f"the type of {entry.name} is not supported")
    try:
        f"{entry.name}{entry.link_target}".encode()
    except UnicodeEncodeError:
        raise fail("a name is not UTF-8") from None
    header.type, header.linkname = _TYPE_FLAGS[entry.kind], entry.link_target
    header.size, header.mode, header.mtime = entry.size, entry.mode, int(entry.mtime)
    return header


def _read_json(entry: TarEntry, reader: TarReader, fail: Callable[[str], CorruptFileError]) -> bytes:
    if entry.size > _MAX_JSON_BYTES:
        raise fail(f"{entry.name} is too large")
    return b"".join(reader.content())


def _clean_path(name: str) -> str:
    """Return the path that container engines use for a member."""
    return posixpath.normpath(name).lstrip("/")


def _hash_chunks(chunks: Iterable[memoryview], digest: hashlib._Hash) -> Iterator[bytes]:
    for chunk in chunks:
        digest.update(chunk)
        yield bytes(chunk)


def _encode_json(name: str, content: bytes) -> Iterator[bytes]:
    header = tarfile.TarInfo(name)
    header.size = len(content)
    return tar_member(header, [content])
