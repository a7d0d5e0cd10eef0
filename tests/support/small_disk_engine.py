"""A container engine for one test on a small private disk, which the test may fill."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support.private_container_engine import PrivateContainerEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

_DISK_SIZE = "4g"
"""Enough for two node images and a gateway without evictions by the kubelet."""


class SmallDiskEngine(PrivateContainerEngine):
    """A container engine on a small disk; `with engine.fill_disk():` leaves no free byte on it."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = self.folder / "data"

    def set_up(self) -> None:
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_SIZE}", "tmpfs", self.disk], check=True)
        super().set_up()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        while (
            subprocess.run(["umount", "--lazy", self.disk], check=False, capture_output=True).returncode == 0
        ):
            continue
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def fill_disk(self) -> Iterator[None]:
        """Fill the disk to the last byte; free the space at the end."""
        ballast = self.disk / "ballast"
        try:
            room = os.statvfs(self.disk)
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
            yield
        finally:
            ballast.unlink(missing_ok=True)
