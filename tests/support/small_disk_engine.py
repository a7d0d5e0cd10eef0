"""An engine of a test's own whose disk is small, so that it can be filled without harm to anybody."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from tests.support.private_container_engine import PrivateContainerEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

_DISK_SIZE = "4g"
"""Room for two node images and a gateway, far from what makes a kubelet evict pods."""


class SmallDiskEngine(PrivateContainerEngine):
    """A container engine on a small disk; `with engine.fill_disk():` leaves no free byte on it."""

    def __enter__(self) -> Self:
        self.disk = self.folder / "data"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_SIZE}", "tmpfs", self.disk], check=True)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        while (
            subprocess.run(["umount", "--lazy", self.disk], check=False, capture_output=True).returncode == 0
        ):
            continue
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def fill_disk(self) -> Iterator[None]:
        """Fill the disk to the last byte, and make room again."""
        ballast = self.disk / "ballast"
        try:
            room = os.statvfs(self.disk)
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
            yield
        finally:
            ballast.unlink(missing_ok=True)
