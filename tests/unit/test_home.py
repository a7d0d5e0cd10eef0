"""Files are written as a whole, privately, or not at all."""

import os
import stat

import pytest

from holdfast import home


def test_write_is_atomic_and_leaves_no_temporary_file(tmp_path):
    path = tmp_path / "new" / "file"
    home.write_atomic(path, "one")
    home.write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["file"]  # noqa: PTH208
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_failed_write_keeps_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    home.write_atomic(path, "old")

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        home.write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_environment_variables_move_home_and_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "h"))
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "c"))
    assert home.config_dir() == tmp_path / "h" / "config"
    assert home.state_dir() == tmp_path / "h" / "state"
    assert home.cache_dir() == tmp_path / "c"
