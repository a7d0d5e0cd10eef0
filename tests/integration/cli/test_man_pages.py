"""The installed manual pages with the programs that read them: mandoc and man-db."""

import os
import shutil
import subprocess

import pytest

from holdfast.cli import cli
from holdfast.cli.output import run_command


@pytest.fixture
def pages(tmp_path, monkeypatch, capsys):
    """The directory with all pages."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run_command(cli, ["man", "install"]) == 0
    capsys.readouterr()
    return tmp_path / "man" / "man1"


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="needs mandoc")
def test_mandoc_finds_nothing_to_improve(pages):
    ended = subprocess.run(
        ["mandoc", "-Tlint", "-Wall", *sorted(pages.iterdir())], capture_output=True, text=True, check=False
    )
    assert (ended.stdout + ended.stderr, ended.returncode) == ("", 0)


def is_man_db():
    found = shutil.which("man")
    version = found and subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return bool(found and version.stdout.startswith("man 2"))


@pytest.mark.skipif(not is_man_db(), reason="needs man-db")
def test_man_db_formats_every_page_without_warnings_and_finds_it_by_name(pages):
    environment = {**os.environ, "MANPATH": str(pages.parent), "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    for page in pages.iterdir():
        ended = subprocess.run(
            ["man", "--warnings", page.stem], env=environment, capture_output=True, text=True, check=True
        )
        assert ended.stderr == ""
        assert f"{page.stem.upper()}(1)" in ended.stdout
    ended = subprocess.run(
        ["man", "holdfast-sandbox-list"], env=environment, capture_output=True, text=True, check=True
    )
    # To be copied into a shell: no typographic quotes and hyphens.
    assert "-l, --selector SELECTOR" in ended.stdout
    assert "'a=b,c in (d, e),!f'" in " ".join(ended.stdout.split())
