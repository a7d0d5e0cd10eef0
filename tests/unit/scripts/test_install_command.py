"""`scripts/install-command` links the command without touching files of other installations."""

import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
COMMAND = REPOSITORY / ".venv" / "bin" / "holdfast"


@pytest.fixture
def install(tmp_path):
    """Run the script with a private target directory; return its output."""

    def run(*, on_path: bool = True) -> subprocess.CompletedProcess[str]:
        directory = tmp_path / "bin"
        path = f"{directory}:{os.environ['PATH']}" if on_path else os.environ["PATH"]
        return subprocess.run(
            [REPOSITORY / "scripts" / "install-command", str(directory)],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
        )

    return run


def test_link_is_created_and_the_command_name_is_printed(install, tmp_path):
    assert install().stdout == "holdfast\n"
    assert (tmp_path / "bin" / "holdfast").readlink() == COMMAND


def test_second_run_changes_nothing(install, tmp_path):
    install()
    before = (tmp_path / "bin" / "holdfast").lstat()
    second = install()
    assert second.stdout == "holdfast\n"
    assert second.stderr == ""
    assert (tmp_path / "bin" / "holdfast").lstat() == before


def test_directory_that_is_not_on_path_is_reported_with_the_next_command(install, tmp_path):
    ended = install(on_path=False)
    assert ended.stdout == f"{tmp_path / 'bin' / 'holdfast'}\n"
    assert f'export PATH="{tmp_path / "bin"}:$PATH"' in ended.stderr


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_file_of_another_installation_is_not_replaced(install, tmp_path, kind):
    existing = tmp_path / "bin" / "holdfast"
    existing.parent.mkdir()
    other = tmp_path / "other"
    if kind == "file":
        existing.write_text("another program")
    else:
        if kind == "link":
            other.write_text("another program")
        existing.symlink_to(other)
    ended = install()
    assert ended.stdout == f"{COMMAND}\n"
    assert f"ln -sf {COMMAND} {existing}" in ended.stderr
    assert (
        existing.read_text() == "another program" if kind != "dangling link" else existing.readlink() == other
    )


def test_printed_command_replaces_the_file_of_another_installation(install, tmp_path):
    existing = tmp_path / "bin" / "holdfast"
    existing.parent.mkdir()
    existing.write_text("another program")
    hint = install().stderr.splitlines()[-1].partition("run: ")[2]
    subprocess.run(hint, shell=True, check=True)
    assert install().stdout == "holdfast\n"
