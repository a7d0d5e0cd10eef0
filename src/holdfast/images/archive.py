"""A docker archive made of finished layers: engine and containerd both load it, nobody has to build it.

The same layers and configuration give the same config digest everywhere; that digest is the image's
identity in Docker and in containerd. Written as a stream, so that no second copy of the layers is needed.
"""

from __future__ import annotations

import hashlib
import tarfile
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import home
from holdfast.images.digest import file_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from holdfast.images.sources import Config

_CHUNK = 1 << 20
_BLOCK = 512
_CREATED = "1970-01-01T00:00:00Z"
_NANOSECONDS = 1_000_000_000


class Archive:
    """One image: its name, its layers and how it starts."""

    def __init__(
        self, name: str, layers: Sequence[Path], config: Config, *, architecture: str, labels: dict[str, str]
    ) -> None:
        self.name = name
        self._layers = [(layer, _hash_of(layer)) for layer in layers]
        self._config = _config_json(config, labels, architecture, [digest for _, digest in self._layers])
        self.config_digest = hashlib.sha256(self._config).hexdigest()

    def stream(self) -> Iterator[bytes]:
        """The archive in chunks, ready for `docker load` or `ctr images import`."""
        yield from _member(f"{self.config_digest}.json", self._config)
        for layer, digest in self._layers:
            yield from _file_member(f"{digest}/layer.tar", layer)
        manifest = [
            {
                "Config": f"{self.config_digest}.json",
                "RepoTags": [self.name],
                "Layers": [f"{digest}/layer.tar" for _, digest in self._layers],
            }
        ]
        yield from _member("manifest.json", msgspec.json.encode(manifest))
        yield b"\0" * (2 * _BLOCK)

    def size(self) -> int:
        """About how many bytes `stream` yields."""
        return sum(layer.stat().st_size for layer, _ in self._layers)

    def write(self, path: Path) -> None:
        """Write the archive to a file."""
        with path.open("wb") as file:
            file.writelines(self.stream())


def _config_json(config: Config, labels: dict[str, str], architecture: str, layers: list[str]) -> bytes:
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


def _hash_of(layer: Path) -> str:
    """A layer's hash, remembered beside it: hashing 400 MB takes longer than all the rest of a warm build."""
    remembered = layer.with_suffix(".sha256")
    if not remembered.exists():
        home.write_atomic(remembered, file_hash(layer))
    return remembered.read_text()


def _member(name: str, data: bytes) -> Iterator[bytes]:
    yield _header(name, len(data))
    yield data
    yield _padding(len(data))


def _file_member(name: str, path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    yield _header(name, size)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
    yield _padding(size)


def _header(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = size
    return entry.tobuf(tarfile.PAX_FORMAT)


def _padding(size: int) -> bytes:
    return b"\0" * (-size % _BLOCK)
