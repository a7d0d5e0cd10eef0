"""The file of `image save`: new, complete or not there; and errors that name the file of the user."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import PermanentError
from holdfast.images import save_load

PARTIAL_FILES = ".holdfast-image-save-*"
KILLED_SAVE = """
import sys, time
from pathlib import Path
from holdfast.images import save_load
with save_load._atomic_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(600)
"""


def save(target, content=b"new"):
    with save_load._atomic_file(target) as file:
        file.write(content)


@pytest.fixture
def running_save(tmp_path):
    """Another process that saves to the same directory."""
    words = [sys.executable, "-c", KILLED_SAVE, str(tmp_path / "images")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"writing\n"
    yield process
    process.kill()
    process.wait()


def test_planted_links_are_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f".images.{os.getpid()}").symlink_to(victim)
    (tmp_path / ".holdfast-image-save-planted").symlink_to(victim)
    save(tmp_path / "images")
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "images").read_bytes() == b"new"
    assert not (tmp_path / "images").is_symlink()


def test_file_of_a_killed_save_is_removed_by_the_next(running_save, tmp_path):
    running_save.send_signal(signal.SIGKILL)
    running_save.wait()
    assert list(tmp_path.glob(PARTIAL_FILES))
    save(tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_file_of_a_running_save_stays(running_save, tmp_path):
    save(tmp_path / "other")
    assert running_save.poll() is None
    assert len(list(tmp_path.glob(PARTIAL_FILES))) == 1


def test_new_file_has_the_usual_mode(tmp_path):
    (tmp_path / "usual").touch()
    save(tmp_path / "images")
    assert (tmp_path / "images").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_failed_save_leaves_nothing(tmp_path):
    with pytest.raises(PermanentError, match=f"{tmp_path}/images: Input/output error"):  # noqa: SIM117
        with save_load._atomic_file(tmp_path / "images"):
            raise OSError(errno.EIO, "Input/output error")
    assert list(tmp_path.iterdir()) == []


def test_read_error_names_the_file(tmp_path):
    class BadDisk:
        def read(self, size):
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(PermanentError, match="/some/file: Input/output error") as caught:
        list(save_load._read_file(BadDisk(), str(Path("/some/file"))))
    assert caught.value.code != "damaged-file"
