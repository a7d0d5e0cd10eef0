"""A small image of a user with a shell and files in its workspace."""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.containers import ContainerEngine

NODE_IMAGE = "holdfast/node:0.1.0"
_BUSYBOX_APPLETS = (
    "sh", "cp", "mv", "rm", "mkdir", "chmod", "sync", "tail", "find", "sort", "sha256sum", "xargs", "cat",
    "stat", "ls", "touch", "readlink",
)  # fmt: skip


class SeededImage:
    """Busybox and some hundred files below /sandbox, owned by another user than who runs it."""

    def __init__(self, engine: ContainerEngine, *, files: int = 600) -> None:
        self._engine = engine
        self.name = f"hf-seeded-{uuid.uuid4().hex[:8]}:dev"
        numbers = random.Random(7)
        self.contents = {f"folder {n % 20}/file {n}": numbers.randbytes(2_000) for n in range(files)}
        config = ["ENTRYPOINT []", "USER 0"]
        repository, _, tag = self.name.rpartition(":")
        engine.client.import_image_from_data(self._rootfs(), repository=repository, tag=tag, changes=config)

    def listing(self) -> str:
        """What `find -type f | sort | xargs sha256sum` says of it."""
        names = sorted(self.contents, key=lambda name: f"./{name}".encode())
        return "".join(f"{hashlib.sha256(self.contents[name]).hexdigest()}  ./{name}\n" for name in names)

    def remove(self) -> None:
        self._engine.client.remove_image(self.name, force=True)

    def _rootfs(self) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            _add_entry(tar, "bin", kind=tarfile.DIRTYPE, mode=0o755)
            _add_entry(tar, "bin/busybox", self._busybox(), mode=0o755)
            for name in _BUSYBOX_APPLETS:
                _add_entry(tar, f"bin/{name}", kind=tarfile.SYMTYPE, link="busybox")
            _add_entry(tar, "tmp", kind=tarfile.DIRTYPE, mode=0o1777)
            _add_entry(tar, "sandbox", kind=tarfile.DIRTYPE, mode=0o750)
            for number in range(20):
                _add_entry(tar, f"sandbox/folder {number}", kind=tarfile.DIRTYPE, mode=0o755)
            for name, content in self.contents.items():
                _add_entry(tar, f"sandbox/{name}", content, mode=0o640)
            _add_entry(tar, "sandbox/link", kind=tarfile.SYMTYPE, link="folder 1/file 1")
        return packed.getvalue()

    def _busybox(self) -> bytes:
        """The node image has a static one."""
        client = self._engine.client
        container = client.create_container(NODE_IMAGE, entrypoint="/bin/true")
        try:
            pieces, _ = client.get_archive(container, "/usr/bin/busybox")
            with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
                return tar.extractfile("busybox").read()
        finally:
            client.remove_container(container, force=True)


def _add_entry(tar, name, content=b"", *, kind=tarfile.REGTYPE, mode=0o777, link=""):
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size = kind, mode, link, len(content)
    entry.mtime = 1_000_000_000
    if name.startswith("sandbox"):
        entry.uid = entry.gid = 1234
    tar.addfile(entry, io.BytesIO(content))
