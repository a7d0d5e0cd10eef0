"""The format of `holdfast image save`: a Docker archive with an index and checksums, compressed with gzip.

    holdfast-images.json       the index: version of holdfast, architecture, images
    ...                        layers and configurations, as the container engine exports them
    holdfast-checksums.json    the SHA-256 of every other member
    manifest.json, ...         the members that name the images

`docker load` accepts the archive too. The members that name the images are last: a reader passes them on
after it has verified everything, and without them a container engine loads nothing.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from typing import IO, TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from holdfast.errors import CorruptFileError
from holdfast.images.image_archive import TAR_END, tar_member

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_T = TypeVar("_T")

FORMAT_VERSION = 1
_INDEX_FILE, _CHECKSUMS_FILE = "holdfast-images.json", "holdfast-checksums.json"
# Docker's manifest, and those that newer engines add.
_NAMING_FILES = ("manifest.json", "repositories", "index.json", "oci-layout")
# Members that holdfast keeps in memory; a larger one is not from `image save`.
_MAX_JSON_BYTES = 1 << 20
_CHUNK_SIZE = 1 << 20
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


class _DockerImage(msgspec.Struct, frozen=True):
    """An entry of Docker's manifest.json."""

    tags: tuple[str, ...] = msgspec.field(name="RepoTags", default=())


class _Member(NamedTuple):
    header: tarfile.TarInfo
    chunks: Iterator[bytes]


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
            while pending or len(data) == _CHUNK_SIZE:
                # With a limit: a small part of an archive may expand to gigabytes.
                data = decompressor.decompress(pending, _CHUNK_SIZE)
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
    checksums: dict[str, str] = {}
    naming: list[tuple[tarfile.TarInfo, bytes]] = []
    encoded = msgspec.json.encode(index)
    yield from _encode_json(_INDEX_FILE, encoded)
    checksums[_INDEX_FILE] = hashlib.sha256(encoded).hexdigest()
    for header, chunks in _read_members(exported, "export of the container engine"):
        if header.name in _NAMING_FILES:
            content = b"".join(chunks)
            naming.append((header, content))
            checksums[header.name] = hashlib.sha256(_header_digest_input(header) + content).hexdigest()
        else:
            digest = hashlib.sha256(_header_digest_input(header))
            yield from tar_member(header, _hash_chunks(chunks, digest))
            checksums[header.name] = digest.hexdigest()
    if "manifest.json" not in checksums:
        raise damaged_error("export of the container engine", "it has no manifest")
    yield from _encode_json(_CHECKSUMS_FILE, msgspec.json.encode(checksums, order="deterministic"))
    for header, content in naming:
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
        self._name = name
        self._members = _read_members(chunks, name)
        header, content = next(self._members, _Member(tarfile.TarInfo(), iter(())))
        if header.name != _INDEX_FILE:
            raise foreign_file_error(name)
        encoded = self._read_json(header, content)
        self.index = self._decode(encoded, ArchiveIndex)
        self._checksums = {_INDEX_FILE: hashlib.sha256(encoded).hexdigest()}

    def docker_archive(self) -> Iterator[bytes]:
        """Yield the images as a Docker archive.

        Raises:
            CorruptFileError: the archive is damaged or incomplete. The chunks before this error contain no
                names of images, so a container engine loads nothing.
        """
        expected: dict[str, str] = {}
        naming: list[tuple[tarfile.TarInfo, bytes]] = []
        for header, chunks in self._members:
            if header.name == _CHECKSUMS_FILE:
                expected = self._decode(self._read_json(header, chunks), dict[str, str])
            elif header.name in _NAMING_FILES:
                content = self._read_json(header, chunks)
                naming.append((header, content))
                self._checksums[header.name] = hashlib.sha256(
                    _header_digest_input(header) + content
                ).hexdigest()
            else:
                digest = hashlib.sha256(_header_digest_input(header))
                yield from tar_member(header, _hash_chunks(chunks, digest))
                self._checksums[header.name] = digest.hexdigest()
        self._verify(expected, {header.name: content for header, content in naming})
        for header, content in naming:
            yield from tar_member(header, [content])
        yield TAR_END

    def _verify(self, expected: dict[str, str], naming: dict[str, bytes]) -> None:
        if not expected:
            raise damaged_error(self._name, "its end is missing")
        if self._checksums != expected:
            different = self._checksums.items() ^ expected.items()
            raise damaged_error(self._name, f"the checksum of {min(name for name, _ in different)} differs")
        manifest = self._decode(naming.get("manifest.json", b"[]"), tuple[_DockerImage, ...])
        tags = {tag for image in manifest for tag in image.tags}
        # The archive must not replace other images of the container engine.
        if tags != {image.reference for image in self.index.images}:
            raise damaged_error(self._name, "its images differ from its index")

    def _read_json(self, header: tarfile.TarInfo, chunks: Iterator[bytes]) -> bytes:
        if header.size > _MAX_JSON_BYTES:
            raise damaged_error(self._name, f"{header.name} is too large")
        return b"".join(chunks)

    def _decode(self, content: bytes, kind: type[_T]) -> _T:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError:
            raise damaged_error(self._name, "its index is invalid") from None


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
        hint="Copy it again, or create it again with `holdfast image save FILE`. Nothing was loaded.",
    )


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


def _read_members(chunks: Iterable[bytes], name: str) -> Iterator[_Member]:
    """Yield the members of a tar archive; read the chunks of one before the next."""
    source = io.BufferedReader(_ChunkFile(chunks), _CHUNK_SIZE)
    try:
        with tarfile.open(fileobj=source, mode="r|") as tar:
            for header in tar:
                content = tar.extractfile(header) if header.isreg() else None
                header.size = header.size if header.isreg() else 0
                yield _Member(header, _read_chunks(content, header, name))
        # `tarfile` stops at the end mark; only the end of the source proves that nothing was cut off.
        while source.read(_CHUNK_SIZE):
            pass
    except tarfile.TarError:
        raise damaged_error(name, "its content is not a tar archive") from None


def _read_chunks(content: IO[bytes] | None, header: tarfile.TarInfo, name: str) -> Iterator[bytes]:
    left = header.size if content is not None else 0
    while content is not None and left:
        try:
            chunk = content.read(min(left, _CHUNK_SIZE))
        except tarfile.TarError:
            chunk = b""
        if not chunk:
            raise damaged_error(name, f"{header.name} is cut off")
        left -= len(chunk)
        yield chunk


def _hash_chunks(chunks: Iterable[bytes], digest: hashlib._Hash) -> Iterator[bytes]:
    for chunk in chunks:
        digest.update(chunk)
        yield chunk


def _header_digest_input(header: tarfile.TarInfo) -> bytes:
    """Return the type and link target of a member, which its checksum covers."""
    return header.type + header.linkname.encode() + b"\0"


def _encode_json(name: str, content: bytes) -> Iterator[bytes]:
    header = tarfile.TarInfo(name)
    header.size = len(content)
    return tar_member(header, [content])
