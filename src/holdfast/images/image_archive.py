"""Layers and image archives that are reproducible: the same content gives the same bytes everywhere.

The digest of the configuration is the identity of the image in Docker and containerd. Archives are written as
a stream, so no second copy of the layers is needed.
"""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from typing import IO, TYPE_CHECKING, Any

import msgspec

from holdfast import home
from holdfast.images.build_cache import file_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import Self

    from holdfast.images.image_toml import ImageConfig


_MTIME = 0


class LayerWriter:
    """Writes a layer; entries have a fixed mtime and belong to root by default."""

    def __init__(self, path: Path) -> None:
        self._tar = tarfile.open(path, "w", format=tarfile.GNU_FORMAT)  # noqa: SIM115 (closed by __exit__)
        self._directories: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._tar.close()

    def add_file(self, target: str, source: Path, *, mode: int | None = None) -> None:
        """Add a file of this machine; an executable file stays executable."""
        status = source.stat()
        if mode is None:
            mode = 0o755 if status.st_mode & 0o111 else 0o644
        with source.open("rb") as content:
            self._add(target, content, size=status.st_size, mode=mode)

    def add_bytes(self, target: str, data: bytes, *, mode: int = 0o644) -> None:
        """Add a file with this content."""
        self._add(target, io.BytesIO(data), size=len(data), mode=mode)

    def add_symlink(self, target: str, destination: str) -> None:
        """Add a symbolic link at `target` that points to `destination`."""
        self._add(target, type=tarfile.SYMTYPE, linkname=destination, mode=0o777)

    def add_directory(self, target: str, *, owner: tuple[int, int] = (0, 0)) -> None:
        """Add an empty directory."""
        name = target.strip("/")
        if name and name not in self._directories:
            self._directories.add(name)
            self._add(name, type=tarfile.DIRTYPE, mode=0o755, uid=owner[0], gid=owner[1])

    def _add(self, target: str, content: IO[bytes] | None = None, **attributes: Any) -> None:
        name = target.strip("/")
        # With its parents in turn: a container engine creates missing ones with access for root only.
        self.add_directory(name.rpartition("/")[0])
        entry = tarfile.TarInfo(name)
        entry.mtime = _MTIME
        for attribute, value in attributes.items():
            setattr(entry, attribute, value)
        self._tar.addfile(entry, content)


def read_tar_member(archive: Path, name: str) -> bytes:
    """Return the content of a file in a tar archive; links inside the archive are followed."""
    with tarfile.open(archive) as tar:
        for candidate in (f"./{name.strip('/')}", name.strip("/")):
            try:
                content = tar.extractfile(candidate)
            except KeyError:
                continue
            if content is not None:
                return content.read()
    raise FileNotFoundError(f"{name} is not in {archive.name}")


CHUNK_SIZE = 1 << 20
TAR_BLOCK_SIZE = 512
# Two empty blocks end a tar archive.
TAR_END = b"\0" * (2 * TAR_BLOCK_SIZE)
_CREATED = "1970-01-01T00:00:00Z"
_NANOSECONDS = 1_000_000_000


class ImageArchive:
    """A docker archive of finished layers, which container engines and containerd can load."""

    def __init__(
        self,
        name: str,
        layers: Sequence[Path],
        config: ImageConfig,
        *,
        architecture: str,
        labels: dict[str, str],
    ) -> None:
        self.name = name
        self._layers = [(layer, _cached_layer_hash(layer)) for layer in layers]
        self._config = _config_json(config, labels, architecture, [digest for _, digest in self._layers])
        self.config_digest = hashlib.sha256(self._config).hexdigest()

    def stream(self) -> Iterator[bytes]:
        """Yield the archive in chunks, for `docker load` or `ctr images import`."""
        yield from _file_member(f"{self.config_digest}.json", len(self._config), [self._config])
        for layer, digest in self._layers:
            with layer.open("rb") as file:
                size = layer.stat().st_size
                yield from _file_member(f"{digest}/layer.tar", size, read_chunks(file))
        manifest = [
            {
                "Config": f"{self.config_digest}.json",
                "RepoTags": [self.name],
                "Layers": [f"{digest}/layer.tar" for _, digest in self._layers],
            }
        ]
        encoded = msgspec.json.encode(manifest)
        yield from _file_member("manifest.json", len(encoded), [encoded])
        yield TAR_END

    def size(self) -> int:
        """Return about how many bytes `stream` yields."""
        return sum(layer.stat().st_size for layer, _ in self._layers)

    def write(self, path: Path) -> None:
        """Write the archive to a file."""
        with path.open("wb") as file:
            file.writelines(self.stream())


def _config_json(config: ImageConfig, labels: dict[str, str], architecture: str, layers: list[str]) -> bytes:
    process: dict[str, Any] = {
        "Env": [f"{name}={value}" for name, value in sorted(config.environment.items())],
        "Entrypoint": list(config.entrypoint) or None,
        "Cmd": list(config.command) or None,
        "Labels": {**config.labels, **labels},
        "StopSignal": config.stop_signal,
        "WorkingDir": config.working_dir,
        "User": config.user,
    }
    if config.healthcheck:
        process["Healthcheck"] = {
            "Test": ["CMD", *config.healthcheck],
            "Interval": int(config.healthcheck_interval_seconds * _NANOSECONDS),
            "Timeout": 5 * _NANOSECONDS,
            "StartPeriod": 60 * _NANOSECONDS,
            "Retries": 3,
        }
    image = {
        "architecture": architecture,
        "os": "linux",
        "created": _CREATED,
        "config": process,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in layers]},
        "history": [{"created": _CREATED, "created_by": "holdfast image build"} for _ in layers],
    }
    return msgspec.json.encode(image, order="deterministic")


def _cached_layer_hash(layer: Path) -> str:
    """Return the hash of a layer, cached in a file next to it: hashing 400 MB dominates a warm build."""
    cached = layer.with_suffix(".sha256")
    if not cached.exists():
        home.write_atomic(cached, file_hash(layer))
    return cached.read_text()


def _file_member(name: str, size: int, content: Iterable[bytes]) -> Iterator[bytes]:
    entry = tarfile.TarInfo(name)
    entry.size = size
    return tar_member(entry, content)


def tar_member(entry: tarfile.TarInfo, content: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a member of a tar archive; `tarfile` itself writes to a file and cannot yield its output."""
    yield entry.tobuf(tarfile.PAX_FORMAT)
    yield from content
    yield b"\0" * (-entry.size % TAR_BLOCK_SIZE)


def read_chunks(file: IO[bytes], limit: int = sys.maxsize) -> Iterator[bytes]:
    """Yield the content of a file in chunks, up to `limit` bytes."""
    while limit and (chunk := file.read(min(limit, CHUNK_SIZE))):
        limit -= len(chunk)
        yield chunk
