"""Temporary directories in memory for tests that kill processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest


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
