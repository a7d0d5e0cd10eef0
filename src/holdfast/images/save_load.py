"""Save holdfast's images to one archive, and load them on another machine without a build."""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from holdfast import __version__, home
from holdfast.containers import (
    INPUTS,
    ImageArchiveStream,
    TransferProgress,
    find_image,
    load_image,
    remove_unused_image,
)
from holdfast.errors import (
    DiskFullError,
    ImageIncompatibleError,
    ImageNotFoundError,
    PermanentError,
    UsageError,
)
from holdfast.images.archive_format import (
    FORMAT_VERSION,
    ArchiveIndex,
    ArchiveReader,
    SavedImage,
    compress,
    damaged_error,
    decompress,
    encode_archive,
)
from holdfast.images.image_archive import read_chunks
from holdfast.images.image_toml import IMAGE_NAMES
from holdfast.images.recipe import image_reference
from holdfast.remote import connect
from holdfast.workflow import Step, Workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from holdfast.containers import ContainerEngine, ImageView
    from holdfast.events import EventBus
    from holdfast.workflow import StepContext

_ENGINE_TIMEOUT_SECONDS = 600.0
_PARTIAL_PREFIX = ".holdfast-image-save-"
# O_EXCL: the file must be new, so that nothing is written through an existing file or link.
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LEFTOVER_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class SavedArchive(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that `save_images` wrote."""

    path: str
    """empty for a stream"""
    size: int
    architecture: str
    version: str
    """the version of holdfast that the images belong to"""
    images: tuple[SavedImage, ...]


class LoadedImage(msgspec.Struct, frozen=True, kw_only=True):
    """One image of an archive after it was loaded."""

    image: str
    reference: str
    id: str
    changed: bool
    """whether the container engine did not have this image before"""


def save_images(
    target: Path | IO[bytes], names: Sequence[str] = (), *, bus: EventBus | None = None
) -> SavedArchive:
    """Save images of the container engine to one archive.

    Args:
        target: file to write or replace, or a stream. The file has its name only once it is complete.
        names: the images; node, gateway and sandbox by default.
        bus: receives the events of the command.

    Raises:
        UsageError: an image is unknown, or the file cannot be written.
        ImageNotFoundError: the container engine does not have an image.
        DiskFullError: the disk is full.
    """
    if isinstance(target, Path):
        target = _check_target(target)
    engine = connect(timeout=_ENGINE_TIMEOUT_SECONDS)
    index = _create_index(engine, tuple(dict.fromkeys(names or IMAGE_NAMES)))
    step = _SaveImages(engine, index, target)
    Workflow("image-save", [step]).run(bus=bus, command="image save")
    return SavedArchive(
        path=str(target) if isinstance(target, Path) else "",
        size=step.written,
        architecture=index.architecture,
        version=index.version,
        images=index.images,
    )


def load_images(source: Path | IO[bytes], *, bus: EventBus | None = None) -> list[LoadedImage]:
    """Load the images of an archive into the container engine; those that it has already are not sent.

    Args:
        source: an archive of `save_images`, as a file or a stream.
        bus: receives the events of the command.

    Raises:
        CorruptFileError: the archive is damaged or incomplete; nothing was loaded.
        ImageIncompatibleError: the archive is for another architecture or version of holdfast.
        DiskFullError: the disk of the container engine is full.
    """
    engine = connect(timeout=_ENGINE_TIMEOUT_SECONDS)
    with _open_source(source) as (file, name):
        reader = ArchiveReader(decompress(_read_file(file, name), name), name)
        _check_compatible(reader.index, engine, name)
        step = _LoadImages(engine, reader, name, is_stream=not isinstance(source, Path))
        Workflow("image-load", [step]).run(bus=bus, command="image load")
    return [
        LoadedImage(
            image=saved.image,
            reference=saved.reference,
            id=saved.id,
            changed=saved.reference in step.loaded,
        )
        for saved in reader.index.images
    ]


class _SaveImages(Step):
    """The archive, in its file or written to a stream."""

    repeat = "safe"

    def __init__(self, engine: ContainerEngine, index: ArchiveIndex, target: Path | IO[bytes]) -> None:
        super().__init__("save-images", title="Save images")
        self._engine = engine
        self._index = index
        self._target = target
        self.written = 0

    def run(self, ctx: StepContext) -> None:
        references = [image.reference for image in self._index.images]
        ctx.progress(f"exporting {', '.join(references)}", None)
        stream = ImageArchiveStream(self._engine, references, read_timeout=_ENGINE_TIMEOUT_SECONDS)
        try:
            exported = TransferProgress(self._index.size, _cancellable_progress(ctx)).track(stream)
            chunks = compress(encode_archive(self._index, exported))
            if isinstance(self._target, Path):
                with _atomic_file(self._target) as file:
                    self._write(file, chunks)
            else:
                self._write(self._target, chunks)
        finally:
            stream.close()
        ctx.note(f"{len(references)} images, {self.written / 1e6:.0f} MB")

    def _write(self, file: IO[bytes], chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            file.write(chunk)
            self.written += len(chunk)
        file.flush()


class _LoadImages(Step):
    """The images of an archive, in the container engine."""

    repeat = "safe"

    def __init__(self, engine: ContainerEngine, reader: ArchiveReader, name: str, *, is_stream: bool) -> None:
        super().__init__("load-images", title="Load images")
        self._engine = engine
        self._reader = reader
        self._name = name
        self._is_stream = is_stream
        self.loaded: set[str] = set()

    def run(self, ctx: StepContext) -> None:
        index = self._reader.index
        before = {image.reference: find_image(self._engine, image.reference) for image in index.images}
        missing = [image for image in index.images if not _has_id(before[image.reference], image.id)]
        archive = TransferProgress(index.size, _cancellable_progress(ctx)).track(
            self._reader.docker_archive()
        )
        if not missing:
            if self._is_stream:
                # Read to the end: otherwise the program that writes into the pipe is killed.
                for _ in archive:
                    pass
            ctx.note("the container engine has these images already")
            return
        load_image(self._engine, archive)
        for image in index.images:
            self._check_loaded(image)
        for replaced in before.values():
            if replaced is not None:
                remove_unused_image(self._engine, replaced.id)
        self.loaded.update(image.reference for image in missing)
        ctx.note(f"{len(missing)} images")

    def _check_loaded(self, image: SavedImage) -> None:
        # Another image store of an engine has other ids; the label is part of the image.
        found = find_image(self._engine, image.reference)
        if not _has_id(found, image.id) and (found is None or found.labels.get(INPUTS) != image.inputs):
            raise damaged_error(self._name, f"the container engine did not load {image.reference}")


def _has_id(image: ImageView | None, image_id: str) -> bool:
    return image is not None and image.id == image_id


def _create_index(engine: ContainerEngine, names: Sequence[str]) -> ArchiveIndex:
    images, architectures = [], set()
    for name in names:
        reference = image_reference(name)
        image = find_image(engine, reference)
        if image is None:
            raise ImageNotFoundError(
                f"image {reference}: not on the container engine",
                hint=f"Run `holdfast image build {name}`.",
            )
        architectures.add(image.architecture)
        images.append(
            SavedImage(
                image=name,
                reference=reference,
                id=image.id,
                inputs=image.labels.get(INPUTS, ""),
                size=image.size,
            )
        )
    if len(architectures) > 1:
        raise ImageIncompatibleError(
            f"images {', '.join(names)}: built for several architectures: {', '.join(sorted(architectures))}",
            hint="Save the images of each architecture to a separate archive.",
        )
    return ArchiveIndex(
        format=FORMAT_VERSION,
        version=__version__,
        architecture=architectures.pop(),
        images=tuple(images),
    )


def _check_compatible(index: ArchiveIndex, engine: ContainerEngine, name: str) -> None:
    if index.version != __version__:
        raise ImageIncompatibleError(
            f"{name}: its images belong to holdfast {index.version}, but this is holdfast {__version__}",
            hint=f"Install holdfast {index.version}, or create the archive with holdfast {__version__}.",
        )
    if engine.architecture and index.architecture != engine.architecture:
        raise ImageIncompatibleError(
            f"{name}: its images are for {index.architecture}, but the container engine runs "
            f"{engine.architecture}",
            hint=f"Create the archive on a machine with {engine.architecture}.",
        )
    if any(image.reference != image_reference(image.image) for image in index.images):
        raise damaged_error(name, "its index is invalid")


def _cancellable_progress(ctx: StepContext) -> Callable[[str, float | None], None]:
    """Return a progress callback that ends the transfer on Ctrl-C."""

    def report(message: str, fraction: float | None) -> None:
        ctx.check_stop()
        ctx.progress(message, fraction)

    return report


@contextmanager
def _open_source(source: Path | IO[bytes]) -> Iterator[tuple[IO[bytes], str]]:
    if not isinstance(source, Path):
        yield source, "standard input"
        return
    try:
        file = source.open("rb")
    except OSError as error:
        raise _file_error(source, error) from error
    with file:
        yield file, str(source)


def _read_file(file: IO[bytes], name: str) -> Iterator[bytes]:
    try:
        yield from read_chunks(file)
    except OSError as error:
        raise _file_error(name, error) from error


@contextmanager
def _atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that gets its name when the block succeeds, and disappears when it fails."""
    try:
        _remove_leftovers(path.parent)
        temporary, opened = _create_partial(path.parent)
        with home.rename_when_complete(opened, temporary, path) as file:
            yield file
    except OSError as error:
        raise _file_error(path, error) from error


def _create_partial(directory: Path) -> tuple[Path, IO[bytes]]:
    """Create a file and lock it, so that no other save takes it for a leftover; a kill unlocks it."""
    while True:
        path = directory / f"{_PARTIAL_PREFIX}{secrets.token_hex(8)}"
        file = os.fdopen(os.open(path, _NEW_FILE_FLAGS, 0o666), "wb")
        with suppress(OSError):  # a file system without locks; nothing is removed there
            fcntl.flock(file, fcntl.LOCK_EX)
        # Another save may have removed the file before it was locked.
        if os.fstat(file.fileno()).st_nlink:
            return path, file
        file.close()


def _remove_leftovers(directory: Path) -> None:
    """Remove the files of saves that were killed."""
    for leftover in directory.glob(f"{_PARTIAL_PREFIX}*"):
        # The file of another user cannot be removed, and that of a running save cannot be locked.
        with suppress(OSError), os.fdopen(os.open(leftover, _LEFTOVER_FLAGS), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink()


def _check_target(path: Path) -> Path:
    """Return the file that a link points to.

    Raises:
        UsageError: its directory does not exist, or it is not a file.
    """
    path = path.resolve()
    if not path.parent.is_dir():
        raise UsageError(f"{path}: its directory does not exist", hint="Choose another file.")
    # A rename would replace a device such as /dev/null.
    if path.exists() and not path.is_file():
        raise UsageError(
            f"{path}: not a regular file", hint="Choose another file, or write to standard output with -."
        )
    return path


def _file_error(path: Path | str, error: OSError) -> PermanentError:
    if error.errno in home.NO_SPACE_ERRNOS:
        return DiskFullError(f"{path}: no space left on the disk")
    return PermanentError(f"{path}: {error.strerror}", hint="Choose another file.")
