"""What must stay out of memory for the commands that people type most."""

import subprocess
import sys

import pytest

HEAVY = {
    "docker",
    "kubernetes",
    "requests",
    "urllib3",
    "yaml",
    "rich",
    "sqlite3",
    "aiohttp",
    "asyncio",
}

LOADED = """
import sys
from holdfast.cli import cli
from holdfast.cli.output.errors import run_command
code = run_command(cli, sys.argv[1:])
sys.stderr.write("\\n".join(name.partition(".")[0] for name in sys.modules))
sys.exit(code)
"""


@pytest.mark.parametrize("words", [["--help"], ["list"], ["up", "--help"], ["image", "--help"]], ids=" ".join)
def test_quick_commands_import_nothing_heavy(words, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        env={"HOLDFAST_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not HEAVY & set(ended.stderr.split())


def test_help_does_not_import_models():
    ended = subprocess.run(
        [sys.executable, "-c", LOADED, "--help"], capture_output=True, text=True, check=True
    )
    assert "msgspec" not in ended.stderr.split()
