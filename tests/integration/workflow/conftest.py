"""Full and read-only disks, if the machine allows tests to mount them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 192 KiB; skipped where mounting is not allowed."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=192k,mode=700", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def tmp_path(tmp_path):
    """In memory where possible: a killed process loses nothing that the kernel has."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    place = Path(tempfile.mkdtemp(prefix="holdfast-", dir=memory))
    yield place
    shutil.rmtree(place, ignore_errors=True)
