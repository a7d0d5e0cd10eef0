"""Small real images on the machine's engine: made from layers in memory, removed at the end."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import uuid
from typing import TYPE_CHECKING

from holdfast.containers import load_image

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.containers import ContainerEngine


class SmallImages:
    """Builds images with unique names."""

    def __init__(self, engine: ContainerEngine) -> None:
        self.engine = engine
        self.names: list[str] = []

    def build(
        self,
        layers: Sequence[Mapping[str, bytes]],
        *,
        name: str | None = None,
        architecture: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> str:
        """An image of these layers (path to content); return its name."""
        name = name or f"hf-{uuid.uuid4().hex[:8]}:dev"
        packed = [_tar(layer) for layer in layers]
        config = json.dumps({
            "architecture": architecture or self.engine.architecture,
            "os": "linux",
            "config": {"Labels": dict(labels or {})},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in packed]},
        }).encode()  # fmt: skip
        files = {f"{number}/layer.tar": layer for number, layer in enumerate(packed)}
        config_name = f"{_digest(config).removeprefix('sha256:')}.json"
        manifest = [{"Config": config_name, "RepoTags": [name], "Layers": list(files)}]
        archive = _tar({**files, config_name: config, "manifest.json": json.dumps(manifest).encode()})
        load_image(self.engine, iter([archive]))
        self.names.append(name)
        return name

    def tag(self, name: str, other: str) -> str:
        repository, _, tag = other.rpartition(":")
        self.engine.client.tag(name, repository, tag)
        self.names.append(other)
        return other

    def remove_image(self, name: str) -> None:
        """Off the engine before the end, so that it has to be pulled again, layers and all."""
        self.names.remove(name)
        self.engine.client.remove_image(name)

    def remove_all(self) -> None:
        for name in dict.fromkeys(self.names):
            self.engine.client.remove_image(name, force=True)


def _tar(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
